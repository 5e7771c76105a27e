"""Layer graphs as versioned JSON, `pipeplan.profile/1`: the same in a file and inside a plan."""

from collections.abc import Mapping
from typing import Any, Final

from pipeplan.core.errors import ProfileError
from pipeplan.core.graph import GraphInput, Layer, LayerGraph, Together

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
    """A validated graph, and a warning for every field that is not understood.

    Raises ProfileError naming the entry at fault.
    """
    top = _object(data, "the profile")
    if top.get("schema") != PROFILE_SCHEMA:
        raise ProfileError(
            f"schema is {top.get('schema')!r}; this version reads {PROFILE_SCHEMA!r}"
        )
    warnings: list[str] = []
    known = {"schema", "name", "metadata", "inputs", "layers", "edges", "together"}
    _unknown(top, known, "the profile", warnings)
    layers = [_layer(x, i, warnings) for i, x in enumerate(_list(top, "layers", "the profile"))]
    inputs = [
        _input(x, i, warnings)
        for i, x in enumerate(_list(top, "inputs", "the profile", optional=True))
    ]
    edges: list[tuple[str, str]] = []
    for i, pair in enumerate(_list(top, "edges", "the profile", optional=True)):
        if (
            not isinstance(pair, list)
            or len(pair) != 2
            or not all(isinstance(x, str) for x in pair)
        ):
            raise ProfileError(f"edges[{i}] is not a pair of layer ids", text=repr(pair))
        edges.append((pair[0], pair[1]))
    together = []
    for i, group in enumerate(_list(top, "together", "the profile", optional=True)):
        entry = _object(group, f"together[{i}]")
        together.append(
            Together(
                _ids(entry, "layers", f"together[{i}]"), _text(entry, "reason", f"together[{i}]")
            )
        )
    graph = LayerGraph.build(
        layers,
        edges,
        inputs=inputs,
        together=together,
        name=_text(top, "name", "the profile", default=""),
        metadata=_object(top.get("metadata", {}), "metadata"),
    )
    return graph, tuple(warnings)


def _layer(data: Any, position: int, warnings: list[str]) -> Layer:
    where = f"layers[{position}]"
    entry = _object(data, where)
    known = {
        "id", "forward_ms", "backward_ms", "output_bytes", "parameter_bytes", "saved_bytes",
        "description", "tensors",
    }  # fmt: skip
    _unknown(entry, known, where, warnings)
    saved = entry.get("saved_bytes")
    return Layer(
        id=_text(entry, "id", where),
        forward_ms=_ms(entry, "forward_ms", where),
        backward_ms=_ms(entry, "backward_ms", where),
        output_bytes=_bytes(entry, "output_bytes", where),
        parameter_bytes=_bytes(entry, "parameter_bytes", where, default=0),
        saved_bytes=None if saved is None else _bytes(entry, "saved_bytes", where),
        description=_text(entry, "description", where, default=""),
        tensors=_tensors(entry, where),
    )


def _input(data: Any, position: int, warnings: list[str]) -> GraphInput:
    where = f"inputs[{position}]"
    entry = _object(data, where)
    _unknown(entry, {"id", "output_bytes", "consumers", "description", "tensors"}, where, warnings)
    return GraphInput(
        id=_text(entry, "id", where),
        output_bytes=_bytes(entry, "output_bytes", where),
        consumers=_ids(entry, "consumers", where),
        description=_text(entry, "description", where, default=""),
        tensors=_tensors(entry, where),
    )


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ProfileError(f"{where} is not an object", text=repr(value))
    return value


def _list(entry: Mapping[str, Any], key: str, where: str, *, optional: bool = False) -> list[Any]:
    value = entry.get(key, [] if optional else None)
    if not isinstance(value, list):
        raise ProfileError(f"{where}: {key} is not a list", text=repr(value))
    return value


def _ids(entry: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    items = _list(entry, key, where)
    if not all(isinstance(x, str) for x in items):
        raise ProfileError(f"{where}: {key} is not a list of layer ids", text=repr(items))
    return tuple(items)


def _tensors(entry: Mapping[str, Any], where: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(
        _object(x, f"{where}: tensors") for x in _list(entry, "tensors", where, optional=True)
    )


def _text(entry: Mapping[str, Any], key: str, where: str, *, default: str | None = None) -> str:
    value = entry.get(key, default)
    if not isinstance(value, str):
        raise ProfileError(f"{where}: {key} is not text", text=repr(value))
    return value


def _number(entry: Mapping[str, Any], key: str, where: str, default: float | None) -> float | int:
    value = entry.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProfileError(f"{where}: {key} is not a number", text=repr(value))
    return value


def _ms(entry: Mapping[str, Any], key: str, where: str) -> float:
    value = _number(entry, key, where, None)
    try:
        return float(value)
    except OverflowError:
        raise ProfileError(f"{where}: {key} is too large", text=repr(value)) from None


def _bytes(entry: Mapping[str, Any], key: str, where: str, *, default: int | None = None) -> int:
    value = _number(entry, key, where, default)
    if isinstance(value, float):
        if not value.is_integer():
            raise ProfileError(f"{where}: {key} is not a whole number of bytes", text=repr(value))
        value = int(value)
    return value


def _unknown(entry: Mapping[str, Any], known: set[str], where: str, warnings: list[str]) -> None:
    extra = sorted(set(entry) - known)
    if extra and len(warnings) < 20:
        warnings.append(f"{where}: unknown field {extra[0][:80]!r} is ignored")
