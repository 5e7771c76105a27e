"""The dynamic program along one order for nested plans (cost model `levelwise`), level by level.

time[l][i][j] is the least period of the layers between two cut positions on one group of level l;
a stage of level l+1 on m such groups costs what core.nested_cost says of it. At each level
least[m][i][j] = min over m' and k of max(least[m - m'][i][k], stage[m'][k][j]) over (i, j), and any
number of machines may be left idle.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeplan.core.plan import NestedStage, Plan, nested_plan
from pipeplan.core.problem import Problem
from pipeplan.core.schedule import in_flight
from pipeplan.solver.clock import Pause
from pipeplan.solver.level_stages import LevelStages, least_periods
from pipeplan.solver.levelwise_tables import LevelwiseTables, PeriodRule
from pipeplan.solver.line import Line

__all__ = ["nested_plans"]

Floats = npt.NDArray[np.float64]
_MOST_DEVICES: Final = 64
"""Devices up to which those behind a stage are counted: seconds a line."""


def nested_plans(problem: Problem, line: Line, pause: Pause) -> Iterator[Plan]:
    """The best plan along a line. With a memory limit, which takes longer, plans come before it (on
    large clusters instead of it): one for each guess of the ranks that later outer stages add to
    what a stage holds. `pause` is called now and then and may raise."""
    limit = problem.cluster.memory_bytes
    guesses = [0]
    if limit is not None:
        guesses = sorted({0, *problem.cluster.group_sizes, problem.cluster.devices * 2})
    for ranks in guesses:
        stages = _Program(problem, line, ranks).solve(pause)
        if stages is not None:
            yield nested_plan(problem.cluster, stages)
    if limit is not None and problem.cluster.devices <= _MOST_DEVICES:
        stages = _within(problem, line, limit, pause)
        if stages is not None:
            yield nested_plan(problem.cluster, stages)


def _within(
    problem: Problem, line: Line, limit: int, pause: Pause
) -> tuple[NestedStage, ...] | None:
    """The best stages of the outermost level within a memory limit (bytes), None if there are
    none."""
    peaks = line.peaks()
    compute = line.compute_ms[None, :] - line.compute_ms[:, None]

    def leaf(held: int) -> Floats:
        return np.where(peaks(held) > limit, np.inf, compute)

    rule = PeriodRule(problem, leaf, peaks.weights, line.crossing)
    return LevelwiseTables(problem, len(line), rule, line.layers_between, pause=pause).solve()[1]


class _Program:
    """All levels along one line; `ranks` are assumed to lie from a stage on, for its memory."""

    def __init__(self, problem: Problem, line: Line, ranks: int) -> None:
        self.problem = problem
        self.line = line
        self.ranks = ranks
        self.peaks = line.peaks()
        i, j = np.arange(len(line))[:, None], np.arange(len(line))[None, :]
        self.stages = LevelStages(problem, self.peaks.weights, line.crossing, i >= j)
        self.stage: list[list[Floats]] = []
        self.least: list[list[Floats]] = []

    def solve(self, pause: Pause) -> tuple[NestedStage, ...] | None:
        """The best stages of the outermost level, None where nothing fits."""
        inner: Floats = self.line.compute_ms[None, :] - self.line.compute_ms[:, None]
        levels = len(self.problem.cluster.levels)
        for level in range(1, levels + 1):
            self.stage.append(self._stages(level, inner))
            machines = self.problem.cluster.levels[level - 1].children
            top = level == levels
            least = least_periods(self.stage[-1], machines, first_row=top, pause=pause)
            self.least.append(least)
            inner = self.least[-1][-1]
        if not np.isfinite(inner[0, -1]):
            return None
        return self._trace(levels, 0, len(self.line) - 1)

    def _stages(self, level: int, inner: Floats) -> list[Floats]:
        """stage[m-1][i][j] of a level; at level 1 without what is barred or does not fit."""
        out = self.stages.of_level(level, lambda _: inner)
        limit = self.problem.cluster.memory_bytes
        if level == 1:
            for m, stage in enumerate(out, 1):
                stage[self.peaks.barred] = np.inf
                if limit is not None:
                    stage[self.peaks(self._held(m)) > limit] = np.inf
        return out

    def _trace(self, level: int, first: int, last: int) -> tuple[NestedStage, ...]:
        """Stages that reach the least period between two cut positions."""
        least, stage = self.least[level - 1], self.stage[level - 1]
        out: list[NestedStage] = []
        m, end = len(least), last
        while True:
            goal = least[m - 1][first, end]
            while m > 1 and least[m - 2][first, end] <= goal:
                m -= 1
            if m <= len(stage) and stage[m - 1][first, end] <= goal:
                out.append(self._nested(level, first, end, m))
                return tuple(reversed(out))
            width, k = next(
                (width, int(k))
                for width in range(1, min(m - 1, len(stage)) + 1)
                for k in np.flatnonzero(
                    np.maximum(least[m - width - 1][first, :], stage[width - 1][:, end]) <= goal
                )[:1]
            )
            out.append(self._nested(level, k, end, width))
            m, end = m - width, k

    def _nested(self, level: int, first: int, last: int, machines: int) -> NestedStage:
        layers = self.line.layers_between(first, last)
        inner = self._trace(level - 1, first, last) if level > 1 else ()
        return NestedStage(layers, machines, inner)

    def _held(self, m: int) -> int:
        """Micro-batches that a level-1 stage on m devices holds, with the assumed ranks behind."""
        problem = self.problem
        return in_flight(problem.schedule, max(m, self.ranks), m, problem.micro_batches)
