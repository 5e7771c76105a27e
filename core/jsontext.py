"""JSON text in and out: bounded and strict on the way in, canonical on the way out."""

import json
import math
import re
from pathlib import Path
from typing import Any, Final, NoReturn

from pipeplan.core.errors import PipeplanError, SourceError, shown
from pipeplan.core.textfile import MAX_FILE_BYTES, read_text, write_text

__all__ = [
    "MAX_DEPTH",
    "MAX_FILE_BYTES",
    "dump_json",
    "not_json",
    "parse_json",
    "read_text",
    "write_text",
]

MAX_DEPTH: Final = 100
"""Bound on nesting: a plan needs a dozen levels, plus what a profile's metadata hold."""

_MAX_DIGITS: Final = 400


class _BadTokenError(Exception):
    """A token that JSON or a cost may not hold; the decoder's hooks are not told where it is."""

    def __init__(self, message: str, token: str) -> None:
        super().__init__(message)
        self.message = message
        self.token = token


def parse_json(text: str, error: type[SourceError], path: str | Path | None = None) -> Any:
    """Strict JSON: finite numbers, no key twice in an object, at most MAX_DEPTH levels.

    Raises `error` with the line and the offending text.
    """
    try:
        value = json.loads(
            text,
            parse_int=_whole,
            parse_float=_decimal,
            parse_constant=_constant,
            object_pairs_hook=_members,
        )
    except json.JSONDecodeError as fault:
        if not text.strip():
            raise error("the file is empty", path=path) from None
        if fault.pos >= len(text.rstrip()):
            message = f"not JSON: it ends in the middle ({fault.msg})"
            raise error(message, path=path, line=fault.lineno) from None
        raise error(
            f"not JSON: {fault.msg}", path=path, line=fault.lineno, text=_around(text, fault.pos)
        ) from None
    except _BadTokenError as fault:
        # Looked for outside of longer words: the first such token is the one that was refused.
        found = re.search(rf"(?<![\w.+-]){re.escape(fault.token)}(?![\w.])", text)
        line = None if found is None else text.count("\n", 0, found.start()) + 1
        raise error(fault.message, path=path, line=line, text=fault.token) from None
    except RecursionError:
        raise error(f"nested more than {MAX_DEPTH} levels deep", path=path) from None
    complaint = not_json(value)
    if complaint is not None:
        raise error(complaint, path=path)
    return value


def _whole(token: str) -> int:
    if len(token) > _MAX_DIGITS:
        raise _BadTokenError(f"a number has {len(token)} digits; at most {_MAX_DIGITS}", token)
    return int(token)


def _decimal(token: str) -> float:
    value = float(token)
    if not math.isfinite(value):
        raise _BadTokenError("a number is out of range", token)
    return value


def _constant(token: str) -> NoReturn:
    raise _BadTokenError(f"{token} is not a finite number", token)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _BadTokenError("a key appears twice in one object", json.dumps(key))
            seen.add(key)
    return out


def _around(text: str, position: int) -> str:
    """The line around a character, at most 80 characters of it."""
    start = max(text.rfind("\n", 0, position) + 1, position - 40)
    end = text.find("\n", position)
    return text[start : min(len(text) if end < 0 else end, start + 80)].strip()


def not_json(value: Any) -> str | None:
    """Why a value is no JSON document that can be written and read again; None if it is one.

    Looks at dicts with text keys, lists, text, finite numbers, booleans and None, at most MAX_DEPTH
    levels deep, without recursion.
    """
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner += item.values()
                inner += item
                if not all(isinstance(key, str) for key in item):
                    return "the key of an object is not text"
            elif isinstance(item, list):
                inner += item
            elif isinstance(item, str):
                if not item.isascii() and any("\ud800" <= c <= "\udfff" for c in item):
                    return f"text holds half a character: {shown(item)}"
            elif isinstance(item, float):
                if not math.isfinite(item):
                    return f"{item} is not a finite number"
            elif item is not None and not isinstance(item, int):
                return f"a {type(item).__name__} is no JSON value"
        if not inner:
            return None
        level = inner
    return f"nested more than {MAX_DEPTH} levels deep"


def dump_json(value: Any) -> str:
    """Canonical text: same value, same bytes.

    Raises PipeplanError where the value holds what JSON cannot.
    """
    try:
        return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError, RecursionError) as fault:
        raise PipeplanError(f"cannot be written as JSON: {fault}") from None
