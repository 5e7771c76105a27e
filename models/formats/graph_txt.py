"""PipeDream's graph.txt and its dialects: from what the lines hold to a layer graph."""

from pipeplan.core.errors import ProfileError
from pipeplan.core.graph import GraphInput, Layer, LayerGraph, natural_key
from pipeplan.core.units import plural
from pipeplan.models.formats.graph_txt_inputs import input_ids
from pipeplan.models.formats.graph_txt_lines import ParsedLines, parse_lines
from pipeplan.models.formats.groups import constant_ids, together_of

__all__ = ["parse_graph_txt"]


def parse_graph_txt(text: str, path: str, name: str) -> tuple[LayerGraph, tuple[str, ...]]:
    """The graph and what seemed odd about the text.

    A layer's stage_id, where given, is kept in `metadata["stage_of"]`, which layers are constants
    in `metadata["constants"]`, and what a layer with several in-edges reads, in the order of the
    file, in `metadata["arguments"]` (edges of the graph itself are a set). Raises ProfileError with
    path, line and offending text.
    """
    return _assemble(parse_lines(text, path), name)


def _assemble(parsed: ParsedLines, name: str) -> tuple[LayerGraph, tuple[str, ...]]:
    found = input_ids(parsed.layers, list(parsed.edges))
    inputs = frozenset(found.ids)
    layers = {i: layer for i, layer in parsed.layers.items() if i not in inputs}
    if not layers:
        raise ProfileError("the file holds inputs and no layer", path=parsed.path)
    edges = [(a, b) for a, b in parsed.edges if a in layers and b in layers]
    readers: dict[str, list[str]] = {i: [] for i in found.ids}
    for producer, consumer in parsed.edges:
        if producer in inputs and consumer in layers:
            readers[producer].append(consumer)
    fed = {consumer for consumers in readers.values() for consumer in consumers}
    constants = constant_ids(layers, edges, fed)
    metadata: dict[str, object] = {"source_format": "PipeDream graph.txt"}
    stages = {i: stage for i, stage in parsed.stage_of.items() if i in layers}
    if stages:
        metadata["stage_of"] = stages
    if constants:
        metadata["constants"] = sorted(constants, key=natural_key)
    arguments: dict[str, list[str]] = {}
    for producer, consumer in parsed.edges:
        arguments.setdefault(consumer, []).append(producer)
    several = {i: read for i, read in sorted(arguments.items()) if len(read) > 1}
    if several:
        metadata["arguments"] = several
    try:
        graph = LayerGraph.build(
            layers.values(),
            edges,
            inputs=[_graph_input(parsed.layers[i], readers[i]) for i in found.ids],
            together=together_of(layers, edges, constants),
            name=name,
            metadata=metadata,
        )
    except ProfileError as error:
        raise ProfileError(error.message, path=parsed.path, text=error.text) from None
    return graph, (*found.warnings, *_oddities(parsed))


def _graph_input(layer: Layer, readers: list[str]) -> GraphInput:
    return GraphInput(
        id=layer.id,
        output_bytes=layer.output_bytes,
        consumers=tuple(sorted(readers, key=natural_key)),
        description=layer.description,
        tensors=layer.tensors,
    )


def _oddities(parsed: ParsedLines) -> list[str]:
    found: list[str] = []
    for key, count in sorted(parsed.unknown.items()):
        found.append(f"unknown field {key[:80]!a} ignored ({plural(count, 'line')})")
    if parsed.fractions:
        found.append(
            f"{len(parsed.fractions)} sizes are not whole bytes and were rounded up "
            f"(first on line {parsed.fractions[0]})"
        )
    if parsed.repeated:
        found.append(
            f"{len(parsed.repeated)} edges are given more than once "
            f"(first repeated on line {parsed.repeated[0]})"
        )
    return found
