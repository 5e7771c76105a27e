"""pipeplan's own profile, `schema: "pipeplan.profile/1"`: reading it.

One JSON object with `name`, `metadata`, `inputs`, `layers`, `edges` (pairs of ids) and `together`;
fields are named as in `core.graph`. Times are milliseconds and sizes bytes, per micro-batch.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from pipeplan.core.errors import ProfileError
from pipeplan.core.graph import MAX_LAYERS, GraphInput, Layer, LayerGraph, Together
from pipeplan.models.formats.figures import BadFigureError, bytes_of, ms_of
from pipeplan.models.formats.source import line_at

__all__ = ["SCHEMA", "parse_profile"]

SCHEMA: Final = "pipeplan.profile/1"

_TOP: Final = frozenset({"schema", "name", "metadata", "inputs", "layers", "edges", "together"})
_INPUT: Final = frozenset({"id", "output_bytes", "consumers", "description", "tensors"})
_LAYER: Final = frozenset(
    {
        "id",
        "forward_ms",
        "backward_ms",
        "output_bytes",
        "parameter_bytes",
        "saved_bytes",
        "description",
        "tensors",
    }
)
_MAX_TEXT: Final = 100_000


@dataclass
class _Reader:
    """Turns JSON values into domain objects, with the place of each in its errors."""

    text: str
    path: str
    unknown: Counter[str] = field(default_factory=Counter)
    fractions: list[str] = field(default_factory=list)

    def error(self, message: str, where: str, value: object = None, name: str = "") -> ProfileError:
        """An error located at the first line that holds `"id": name`."""
        found = (
            re.search(rf'"id"\s*:\s*{re.escape(json.dumps(name, ensure_ascii=False))}', self.text)
            if name
            else None
        )
        line = None if found is None else line_at(self.text, found.start())
        shown = None if value is None else repr(value)[:1000]
        return ProfileError(f"{where}: {message}", path=self.path, line=line, text=shown)

    def objects(self, document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
        items = self.array(document.get(key, []), key)
        for position, item in enumerate(items):
            if not isinstance(item, dict):
                raise self.error("this must be an object", f"{key}[{position}]", item)
        return cast(list[Mapping[str, Any]], items)

    def array(self, value: object, where: str, name: str = "") -> list[object]:
        if not isinstance(value, list):
            raise self.error("this must be an array", where, value, name)
        return value

    def string(self, value: object, where: str, name: str = "") -> str:
        if not isinstance(value, str):
            raise self.error("this must be a string", where, value, name)
        if len(value) > _MAX_TEXT:
            raise self.error(f"at most {_MAX_TEXT} characters are read", where, value, name)
        return value

    def strings(self, value: object, where: str, name: str = "") -> tuple[str, ...]:
        return tuple(self.string(item, where, name) for item in self.array(value, where, name))

    def ms(self, item: Mapping[str, Any], key: str, where: str, name: str) -> float:
        try:
            return ms_of(self.needed(item, key, where, name))
        except BadFigureError as error:
            raise self.error(str(error), f"{where}: {key}", item[key], name) from None

    def size(self, item: Mapping[str, Any], key: str, where: str, name: str) -> int:
        try:
            return bytes_of(
                self.needed(item, key, where, name), lambda: self.fractions.append(f"{name}: {key}")
            )
        except BadFigureError as error:
            raise self.error(str(error), f"{where}: {key}", item[key], name) from None

    def needed(self, item: Mapping[str, Any], key: str, where: str, name: str = "") -> object:
        if key not in item:
            raise self.error(f"the field {key!r} is missing", where, None, name)
        return item[key]

    def tensors(
        self, item: Mapping[str, Any], where: str, name: str
    ) -> tuple[Mapping[str, Any], ...]:
        found = self.array(item.get("tensors", []), f"{where}: tensors", name)
        for tensor in found:
            if not isinstance(tensor, dict):
                raise self.error("a tensor must be an object", f"{where}: tensors", tensor, name)
        return tuple(cast(list[Mapping[str, Any]], found))

    def note_unknown(self, item: Mapping[str, Any], known: frozenset[str], where: str) -> None:
        for key in item.keys() - known:
            self.unknown[f"{where}.{key}" if where else key] += 1


def parse_profile(
    document: Mapping[str, Any], text: str, path: str, name: str
) -> tuple[LayerGraph, tuple[str, ...]]:
    """The graph of a parsed document and what seemed odd about it; `text` serves to locate errors.

    Raises ProfileError with path, and line where the layer is known.
    """
    reader = _Reader(text, path)
    reader.note_unknown(document, _TOP, "")
    layers = reader.objects(document, "layers")
    if not layers:
        raise reader.error("the profile has no layers", "layers")
    if len(layers) > MAX_LAYERS:
        raise reader.error(f"{len(layers)} layers; at most {MAX_LAYERS} are read", "layers")
    metadata = document.get("metadata", {})
    if not isinstance(metadata, dict):
        raise reader.error("this must be an object", "metadata", metadata)
    try:
        graph = LayerGraph.build(
            [_layer(reader, item, i) for i, item in enumerate(layers)],
            _edges(reader, document),
            inputs=[_input(reader, x, i) for i, x in enumerate(reader.objects(document, "inputs"))],
            together=[
                _together(reader, x, i) for i, x in enumerate(reader.objects(document, "together"))
            ],
            name=reader.string(document.get("name", name), "name"),
            metadata=metadata,
        )
    except ProfileError as error:
        if error.path is not None:
            raise
        raise ProfileError(error.message, path=path, text=error.text) from None
    warnings = [
        f"unknown field {k[:80]!a} ignored ({n} times)" for k, n in sorted(reader.unknown.items())
    ]
    if reader.fractions:
        first = reader.fractions[0]
        warnings.append(
            f"{len(reader.fractions)} sizes are not whole bytes and were rounded up: {first}, ..."
        )
    return graph, tuple(warnings)


def _id(reader: _Reader, item: Mapping[str, Any], where: str) -> str:
    return reader.string(reader.needed(item, "id", where), f"{where}: id")


def _layer(reader: _Reader, item: Mapping[str, Any], position: int) -> Layer:
    name = _id(reader, item, f"layers[{position}]")
    where = f"layer {name[:200]!a}"
    reader.note_unknown(item, _LAYER, "layers")
    saved = item.get("saved_bytes")
    try:
        return Layer(
            id=name,
            forward_ms=reader.ms(item, "forward_ms", where, name),
            backward_ms=reader.ms(item, "backward_ms", where, name),
            output_bytes=reader.size(item, "output_bytes", where, name),
            parameter_bytes=(
                reader.size(item, "parameter_bytes", where, name)
                if "parameter_bytes" in item
                else 0
            ),
            saved_bytes=None if saved is None else reader.size(item, "saved_bytes", where, name),
            description=reader.string(item.get("description", ""), f"{where}: description", name),
            tensors=reader.tensors(item, where, name),
        )
    except ProfileError as error:
        if error.path is not None:
            raise
        raise reader.error(error.message, f"layers[{position}]", error.text, name) from None


def _input(reader: _Reader, item: Mapping[str, Any], position: int) -> GraphInput:
    name = _id(reader, item, f"inputs[{position}]")
    where = f"input {name[:200]!a}"
    reader.note_unknown(item, _INPUT, "inputs")
    return GraphInput(
        id=name,
        output_bytes=reader.size(item, "output_bytes", where, name),
        consumers=reader.strings(item.get("consumers", []), f"{where}: consumers", name),
        description=reader.string(item.get("description", ""), f"{where}: description", name),
        tensors=reader.tensors(item, where, name),
    )


def _together(reader: _Reader, item: Mapping[str, Any], position: int) -> Together:
    where = f"together[{position}]"
    reader.note_unknown(item, frozenset({"layers", "reason"}), "together")
    return Together(
        layers=reader.strings(reader.needed(item, "layers", where), f"{where}: layers"),
        reason=reader.string(item.get("reason", ""), f"{where}: reason"),
    )


def _edges(reader: _Reader, document: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for position, item in enumerate(reader.array(document.get("edges", []), "edges")):
        ends = reader.strings(item, f"edges[{position}]")
        if len(ends) != 2:
            raise reader.error("an edge is a pair of ids", f"edges[{position}]", item)
        pairs.append((ends[0], ends[1]))
    return pairs
