"""The period of a run: when completions repeat themselves, and how far apart."""

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


def steady(completions_ms: NDArray[np.float64], cycle: int) -> Steady | None:
    """The period of an ascending series of completion times, or None where it is too short.

    A deterministic event system ends in a regime in which the times of `n * cycle` completions
    later are the same times plus a constant (the cyclicity of max-plus systems). The shortest such
    repetition that holds for the last third of the series is taken. Without one, the average over
    the later half, in whole cycles where it holds one.
    """
    count = len(completions_ms)
    last = count - 1
    if count < 4:
        return None
    scale = max(float(completions_ms[-1]), 1e-300)
    for length in range(cycle, (count - 1) // 2 + 1, cycle):
        shown = max(length + 1, count // 3)
        later = completions_ms[count - shown :]
        gaps = later - completions_ms[count - shown - length : count - length]
        if float(gaps.max() - gaps.min()) <= _EXACT * scale:
            return Steady(float(gaps[-1]) / length, last - length, last, True)
    span = last - count // 2
    if span >= cycle:
        span -= span % cycle
    period = float(completions_ms[last] - completions_ms[last - span]) / span
    return Steady(period, last - span, last, False)
