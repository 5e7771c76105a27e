"""The relaxation of nested plans: the recurrence of `levelwise` over cells, level by level.

least[l][m][i][j] bounds the period of layers between cuts of cells i and j on m groups of level l-1
from below. From the outermost span inwards, an arc stays if some cells on either side of it can be
reached within the period that its span may take.
"""

from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeplan.core.problem import Problem
from pipeplan.solver.arcs import Arc, Layout, Span
from pipeplan.solver.cells import CellSums
from pipeplan.solver.clock import Pause, unhurried
from pipeplan.solver.level_stages import LevelStages, least_periods
from pipeplan.solver.levelwise_tables import LevelwiseTables, PeriodRule
from pipeplan.solver.peaks import Peaks, held_behind
from pipeplan.solver.relaxation import Relaxation, least_behind, windows_of

__all__ = ["relax_levelwise"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

_SLACK: Final = 1e-9
_MOST_COUNTED: Final = 16
"""Devices up to which those behind a stage are counted."""


def relax_levelwise(
    problem: Problem, sums: CellSums, layout: Layout, upper_ms: float, pause: Pause = unhurried
) -> Relaxation:
    """Bound the period of nested plans, and say what plans of at most `upper_ms` use. `pause` is
    called now and then and may raise."""
    return _Levels(problem, sums, layout, upper_ms * (1 + _SLACK), pause).result()


@dataclass(frozen=True)
class _Tables:
    """By machines, from 1: a stage's period between two cells, and the least period of a pipeline
    between them (on at most so many)."""

    stage: list[Floats]
    least: list[Floats]


class _Levels:
    """Stages and least periods of every level.

    What a stage holds in memory depends on its replicas, so with a limit there are tables for each
    number of them that the stages around it make; else a single one.
    """

    def __init__(
        self,
        problem: Problem,
        sums: CellSums,
        layout: Layout,
        upper_ms: float,
        pause: Pause,
    ) -> None:
        self.problem = problem
        self.sums = sums
        self.layout = layout
        self.cells = sums.cells
        self.upper_ms = upper_ms
        self.behind = least_behind(problem, sums.cells, upper_ms)
        barred = sums.cells.barred
        self.peaks = Peaks(problem, sums.weights, sums.kept, sums.crossing[:, None], barred)
        self.stages = LevelStages(problem, sums.weights, sums.crossing, barred)
        self.pause = pause
        self.tables: dict[tuple[int, int], _Tables] = {}
        self.kept: set[Arc] = set()
        self.starts: dict[int, Bools] = {}

    def _counted(self) -> float:
        """The bound where the devices behind a stage are counted, for its memory: dearer, and no
        better without a limit."""
        problem, sums = self.problem, self.sums
        if problem.cluster.memory_bytes is None or problem.cluster.devices > _MOST_COUNTED:
            return 0.0
        rule = PeriodRule(problem, self._fitting, sums.weights, sums.crossing, self.upper_ms)
        return LevelwiseTables(
            problem, len(self.cells), rule, lambda i, j: (), within=True, pause=self.pause
        ).solve()[0]

    def _fitting(self, held: Ints | int) -> Floats:
        """Compute of stages that hold so many micro-batches, infinite where none fits a device."""
        limit = self.problem.cluster.memory_bytes
        if limit is None:
            return self.sums.compute_ms
        too_large = self.peaks(held) > limit * (1 + _SLACK)
        return np.where(too_large, np.inf, self.sums.compute_ms)

    def _within(self, level: int, around: int) -> "_Tables":
        """Tables of a level, with so many copies of each group of it by the stages around."""
        key = (level, around if self.problem.cluster.memory_bytes is not None else 1)
        if key not in self.tables:
            sizes = self.layout.group_sizes
            stage = self.stages.of_level(level, lambda m: self._inner(level, around * m))
            machines = sizes[level] // sizes[level - 1]
            self.tables[key] = _Tables(stage, least_periods(stage, machines, pause=self.pause))
        return self.tables[key]

    def _inner(self, level: int, replicas: int) -> Floats:
        """Period of one machine of a stage with so many copies of it."""
        if level > 1:
            return self._within(level - 1, replicas).least[-1]
        return self._fitting(held_behind(self.problem, self.behind, replicas)[None, :])

    def result(self) -> Relaxation:
        """The bound, and what it rules out from the outermost span inwards."""
        size = len(self.cells)
        first, last = np.zeros(size, dtype=np.bool_), np.zeros(size, dtype=np.bool_)
        first[0] = last[-1] = True
        self._visit(self.layout.top, first, last, self.upper_ms)
        least = float(self._within(self.layout.levels, 1).least[-1][0, -1])
        if np.isfinite(least):
            least = max(least, self._counted())
        bound = min(least, self.upper_ms) * (1 - _SLACK)
        starts = dict(sorted(self.starts.items()))
        return Relaxation(bound, frozenset(self.kept), *windows_of(self.layout, self.cells, starts))

    def _visit(self, span: Span, first: Bools, last: Bools, upper_ms: float) -> None:
        """Keep the arcs of a span that some pipeline from a cell of `first` to one of `last` within
        a period uses."""
        layout, level = self.layout, span.level
        step = layout.group_sizes[level - 1]
        tables = self._within(level, prod(span.around))
        least = tables.least
        machines = len(least)

        def reached(slots: int) -> Bools:
            if not slots:
                return first
            return np.asarray((least[slots - 1][first] <= upper_ms).any(axis=0))

        def reaching(slots: int) -> Bools:
            if not slots:
                return last
            ends = (least[slots - 1][:, last] <= upper_ms).any(axis=1)
            return np.asarray(ends | last)

        ahead = [reached(slots) for slots in range(machines)]
        behind = [reaching(slots) for slots in range(machines)]
        for a in layout.arcs_of(span):
            slot = (a.start - span.start) // step
            possible = tables.stage[a.machines - 1] <= upper_ms
            possible = possible & ahead[slot][:, None]
            possible &= behind[machines - slot - a.machines][None, :]
            begins: Bools = np.any(possible, axis=1)
            ends: Bools = np.any(possible, axis=0)
            if not begins.any():
                continue
            self.kept.add(a)
            inner = layout.inner(a)
            if inner is None:
                seen = self.starts.get(a.start)
                self.starts[a.start] = begins if seen is None else seen | begins
            else:
                self._visit(inner, begins, ends, upper_ms * a.machines)
