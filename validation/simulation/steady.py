"""The period of a run: when completions repeat themselves, and how far apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Steady", "steady"]

_EXACT: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Steady:
    """Time per completion between two completions `first` and `last` (indices into the series).

    `exact` where the series repeats itself to rounding, so that the period is that of an endless
    run; otherwise it is an average over the later half.
    """

    period_ms: float
    first: int
    last: int
    exact: bool


def steady(
    completions_ms: NDArray[np.float64],
    cycle: int,
    alongside_ms: Sequence[NDArray[np.float64]] = (),
) -> Steady | None:
    """The period of an ascending series of completion times, or None where it is too short.

    A deterministic event system ends in a regime in which the times of `n * cycle` completions
    later are the same times plus a constant (the cyclicity of max-plus systems). The shortest such
    repetition that holds for the last third of the series is taken. Without one, the average over
    the later half, in whole cycles where it holds one.

    `alongside_ms` are series of events that come as often as completions: they must repeat with the
    same constant. Completions that repeat while all-reduces fall behind will not do so for ever.
    """
    count = len(completions_ms)
    last = count - 1
    if count < 4:
        return None
    slack_ms = _EXACT * max(float(completions_ms[-1]), 1e-300)
    for length in range(cycle, (count - 1) // 2 + 1, cycle):
        gap_ms = float(completions_ms[last] - completions_ms[last - length])
        if all(_repeats(x, length, gap_ms, slack_ms) for x in (completions_ms, *alongside_ms)):
            return Steady(gap_ms / length, last - length, last, True)
    span = last - count // 2
    if span >= cycle:
        span -= span % cycle
    period = float(completions_ms[last] - completions_ms[last - span]) / span
    return Steady(period, last - span, last, False)


def _repeats(times_ms: NDArray[np.float64], length: int, gap_ms: float, slack_ms: float) -> bool:
    """Whether the last third comes `gap_ms` after what was `length` events before."""
    count = len(times_ms)
    shown = min(max(length + 1, count // 3), count - length)
    if shown < 1:
        return False
    gaps = times_ms[count - shown :] - times_ms[count - shown - length : count - length]
    return float(gaps.max() - gaps.min()) <= slack_ms and abs(float(gaps[-1]) - gap_ms) <= slack_ms
