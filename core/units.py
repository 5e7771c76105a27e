"""Sizes, rates and durations as people write them: 16GB, 4GiB/s, 25Gb/s, 60s."""

import math
import re
from typing import Final

from pipeplan.core.errors import PipeplanError

__all__ = [
    "format_bytes",
    "format_ms",
    "format_rate",
    "parse_bytes",
    "parse_duration_s",
    "parse_rate",
]

_DECIMAL: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_BINARY: Final = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "pi": 2**50}
_NUMBER: Final = r"\s*(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)\s*"
_SIZE: Final = re.compile(_NUMBER + r"(?P<prefix>[kKmMgGtTpP]i?)?(?P<unit>[bB])?\s*")
_RATE: Final = re.compile(
    _NUMBER + r"(?:(?P<prefix>[kKmMgGtTpP]i?)?(?P<unit>[bB])(?P<per>/s|ps))?\s*"
)
_DURATION: Final = re.compile(_NUMBER + r"(?P<unit>ns|us|ms|s|min|m|h)?\s*")
# (multiply by, divide by): 5us is 5 / 10**6, which 5 * 1e-6 is not quite.
_SECONDS: Final = {
    None: (1, 1),
    "ns": (1, 10**9),
    "us": (1, 10**6),
    "ms": (1, 10**3),
    "s": (1, 1),
    "m": (60, 1),
    "min": (60, 1),
    "h": (3600, 1),
}


def _scaled(match: re.Match[str], what: str, text: str) -> float:
    prefix = (match["prefix"] or "").lower()
    factor = _BINARY.get(prefix) or _DECIMAL[prefix]
    # A lower-case b is bits, in sizes as in rates: 25Gb/s is a network's way to say 3.125 GB/s.
    value = float(match["number"]) * factor / (8 if match["unit"] == "b" else 1)
    if not math.isfinite(value):
        raise PipeplanError(f"{what} {text!r} is not finite")
    return value


def parse_bytes(text: str) -> int:
    """Bytes of a size such as `16GB`, `16GiB` or a bare number of bytes.

    Raises PipeplanError where the text is no size, is not a whole number of bytes below 2**63 or
    is negative.
    """
    match = _SIZE.fullmatch(text)
    if match is None or (match["unit"] == "b" and match["prefix"] is None):
        raise PipeplanError(f"not a size: {text[:80]!r} (write 16GB, 16GiB or bare bytes)")
    value = _scaled(match, "size", text[:80])
    if value >= 2**63:
        raise PipeplanError(f"size {text[:80]!r} is beyond 2**63 bytes")
    return math.floor(value)


def parse_rate(text: str) -> float:
    """Bytes per second of a rate such as `4GiB/s`, `25Gb/s`, `25Gbps` or bare bytes per second.

    Raises PipeplanError where the text is no rate or not finite.
    """
    match = _RATE.fullmatch(text)
    if match is None:
        raise PipeplanError(
            f"not a bandwidth: {text[:80]!r} (write 4GiB/s, 10GB/s, 25Gb/s or bare bytes/s)"
        )
    if match["unit"] is None:
        return float(match["number"])
    return _scaled(match, "bandwidth", text[:80])


def parse_duration_s(text: str) -> float:
    """Seconds of a duration such as `60s`, `500ms`, `5us`, `2m` or a bare number of seconds.

    Raises PipeplanError where the text is no duration.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise PipeplanError(f"not a duration: {text[:80]!r} (write 60s, 500ms, 2m or bare seconds)")
    times, parts = _SECONDS[match["unit"]]
    value = float(match["number"]) * times / parts
    if not math.isfinite(value):
        raise PipeplanError(f"duration {text[:80]!r} is not finite")
    return value


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
