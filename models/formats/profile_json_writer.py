"""pipeplan's own profile: writing it, one layer a line, so that two versions can be compared."""

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeplan.core.errors import ProfileError
from pipeplan.core.graph import GraphInput, Layer, LayerGraph
from pipeplan.models.formats.profile_json import SCHEMA

__all__ = ["dump_profile", "write_profile", "write_text"]


def dump_profile(graph: LayerGraph) -> str:
    """The graph as profile JSON; reading it back gives an equal graph.

    `name` and `metadata` come first, on a line each, so that a list of profiles needs no more.
    Raises ProfileError where the metadata are not JSON.
    """
    try:
        members = [
            f'"schema": {_json(SCHEMA)}',
            f'"name": {_json(graph.name)}',
            f'"metadata": {_json(graph.metadata)}',
            f'"inputs": {_lines(_input(item) for item in graph.inputs)}',
            f'"layers": {_lines(_layer(layer) for layer in graph.layers)}',
            f'"edges": {_lines(_edges(graph))}',
            f'"together": {_lines(asdict(group) for group in graph.together)}',
        ]
    except (TypeError, ValueError, RecursionError) as error:
        raise ProfileError(f"the graph's metadata are not JSON: {error}") from None
    return "{\n" + ",\n".join(members) + "\n}\n"


def write_profile(graph: LayerGraph, path: str | Path, *, force: bool = False) -> None:
    """Write profile JSON atomically; raises ProfileError if the file exists, unless `force`."""
    write_text(dump_profile(graph), Path(path), force=force)


def write_text(text: str, path: Path, *, force: bool) -> None:
    """Write a whole file or nothing; raises ProfileError where it exists or cannot be written."""
    if not force and os.path.lexists(path):
        raise ProfileError("the file exists; use --force to overwrite it", path=path)
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name[:50]}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(temporary, 0o666 & ~mask)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise ProfileError(f"the file cannot be written ({error.strerror})", path=path) from None


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _lines(items: Iterable[object]) -> str:
    rows = ",\n".join(_json(item) for item in items)
    return f"[\n{rows}\n]" if rows else "[]"


def _layer(layer: Layer) -> Mapping[str, Any]:
    members: dict[str, Any] = {
        "id": layer.id,
        "description": layer.description,
        "forward_ms": layer.forward_ms,
        "backward_ms": layer.backward_ms,
        "output_bytes": layer.output_bytes,
        "parameter_bytes": layer.parameter_bytes,
        "saved_bytes": layer.saved_bytes,
        "tensors": layer.tensors,
    }
    return {key: value for key, value in members.items() if value is not None}


def _input(item: GraphInput) -> Mapping[str, Any]:
    return {
        "id": item.id,
        "description": item.description,
        "output_bytes": item.output_bytes,
        "consumers": item.consumers,
        "tensors": item.tensors,
    }


def _edges(graph: LayerGraph) -> Iterable[tuple[str, str]]:
    return ((graph.layers[a].id, graph.layers[b].id) for a, b in graph.edges)
