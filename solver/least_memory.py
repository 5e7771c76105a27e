"""The least memory per device that a plan takes, over cuts along a line or over cells of cuts.

Time plays no part, so ranks may be counted from the last one: with b of a copy's ranks from a stage
on, it holds as many micro-batches as b and its own replicas say. Joint plans of one block size:
floor[b][i] = min over k replicas and j of max(peak[i,j](b, k), floor[b-k][j]), peaks in bytes.
Nested plans: `levelwise_tables`. Over a line that gives plans, over cells a bound of all plans.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeplan.core.check import block_sizes
from pipeplan.core.plan import Plan, joint_plan, nested_plan
from pipeplan.core.problem import Problem
from pipeplan.core.schedule import in_flight
from pipeplan.solver.arcs import Arc, Layout
from pipeplan.solver.cells import cell_peaks
from pipeplan.solver.clock import Pause, unhurried
from pipeplan.solver.levelwise_tables import LevelwiseTables, PeakRule
from pipeplan.solver.line import line_of, topological_orders
from pipeplan.solver.peaks import Floats, Peaks
from pipeplan.solver.reduce import ReducedGraph
from pipeplan.solver.relaxation import MOST_BLOCKS, Relaxation, windows_of

__all__ = ["least_peak_bytes", "plans_below", "roomiest_plans"]

Bools = npt.NDArray[np.bool_]

_CELLS: Final = 400
"""Cells, and entries of a line, of joint plans."""
_NESTED_CELLS: Final = 200
_MOST_RANKS: Final = 128
_MOST_DEVICES: Final = 16
"""Devices of nested plans, whose tables are dearer."""
_MOST_TOLD_APART: Final = 32
"""Ranks of a copy up to which plans of each number of them are looked at."""


def least_peak_bytes(
    problem: Problem, reduced: ReducedGraph, layout: Layout, pause: Pause = unhurried
) -> float:
    """No plan of a layout has a largest peak below this many bytes: 0 where that is not known
    (large graphs and clusters, cost model pipedream), infinite where there is none. `pause` is
    called now and then and may raise."""
    if len(reduced) > MOST_BLOCKS or not _small(problem, layout.size):
        return 0.0
    if problem.scope == "nested":
        peaks = cell_peaks(reduced, _NESTED_CELLS, pause)[1]
        return LevelwiseTables(
            problem, len(peaks), PeakRule(peaks), lambda i, j: (), within=True, pause=pause
        ).solve()[0]
    return _Floor(problem, layout.size, cell_peaks(reduced, _CELLS, pause)[1], pause).value


def _small(problem: Problem, ranks: int) -> bool:
    if problem.cost_model == "pipedream":
        return False
    return ranks <= (_MOST_DEVICES if problem.scope == "nested" else _MOST_RANKS)


def roomiest_plans(
    problem: Problem, reduced: ReducedGraph, pause: Pause = unhurried
) -> Iterator[Plan]:
    """Plans of little memory, along a few orders; they may break demands on stages. `pause` is
    called now and then and may raise."""
    for order in topological_orders(reduced):
        line = line_of(reduced, order)
        count = _NESTED_CELLS if problem.scope == "nested" else _CELLS
        if len(line) > count:
            line = line.take(line.slices(count))
        peaks = line.peaks()
        if problem.scope == "nested":
            if not _small(problem, problem.cluster.devices):
                return
            rule = PeakRule(peaks)
            tables = LevelwiseTables(problem, len(line), rule, line.layers_between, pause=pause)
            stages = tables.solve()[1]
            if stages is not None:
                yield nested_plan(problem.cluster, stages)
            continue
        for block in block_sizes(problem):
            if not _small(problem, block):
                continue
            floor = _Floor(problem, block, peaks, pause)
            if np.isfinite(floor.value):
                pipeline = tuple((line.layers_between(i, j), k) for i, j, k in floor.stages())
                yield joint_plan(problem.cluster, pipeline, problem.cluster.devices // block)


def plans_below(
    problem: Problem, reduced: ReducedGraph, layout: Layout, high: int, pause: Pause = unhurried
) -> Relaxation:
    """What plans of a layout with peaks below `high` bytes look like: the arcs they may use, and
    where blocks are surely placed. `pause` is called now and then and may raise."""
    if (
        problem.scope == "nested"
        or not _small(problem, layout.size)
        or layout.size > _MOST_TOLD_APART
        or len(reduced) > MOST_BLOCKS
    ):
        return Relaxation(0.0, frozenset(layout.arcs), {}, (layout.size,) * len(reduced))
    cells, peaks = cell_peaks(reduced, _CELLS, pause)
    floor = _Floor(problem, layout.size, peaks, pause)
    kept: set[Arc] = set()
    starts: dict[int, Bools] = {}
    for ranks in range(1, layout.size + 1):
        for (p, machines), possible in floor.below(high, ranks):
            kept.add(Arc(layout.top, p, machines))
            starts[p] = starts[p] | possible if p in starts else possible
    placed = windows_of(layout, cells, dict(sorted(starts.items())))[1]
    return Relaxation(0.0, frozenset(kept), {}, placed)


class _Floor:
    """The table of one block size."""

    def __init__(self, problem: Problem, block: int, peaks: Peaks, pause: Pause) -> None:
        self.problem = problem
        self.pause = pause
        self.copies = problem.cluster.devices // block
        self.peaks = peaks
        self._known: dict[int, Floats] = {}
        count = len(peaks)
        self.floor = np.full((block + 1, count), np.inf)
        self.floor[0, -1] = 0.0
        for behind in range(1, block + 1):
            for k in self._widths(behind):
                pause()
                value = np.maximum(self._peak(behind, k), self.floor[behind - k][None, :])
                np.minimum(self.floor[behind], value.min(axis=1), out=self.floor[behind])
        self.value = float(self.floor[1:, 0].min())

    def _widths(self, behind: int) -> range:
        return range(1, (1 if self.problem.constraints.straight else behind) + 1)

    def _peak(self, behind: int, k: int) -> Floats:
        held = in_flight(
            self.problem.schedule,
            behind * self.copies,
            k * self.copies,
            self.problem.micro_batches,
        )
        if held not in self._known:
            self._known[held] = self.peaks(held)
        return self._known[held]

    def stages(self) -> Iterator[tuple[int, int, int]]:
        """Stages within the least peak, as (state before, state behind, replicas)."""
        behind, i = int(self.floor[1:, 0].argmin()) + 1, 0
        while behind:
            k, j = next(
                (k, int(j))
                for k in self._widths(behind)
                for rest in [self.floor[behind - k]]
                for j in np.flatnonzero(np.maximum(self._peak(behind, k)[i], rest) <= self.value)[
                    :1
                ]
            )
            yield i, j, k
            behind, i = behind - k, j

    def below(self, high: int, ranks: int) -> Iterator[tuple[tuple[int, int], Bools]]:
        """The stages of plans of so many ranks with peaks below `high` bytes, as first position
        and replicas, each with the states before it."""
        if self.floor[ranks, 0] >= high:
            return
        ahead = np.full_like(self.floor, np.inf)
        ahead[ranks, 0] = 0.0
        for behind in range(ranks, 0, -1):
            for k in self._widths(behind):
                self.pause()
                value = np.maximum(self._peak(behind, k), ahead[behind][:, None])
                np.minimum(ahead[behind - k], value.min(axis=0), out=ahead[behind - k])
                possible = np.maximum(value, self.floor[behind - k][None, :]).min(axis=1) < high
                if possible.any():
                    yield (ranks - behind, k), possible
