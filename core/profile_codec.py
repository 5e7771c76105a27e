"""Layer graphs as versioned JSON, `pipeplan.profile/1`: the same in a file and inside a plan."""

from collections.abc import Mapping
from typing import Any, Final

from pipeplan.core.errors import ProfileError, shown
from pipeplan.core.graph import GraphInput, Layer, LayerGraph, Together
from pipeplan.core.jsontext import not_json
from pipeplan.core.reader import Reader

__all__ = ["PROFILE_SCHEMA", "graph_from_dict", "graph_to_dict"]

PROFILE_SCHEMA: Final = "pipeplan.profile/1"


def graph_to_dict(graph: LayerGraph) -> dict[str, Any]:
    """A graph as JSON-ready values; `graph_from_dict` gives the same graph back."""
    return {
        "schema": PROFILE_SCHEMA,
        "name": graph.name,
        "metadata": dict(graph.metadata),
        "inputs": [
            {
                "id": x.id,
                "output_bytes": x.output_bytes,
                "consumers": list(x.consumers),
                **({"description": x.description} if x.description else {}),
                **({"tensors": [dict(t) for t in x.tensors]} if x.tensors else {}),
            }
            for x in graph.inputs
        ],
        "layers": [
            {
                "id": x.id,
                "forward_ms": x.forward_ms,
                "backward_ms": x.backward_ms,
                "output_bytes": x.output_bytes,
                "parameter_bytes": x.parameter_bytes,
                **({} if x.saved_bytes is None else {"saved_bytes": x.saved_bytes}),
                **({"description": x.description} if x.description else {}),
                **({"tensors": [dict(t) for t in x.tensors]} if x.tensors else {}),
            }
            for x in graph.layers
        ],
        "edges": [[graph.layers[a].id, graph.layers[b].id] for a, b in graph.edges],
        "together": [{"layers": list(x.layers), "reason": x.reason} for x in graph.together],
    }


def graph_from_dict(data: Any) -> tuple[LayerGraph, tuple[str, ...]]:
    """A validated graph, and a warning for every field that is not understood (20 at most).

    Raises ProfileError naming the entry at fault.
    """
    complaint = not_json(data)
    if complaint is not None:
        raise ProfileError(f"profile: {complaint}")
    top = Reader(data, "profile", ProfileError)
    if top.data.get("schema") != PROFILE_SCHEMA:
        if "schema" not in top.data:
            top.fail(f"schema is missing; it should be {PROFILE_SCHEMA!r}")
        top.fail(f"schema is not {PROFILE_SCHEMA!r}", top.data["schema"])
    warnings: list[str] = []
    known = {"schema", "name", "metadata", "inputs", "layers", "edges", "together"}
    _unknown(top, known, warnings)
    edges: list[tuple[str, str]] = []
    for pair in top.items("edges", []):
        match pair:
            case [str(producer), str(consumer)]:
                edges.append((producer, consumer))
            case _:
                top.fail(f"edges[{len(edges)}] is not a pair of layer ids", pair)
    graph = LayerGraph.build(
        [_layer(x, warnings) for x in top.objects("layers")],
        edges,
        inputs=[_input(x, warnings) for x in top.objects("inputs", [])],
        together=[
            Together(tuple(x.texts("layers")), x.text("reason"))
            for x in top.objects("together", [])
        ],
        name=top.text("name", ""),
        metadata=top.mapping("metadata", {}),
    )
    return graph, tuple(warnings)


def _layer(entry: Reader, warnings: list[str]) -> Layer:
    known = {
        "id", "forward_ms", "backward_ms", "output_bytes", "parameter_bytes", "saved_bytes",
        "description", "tensors",
    }  # fmt: skip
    _unknown(entry, known, warnings)
    return Layer(
        id=entry.text("id"),
        forward_ms=entry.number("forward_ms"),
        backward_ms=entry.number("backward_ms"),
        output_bytes=entry.whole("output_bytes"),
        parameter_bytes=entry.whole("parameter_bytes", 0),
        saved_bytes=None if entry.data.get("saved_bytes") is None else entry.whole("saved_bytes"),
        description=entry.text("description", ""),
        tensors=_tensors(entry),
    )


def _input(entry: Reader, warnings: list[str]) -> GraphInput:
    _unknown(entry, {"id", "output_bytes", "consumers", "description", "tensors"}, warnings)
    return GraphInput(
        id=entry.text("id"),
        output_bytes=entry.whole("output_bytes"),
        consumers=tuple(entry.texts("consumers")),
        description=entry.text("description", ""),
        tensors=_tensors(entry),
    )


def _tensors(entry: Reader) -> tuple[Mapping[str, Any], ...]:
    return tuple(x.data for x in entry.objects("tensors", []))


def _unknown(entry: Reader, known: set[str], warnings: list[str]) -> None:
    extra = sorted(set(entry.data) - known)
    if extra and len(warnings) < 20:
        warnings.append(f"{entry.where}: unknown field {shown(extra[0])} is ignored")
