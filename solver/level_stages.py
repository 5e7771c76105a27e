"""What a stage of one level of a nested plan costs, as arrays over pairs of cuts (`levelwise`)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeplan.core.problem import Problem
from pipeplan.solver.clock import Pause, unhurried

__all__ = ["LevelStages", "least_periods", "level_period_ms"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LevelStages:
    """Periods of stages between cuts i and j, level by level.

    `weights[i,j]` are a stage's bytes, `crossing[i]` what crosses cut i; `barred` pairs hold none.
    """

    problem: Problem
    weights: Floats
    crossing: Floats
    barred: npt.NDArray[np.bool_]

    def of_level(self, level: int, inner: Callable[[int], Floats]) -> list[Floats]:
        """stage[m-1][i][j] on m = 1..n machines (straight: 1 alone), each of which takes
        inner(m)[i,j] ms a micro-batch."""
        problem = self.problem
        most = 1 if problem.constraints.straight else problem.cluster.levels[level - 1].children
        out: list[Floats] = []
        for m in range(1, most + 1):
            busy = level_period_ms(problem, level, m, inner(m), self.weights, self.crossing)
            busy[self.barred] = np.inf
            out.append(busy)
        return out


def level_period_ms(
    problem: Problem,
    level: int,
    replicas: int,
    inner: Floats,
    weights: Floats,
    crossing: Floats,
) -> Floats:
    """Period of a stage on so many machines of a level (DESIGN 4.2), each of which takes `inner` ms
    a micro-batch: max((inner + 4(m-1)/(m U B) W) / m, 2 O / (B m rho)) for the O at either end."""
    cluster = problem.cluster
    rate = cluster.levels[level - 1].bandwidth_bytes_per_s
    busy = inner
    if not problem.synchronous and replicas > 1:
        width = cluster.group_sizes[level - 1]
        busy = busy + 4 * (replicas - 1) * weights / (rate * replicas * width) * 1e3
    moved = 2 * crossing / (rate * replicas * problem.compression) * 1e3
    return np.maximum(np.maximum(busy / replicas, moved[:, None]), moved[None, :])


def least_periods(
    stage: list[Floats], machines: int, *, first_row: bool = False, pause: Pause = unhurried
) -> list[Floats]:
    """least[m-1][i][j]: the least period from cut i to cut j on at most m machines, m = 1..all.

    least[m] = min over m' and k of max(least[m - m'][i][k], stage[m'][k][j]); with `first_row` for
    i = 0 alone. `pause` is called now and then and may raise.
    """
    rows = slice(0, 1) if first_row else slice(None)
    out: list[Floats] = []
    for m in range(1, machines + 1):
        best = stage[m - 1].copy() if m <= len(stage) else np.full_like(stage[0], np.inf)
        if out:
            np.minimum(best, out[-1], out=best)
        for last in range(1, min(m - 1, len(stage)) + 1):
            before, behind = out[m - last - 1], stage[last - 1]
            for k in range(len(behind)):
                pause()
                split = np.maximum(before[rows, k, None], behind[None, k, :])
                np.minimum(best[rows], split, out=best[rows])
        out.append(best)
    return out
