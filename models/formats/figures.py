"""Numbers as profiles spell them: whole or decimal, finite, within the domain's bounds."""

import math
import re
from collections.abc import Callable
from typing import Final

__all__ = ["BadFigureError", "bytes_of", "ms_of", "parse_decimal"]

_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?")
_MAX_TEXT: Final = 64
_MAX_BYTES: Final = 2**60
_MAX_MS: Final = 1e15


class BadFigureError(ValueError):
    """A figure that cannot stand; the text says why, and the reader adds where."""


def parse_decimal(text: str) -> int | float:
    """A number written in decimal; whole ones come back exactly, as int.

    Raises BadFigureError for NaN, infinities, whatever else is not a number, and numbers beyond the
    range of floats.
    """
    if len(text) > _MAX_TEXT:
        raise BadFigureError(f"a number has {len(text)} characters; at most {_MAX_TEXT} are read")
    if not _DECIMAL.fullmatch(text):
        if text.lstrip("+-").lower() in ("nan", "inf", "infinity"):
            raise BadFigureError(f"{text} is not a finite number")
        raise BadFigureError("this is not a number" if text else "the number is missing")
    whole, _, fraction = text.partition(".")
    if whole.lstrip("+-").isdigit() and not fraction.strip("0"):
        return int(whole)
    value = float(text)
    if not math.isfinite(value):
        raise BadFigureError(f"{text} is beyond the range of numbers")
    return value


def ms_of(value: object) -> float:
    """A time in milliseconds, 0 to 1e15; raises BadFigureError."""
    number = _number(value)
    if not math.isfinite(number) or number < 0 or number > _MAX_MS:
        raise BadFigureError(f"a time is {_shown(number)} ms; it must be from 0 to {_MAX_MS:g}")
    return float(number)


def bytes_of(value: object, on_fraction: Callable[[], None]) -> int:
    """A size in bytes, 0 to 2**60; fractions are rounded up after calling `on_fraction`.

    Raises BadFigureError.
    """
    number = _number(value)
    if not math.isfinite(number) or number < 0 or number > _MAX_BYTES:
        raise BadFigureError(f"a size is {_shown(number)} bytes; it must be from 0 to 2**60")
    if isinstance(number, float) and not number.is_integer():
        on_fraction()
    return math.ceil(number)


def _number(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadFigureError("this is not a number")
    return value


def _shown(number: int | float) -> str:
    text = repr(number)
    return text if len(text) <= 40 else f"{text[:20]}... ({len(text)} digits)"
