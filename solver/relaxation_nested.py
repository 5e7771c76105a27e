"""The relaxation of nested plans: the recurrence of `levelwise` over cells, level by level.

least[l][m][i][j] bounds the period of layers between cuts of cells i and j on m groups of level l-1
from below. From the outermost span inwards, an arc stays if some cells on either side of it can be
reached within the period that its span may take.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from pipeplan.core.problem import Problem
from pipeplan.solver.arcs import Arc, Layout, Span
from pipeplan.solver.cells import Cells, CellSums
from pipeplan.solver.clock import Pause, unhurried
from pipeplan.solver.level_stages import LevelStages, least_periods
from pipeplan.solver.relaxation import Relaxation, windows_of

__all__ = ["relax_levelwise"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_SLACK: Final = 1e-9


def relax_levelwise(
    problem: Problem, sums: CellSums, layout: Layout, upper_ms: float, pause: Pause = unhurried
) -> Relaxation:
    """Bound the period of nested plans, and say what plans of at most `upper_ms` use. `pause` is
    called now and then and may raise."""
    cells = sums.cells
    stages = LevelStages(problem, sums.weights, sums.crossing, cells.barred)
    levels = _Levels(layout, cells, stages, sums.compute_ms, pause)
    return levels.result(upper_ms * (1 + _SLACK))


class _Levels:
    """Stages and least periods of every level."""

    def __init__(
        self,
        layout: Layout,
        cells: Cells,
        stages: LevelStages,
        compute: Floats,
        pause: Pause,
    ) -> None:
        self.layout = layout
        self.cells = cells
        self.stage: list[list[Floats]] = []
        self.least: list[list[Floats]] = []
        inner = compute
        for level in range(1, layout.levels + 1):
            self.stage.append(stages.of_level(level, inner))
            machines = layout.group_sizes[level] // layout.group_sizes[level - 1]
            self.least.append(least_periods(self.stage[-1], machines, pause=pause))
            inner = self.least[-1][-1]
        self.kept: set[Arc] = set()
        self.starts: dict[int, Bools] = {}

    def result(self, upper_ms: float) -> Relaxation:
        """The bound, and what it rules out from the outermost span inwards."""
        size = len(self.cells)
        first, last = np.zeros(size, dtype=np.bool_), np.zeros(size, dtype=np.bool_)
        first[0] = last[-1] = True
        self._visit(self.layout.top, first, last, upper_ms)
        bound = float(self.least[-1][-1][0, -1]) * (1 - _SLACK)
        starts = dict(sorted(self.starts.items()))
        return Relaxation(bound, frozenset(self.kept), *windows_of(self.layout, self.cells, starts))

    def _visit(self, span: Span, first: Bools, last: Bools, upper_ms: float) -> None:
        """Keep the arcs of a span that some pipeline from a cell of `first` to one of `last` within
        a period uses."""
        layout, level = self.layout, span.level
        step = layout.group_sizes[level - 1]
        least = self.least[level - 1]
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
            possible = self.stage[level - 1][a.machines - 1] <= upper_ms
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
