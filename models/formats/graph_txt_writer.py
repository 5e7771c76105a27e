"""Writes PipeDream's graph.txt, for tools that read nothing else."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pipeplan.core.graph import LayerGraph
from pipeplan.core.textfile import write_text

__all__ = ["dump_graph_txt", "write_graph_txt"]

_PLAIN_ID: Final = re.compile(r"node[0-9]{1,9}")


def dump_graph_txt(graph: LayerGraph) -> str:
    """The graph as graph.txt; times in milliseconds and sizes in bytes, with all their digits.

    Layers keep ids of the form node12; other ids, which PipeDream's tools cannot sort, are numbered
    in topological order, inputs first. What the format has no place for is lost: what is kept for
    the backward pass, groups, dtypes, shapes and where the figures come from.
    """
    ids = [item.id for item in graph.inputs] + [layer.id for layer in graph.layers]
    keep = all(map(_PLAIN_ID.fullmatch, ids))
    names = {i: i if keep else f"node{n}" for n, i in enumerate(ids, start=1)}
    stages: Mapping[str, int] = graph.metadata.get("stage_of", {})
    lines: list[str] = []
    for n, item in enumerate(graph.inputs):
        text = "Input" if len(graph.inputs) == 1 else f"Input{n}"
        lines.append(f"{names[item.id]} -- {text} -- {_figures(0.0, 0.0, [item.output_bytes], 0)}")
    for layer in graph.layers:
        figures = _figures(
            layer.forward_ms,
            layer.backward_ms,
            _outputs(layer.output_bytes, layer.tensors),
            layer.parameter_bytes,
        )
        stage = f" -- stage_id={stages[layer.id]}" if layer.id in stages else ""
        lines.append(f"{names[layer.id]} -- {_plain(layer.description)} -- {figures}{stage}")
    for item in graph.inputs:
        lines += [f"\t{names[item.id]} -- {names[consumer]}" for consumer in item.consumers]
    for a, b in graph.edges:
        lines.append(f"\t{names[graph.layers[a].id]} -- {names[graph.layers[b].id]}")
    return "\n".join(lines) + "\n"


def write_graph_txt(graph: LayerGraph, path: str | Path, *, force: bool = False) -> None:
    """Write graph.txt, whole or not at all.

    Raises PipeplanError where the file exists, unless `force`, and where it cannot be written.
    """
    write_text(Path(path), dump_graph_txt(graph), force=force)


def _figures(forward_ms: float, backward_ms: float, outputs: list[int], parameters: int) -> str:
    sizes = str(outputs[0]) if len(outputs) == 1 else "[" + "; ".join(map(str, outputs)) + "]"
    return (
        f"forward_compute_time={forward_ms!r}, backward_compute_time={backward_ms!r}, "
        f"activation_size={sizes}, parameter_size={parameters}"
    )


def _outputs(total: int, tensors: Sequence[Mapping[str, Any]]) -> list[int]:
    """The sizes of several tensors, where they are known and add up; else their sum."""
    sizes = [tensor.get("bytes") for tensor in tensors]
    whole = [size for size in sizes if isinstance(size, int)]
    return whole if len(whole) == len(sizes) > 1 and sum(whole) == total else [total]


def _plain(text: str) -> str:
    """A description on one line that cannot be taken for a separator or an input; never empty."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    plain = re.sub(r"\s+", " ", printable).replace(" -- ", " - ").strip(" -") or "Layer"
    return f"Layer {plain}" if plain.startswith("Input") else plain
