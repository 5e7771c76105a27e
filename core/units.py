"""Sizes, rates and durations as people write them: 16GB, 4GiB/s, 25Gb/s, 60s."""

import re
from fractions import Fraction
from typing import Final

from pipeplan.core.errors import PipeplanError, shown

__all__ = [
    "format_bytes",
    "format_ms",
    "format_rate",
    "parse_bytes",
    "parse_duration_s",
    "parse_rate",
    "plural",
]

_DECIMAL: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_BINARY: Final = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "pi": 2**50}
# Digits and exponents are bounded, since values are computed exactly.
_NUMBER: Final = (
    r"\s*(?P<number>(?:[0-9]{1,60}(?:\.[0-9]{0,60})?|\.[0-9]{1,60})(?:[eE][+-]?[0-9]{1,3})?)\s*"
)
_SIZE: Final = re.compile(_NUMBER + r"(?P<prefix>[kKmMgGtTpP]i?)?(?P<unit>[bB])?\s*")
_RATE: Final = re.compile(
    _NUMBER + r"(?:(?P<prefix>[kKmMgGtTpP]i?)?(?P<unit>[bB])(?P<per>/s|ps))?\s*"
)
_DURATION: Final = re.compile(_NUMBER + r"(?P<unit>us|ms|s|min|m|h)?\s*")
_SECONDS: Final = {
    None: Fraction(1),
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "min": Fraction(60),
    "h": Fraction(3600),
}


def _scaled(match: re.Match[str]) -> Fraction:
    prefix = (match["prefix"] or "").lower()
    factor = _BINARY.get(prefix) or _DECIMAL[prefix]
    # A lower-case b is bits, in sizes as in rates: 25Gb/s is a network's way to say 3.125 GB/s.
    return Fraction(match["number"]) * factor / (8 if match["unit"] == "b" else 1)


def _finite(value: Fraction, what: str, text: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise PipeplanError(f"{what} {shown(text)} is out of range") from None


def parse_bytes(text: str) -> int:
    """Bytes of a size such as `16GB`, `16GiB` or a bare number of bytes.

    The value is exact; a fraction of a byte, which 1.1GiB has, is cut off. Raises PipeplanError
    where the text is no size, is negative, or is 2**63 bytes or more.
    """
    match = _SIZE.fullmatch(text)
    if match is None or (match["unit"] == "b" and match["prefix"] is None):
        raise PipeplanError(f"not a size: {shown(text)} (write 16GB, 16GiB or bare bytes)")
    value = _scaled(match)
    if value >= 2**63:
        raise PipeplanError(f"size {shown(text)} is beyond 2**63 bytes")
    return int(value)


def parse_rate(text: str) -> float:
    """Bytes per second of a rate such as `4GiB/s`, `25Gb/s`, `25Gbps` or bare bytes per second.

    Raises PipeplanError where the text is no rate or not finite.
    """
    match = _RATE.fullmatch(text)
    if match is None:
        raise PipeplanError(
            f"not a bandwidth: {shown(text)} (write 4GiB/s, 10GB/s, 25Gb/s or bare bytes per "
            "second)"
        )
    return _finite(_scaled(match), "bandwidth", text)


def parse_duration_s(text: str) -> float:
    """Seconds of a duration such as `60s`, `500ms`, `5us`, `2m` or a bare number of seconds.

    Raises PipeplanError where the text is no duration or not finite.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise PipeplanError(f"not a duration: {shown(text)} (write 60s, 500ms, 2m or bare seconds)")
    return _finite(Fraction(match["number"]) * _SECONDS[match["unit"]], "duration", text)


def format_bytes(count: float) -> str:
    """A size for people, in decimal units: 553.4 MB."""
    for unit, factor in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= factor:
            return f"{count / factor:.4g} {unit}"
    return f"{count:.4g} B"


def format_rate(bytes_per_s: float) -> str:
    """A bandwidth for people: 4.295 GB/s."""
    return f"{format_bytes(bytes_per_s)}/s"


def format_ms(milliseconds: float) -> str:
    """A time for people, with enough digits to compare plans: 44.668 ms."""
    return f"{milliseconds:.6g} ms" if abs(milliseconds) < 1 else f"{milliseconds:.3f} ms"


def plural(count: int, word: str, many: str | None = None) -> str:
    """A count of things: 1 stage, 2 stages, 2 micro-batches; `many` where it is neither."""
    if count == 1:
        return f"1 {word}"
    return f"{count} {many or word + ('es' if word.endswith('ch') else 's')}"
