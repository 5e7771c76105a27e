"""The lines of PipeDream's graph.txt and its dialects, each read for itself.

    node1 -- Input -- forward_compute_time=0.0, backward_compute_time=0.0, activation_size=4.0, ...
    node2 -- LSTM(8, 8) -- forward_compute_time=1.5, ..., activation_size=[4.0; 8.0] -- stage_id=0
    <TAB or spaces>node1 -- node2

Times are milliseconds and sizes bytes, per micro-batch; the batch size itself is not recorded.
Lines stand in any order. Every step is linear in the length of the text.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from pipeplan.core.errors import ProfileError
from pipeplan.core.graph import MAX_LAYERS, Layer
from pipeplan.models.formats.figures import BadFigureError, bytes_of, ms_of, parse_decimal

__all__ = ["MAX_LINE", "ParsedLines", "looks_like_graph_txt", "parse_lines"]

MAX_LINE: Final = 100_000
"""Bound on the characters of one line; the longest text of a published profile has some 500."""

_MAX_EDGES: Final = 20 * MAX_LAYERS
_BREAK: Final = re.compile(r"[ \t]--(?:[ \t]|$)")
_FIELD: Final = re.compile(r"[ \t]*(?P<key>[A-Za-z_]\w*)[ \t]*=(?P<value>\[[^\[\]]*\]|[^,\[\]]*)")
_NEWLINE: Final = re.compile(r"\r\n|\r|\n")
_TIMES: Final = ("forward_compute_time", "backward_compute_time")
_NEEDED: Final = (*_TIMES, "activation_size", "parameter_size")


@dataclass
class ParsedLines:
    """What the lines hold, before anything is concluded from it.

    Inputs are among the layers. `line_of` and `edges` give the line of each; `fractions` are lines
    with sizes that were rounded up, `repeated` those of edges given before.
    """

    path: str
    layers: dict[str, Layer] = field(default_factory=dict)
    line_of: dict[str, int] = field(default_factory=dict)
    edges: dict[tuple[str, str], int] = field(default_factory=dict)
    stage_of: dict[str, int] = field(default_factory=dict)
    unknown: Counter[str] = field(default_factory=Counter)
    fractions: list[int] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)

    def error(self, message: str, line: int, text: str) -> ProfileError:
        """An error at a line of this file."""
        return ProfileError(message, path=self.path, line=line, text=text)


def looks_like_graph_txt(text: str) -> bool:
    """Whether some line has a layer's fields or an edge's dashes."""
    head = text[:MAX_LINE]
    return any(key in text for key in _NEEDED) or any(
        _BREAK.search(line) for line in _NEWLINE.split(head)
    )


def parse_lines(text: str, path: str) -> ParsedLines:
    """Layers, edges and stage ids of a text; raises ProfileError with line and offending text."""
    parsed = ParsedLines(path)
    for number, line in enumerate(_NEWLINE.split(text), start=1):
        if line and not line.isspace():
            _read_line(parsed, line, number)
    _check_edges(parsed)
    return parsed


def _read_line(parsed: ParsedLines, line: str, number: int) -> None:
    if len(line) > MAX_LINE:
        message = f"the line has {len(line)} characters; at most {MAX_LINE} are read"
        raise parsed.error(message, number, line)
    parts = [part.strip() for part in _BREAK.split(line)]
    if len(parts) > 2 and any(map(_has_figures, parts[2:])):
        _read_layer(parsed, parts, line, number)
        return
    if len(parts) == 2 and any(map(_has_figures, parts)):
        raise parsed.error("a layer needs: id -- description -- fields", number, line)
    indented = line[0] in " \t"
    if len(parts) < 2 or not all(parts[:2]) or (len(parts) > 2 and not indented):
        expected = "expected `id -- description -- forward_compute_time=...` or `<TAB>id -- id`"
        raise parsed.error(expected, number, line)
    for extra in parts[2:]:
        parsed.unknown[extra.partition("=")[0].strip()] += 1
    edge = (parts[0], parts[1])
    if edge in parsed.edges:
        parsed.repeated.append(number)
    elif len(parsed.edges) >= _MAX_EDGES:
        raise parsed.error(f"more than {_MAX_EDGES} edges", number, line)
    parsed.edges.setdefault(edge, number)


def _has_figures(part: str) -> bool:
    return any(key in part for key in _NEEDED)


def _read_layer(parsed: ParsedLines, parts: list[str], line: str, number: int) -> None:
    layer_id = parts[0]
    if layer_id in parsed.layers:
        message = f"layer {layer_id} appears twice (first on line {parsed.line_of[layer_id]})"
        raise parsed.error(message, number, line)
    if len(parsed.layers) >= MAX_LAYERS:
        raise parsed.error(f"more than {MAX_LAYERS} layers", number, line)
    # A description may hold " -- " itself: the figures are the last part that names one.
    at = max(i for i, part in enumerate(parts) if i >= 2 and _has_figures(part))
    values = _fields(parsed, parts[at], number)
    missing = [key for key in _NEEDED if key not in values]
    if missing:
        raise parsed.error(f"layer {layer_id} has no {' and no '.join(missing)}", number, line)
    forward, backward = (_ms(parsed, key, values[key], number) for key in _TIMES)
    outputs = _sizes(parsed, values["activation_size"], number)
    try:
        layer = Layer(
            id=layer_id,
            forward_ms=forward,
            backward_ms=backward,
            output_bytes=sum(outputs),
            parameter_bytes=sum(_sizes(parsed, values["parameter_size"], number)),
            description=" -- ".join(parts[1:at]),
            tensors=tuple({"bytes": size} for size in outputs),
        )
    except ProfileError as error:
        raise parsed.error(error.message, number, line) from None
    for key in values.keys() - set(_NEEDED):
        parsed.unknown[key] += 1
    for extra in parts[at + 1 :]:
        _extra(parsed, layer_id, extra, number)
    parsed.layers[layer_id] = layer
    parsed.line_of[layer_id] = number


def _fields(parsed: ParsedLines, text: str, number: int) -> dict[str, str]:
    values: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _FIELD.match(text, position)
        if match is None or (match.end() < len(text) and text[match.end()] not in ", \t"):
            raise parsed.error("expected `key=value, key=value`", number, text[position:])
        if match["key"] in values:
            raise parsed.error(f"{match['key']} is given twice", number, text)
        values[match["key"]] = match["value"].strip()
        position = match.end()
        while position < len(text) and text[position] in " \t":
            position += 1
        if position < len(text) and text[position] == ",":
            position += 1
    return values


def _extra(parsed: ParsedLines, layer_id: str, text: str, number: int) -> None:
    key, _, value = (part.strip() for part in text.partition("="))
    if key != "stage_id":
        parsed.unknown[key] += 1
        return
    # PipeDream itself never numbers a stage beyond the devices of a cluster.
    if not re.fullmatch(r"[0-9]{1,9}", value, re.ASCII):
        raise parsed.error("a stage_id must be a whole number", number, text)
    parsed.stage_of[layer_id] = int(value)


def _ms(parsed: ParsedLines, key: str, text: str, number: int) -> float:
    try:
        return ms_of(parse_decimal(text))
    except BadFigureError as error:
        raise parsed.error(f"{key}: {error}", number, text) from None


def _sizes(parsed: ParsedLines, text: str, number: int) -> list[int]:
    items = re.split("[;,]", text[1:-1]) if text.startswith("[") else [text]
    if text.startswith("[") and not text[1:-1].strip():
        return []

    def on_fraction() -> None:
        parsed.fractions.append(number)

    try:
        return [bytes_of(parse_decimal(item.strip()), on_fraction) for item in items]
    except BadFigureError as error:
        raise parsed.error(str(error), number, text) from None


def _check_edges(parsed: ParsedLines) -> None:
    if not parsed.layers:
        raise ProfileError("the file holds no layer", path=parsed.path)
    for (producer, consumer), number in parsed.edges.items():
        shown = f"{producer} -- {consumer}"
        for end in (producer, consumer):
            if end not in parsed.layers:
                raise parsed.error(f"an edge names {end[:200]!a}, which is no layer", number, shown)
        if producer == consumer:
            raise parsed.error(f"layer {producer} reads its own output", number, shown)
