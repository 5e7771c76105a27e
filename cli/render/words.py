"""Figures and lists as people read them."""

from collections.abc import Iterable, Sequence

__all__ = ["joined", "milliseconds", "percent", "ranges", "times"]


def ranges(numbers: Iterable[int]) -> list[str]:
    """Ascending numbers as ranges, each one piece that must not be broken: 0-6, 8-14."""
    out: list[list[int]] = []
    for number in numbers:
        if out and number == out[-1][1] + 1:
            out[-1][1] = number
        else:
            out.append([number, number])
    return [str(a) if a == b else f"{a}-{b}" for a, b in out]


def milliseconds(value: float) -> str:
    """A time without its unit, with digits enough to compare plans."""
    if value == 0:
        return "0"
    if abs(value) < 0.01:
        return f"{value:.2g}"
    return f"{value:.3f}" if abs(value) < 10_000 else f"{value:.0f}"


def percent(part: float) -> str:
    """A share: 12.5 %; nothing but 0 is shown as 0 %, nothing but 1 as 100 %."""
    if part in (0, 1):
        return f"{part * 100:.0f} %"
    if abs(part) < 5e-6:
        return "under 0.001 %"
    digits = 3 if abs(part) < 0.0005 or 0.9995 < abs(part) < 1 else 1
    return f"{part * 100:.{digits}f} %"


def times(baseline_ms: float, objective_ms: float) -> str:
    """A speed-up: 15.39 x; without one where nothing takes any time."""
    return f"{baseline_ms / objective_ms:.2f} x" if objective_ms else "any number of times"


def joined(pieces: Sequence[str]) -> str:
    """a, b and c."""
    return pieces[0] if len(pieces) == 1 else f"{', '.join(pieces[:-1])} and {pieces[-1]}"
