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
    same constant, and the slowest average counts. Completions that come while all-reduces fall
    behind will not do so for ever.
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
    # What falls behind sets the pace in the end, when it may fall behind no further.
    series = [completions_ms, *(x for x in alongside_ms if len(x) > 3)]
    return Steady(
        max(_average_ms(x, cycle) for x in series), last - _half(count, cycle), last, False
    )


def _half(count: int, cycle: int) -> int:
    """Events of the later half, in whole cycles where it holds one."""
    span = count - 1 - count // 2
    return span - span % cycle if span >= cycle else span


def _average_ms(times_ms: NDArray[np.float64], cycle: int) -> float:
    span = _half(len(times_ms), cycle)
    return float(times_ms[-1] - times_ms[-1 - span]) / span


def _repeats(times_ms: NDArray[np.float64], length: int, gap_ms: float, slack_ms: float) -> bool:
    """Whether the last third comes `gap_ms` after what was `length` events before."""
    count = len(times_ms)
    shown = min(max(length + 1, count // 3), count - length)
    if shown < 1:
        return False
    gaps = times_ms[count - shown :] - times_ms[count - shown - length : count - length]
    return float(gaps.max() - gaps.min()) <= slack_ms and abs(float(gaps[-1]) - gap_ms) <= slack_ms
