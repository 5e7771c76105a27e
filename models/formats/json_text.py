"""JSON read strictly: no NaN, no duplicate keys, bounded numbers and depth, errors with lines."""

import json
import math
import re
from typing import Final, NoReturn

from pipeplan.core.errors import ProfileError
from pipeplan.models.formats.source import line_at

__all__ = ["MAX_DEPTH", "parse_json"]

MAX_DEPTH: Final = 60
"""Bound on nesting; a profile needs six levels, plus whatever its metadata holds."""

_MAX_DIGITS: Final = 40
_SCANNED: Final = 1_000_000


class _BadTokenError(Exception):
    def __init__(self, message: str, token: str) -> None:
        super().__init__(message)
        self.message = message
        self.token = token


def parse_json(text: str, path: str) -> object:
    """The document; raises ProfileError with path, line and offending text."""
    try:
        document = json.loads(
            text,
            parse_int=_whole,
            parse_float=_decimal,
            parse_constant=_constant,
            object_pairs_hook=_object,
        )
    except json.JSONDecodeError as error:
        shown = _line_text(text, error.pos)
        message = f"not valid JSON: {error.msg} (column {error.colno})"
        raise ProfileError(message, path=path, line=error.lineno, text=shown) from None
    except _BadTokenError as error:
        # The hooks are not told where they are, so the token is looked for: outside a longer word.
        found = re.search(rf"(?<![\w.+-]){re.escape(error.token)}(?![\w.])", text)
        line = None if found is None else line_at(text, found.start())
        raise ProfileError(error.message, path=path, line=line, text=error.token) from None
    except RecursionError:
        _too_deep(text, path)
    if _deeper_than(document, MAX_DEPTH):
        _too_deep(text, path)
    return document


def _whole(token: str) -> int:
    if len(token) > _MAX_DIGITS:
        raise _BadTokenError(f"a number has {len(token)} digits; at most {_MAX_DIGITS}", token)
    return int(token)


def _decimal(token: str) -> float:
    value = float(token)
    if not math.isfinite(value):
        raise _BadTokenError("a number is beyond the range of numbers", token)
    return value


def _constant(token: str) -> NoReturn:
    raise _BadTokenError(f"{token} is not a finite number", token)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _BadTokenError("a field is given twice", json.dumps(key))
            seen.add(key)
    return members


def _deeper_than(document: object, limit: int) -> bool:
    level: list[object] = [document]
    for _ in range(limit + 1):
        inner: list[object] = []
        for value in level:
            if isinstance(value, dict):
                inner.extend(value.values())
            elif isinstance(value, list):
                inner.extend(value)
        level = [value for value in inner if isinstance(value, dict | list)]
        if not level:
            return False
    return True


def _too_deep(text: str, path: str) -> NoReturn:
    depth, quoted, position = 0, False, 0
    line: int | None = None
    while position < min(len(text), _SCANNED):
        character = text[position]
        if quoted:
            position += character == "\\"
            quoted = character != '"'
        elif character == '"':
            quoted = True
        elif character in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                line = line_at(text, position)
                break
        elif character in "]}":
            depth -= 1
        position += 1
    shown = None if line is None else _line_text(text, position)
    message = f"the JSON is nested more than {MAX_DEPTH} deep"
    raise ProfileError(message, path=path, line=line, text=shown)


def _line_text(text: str, position: int) -> str:
    """The line around a character, at most 80 characters of it."""
    start = max(text.rfind("\n", 0, position) + 1, position - 40)
    end = text.find("\n", position)
    return text[start : min(len(text) if end < 0 else end, start + 80)]
