"""Lower bounds from the compute placed before each cut alone, and what they rule out.

A dynamic program over the cells of `solver.cells` bounds the period of every plan of a layout, and,
given an upper bound, says which arcs a better plan may use and how much is placed before them. On
chains the bound is exact but for what several levels of shared ports do together; where branches
run in parallel it weakens with their compute.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeplan.core.problem import Problem
from pipeplan.core.schedule import in_flight
from pipeplan.solver.arcs import Arc, Layout
from pipeplan.solver.cells import Cells, Crossing, cells_of
from pipeplan.solver.clock import Pause, unhurried
from pipeplan.solver.geometry import Layout as Geometry
from pipeplan.solver.joint_stages import JointStages
from pipeplan.solver.peaks import peaks_of
from pipeplan.solver.reduce import ReducedGraph
from pipeplan.solver.relaxation_ports import ArcCosts, SharedLoad

__all__ = ["MOST_BLOCKS", "Relaxation", "least_behind", "relax_joint", "windows_of"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

MOST_BLOCKS: Final = 4_000
"""Beyond this many blocks their reachability is too large to sum over."""
_SLACK: Final = 1e-9
_PRECISION: Final = 1e-4
"""To which the bound with shared ports is found, relative."""
_PAIRS: Final = 2e7
"""Pairs of cells, over all arcs, that are looked at: 160 MB, and a few seconds."""
_MOST_SHARED: Final = 500
"""Arcs up to which the load of shared ports is worth a dozen passes over them."""
_MOST_ROUNDS: Final = 16
"""Numbers of ranks in use that are told apart; beyond, some are looked at together."""
_MOST_ARCS: Final = 2_000
"""Arcs that are looked at, in all rounds."""
_SHORTEST_MS: Final = 1e-200
_MOST_CELLS: Final = 20_000
_CELLS_A_BLOCK: Final = 8
"""Finer cells than so many for each block tell hardly more: sums of few blocks are far apart."""


@dataclass(frozen=True)
class Relaxation:
    """`bound_ms`: no plan of the layout has a smaller period. For plans within the upper bound that
    was given: `arcs` they may use, and for each position where a stage may start the least and the
    most compute (ms) before it; `placed[v]` is the first position from which block v is surely
    placed (the number of positions if none)."""

    bound_ms: float
    arcs: frozenset[Arc]
    before_ms: dict[int, tuple[float, float]]
    placed: tuple[int, ...]


def relax_joint(
    problem: Problem,
    reduced: ReducedGraph,
    crossing: Crossing,
    layout: Layout,
    upper_ms: float,
    pause: Pause = unhurried,
) -> Relaxation:
    """Bound the period of joint plans of a layout, and say what plans of at most `upper_ms` use.

    The bound is at most `upper_ms`: what is above plays no part. `pause` is called now and then and
    may raise.
    """
    return _Passes(problem, reduced, crossing, layout, upper_ms * (1 + _SLACK), pause).result()


def windows_of(
    layout: Layout, cells: Cells, starts: dict[int, Bools]
) -> tuple[dict[int, tuple[float, float]], tuple[int, ...]]:
    """From the cells in which a cut may lie before each position where a stage may start: the least
    and most compute before it, and from where on each block is surely placed."""
    windows: dict[int, tuple[float, float]] = {}
    first_cell = np.full(layout.size + 1, len(cells) - 1)
    for p, possible in starts.items():
        rows = np.flatnonzero(possible)
        windows[p] = (float(cells.least[rows].min()), float(cells.most[rows].max()))
        first_cell[p] = rows.min()
    # Behind position p the cut is that before the next start, or everything is placed.
    nearest = np.minimum.accumulate(first_cell[::-1])[::-1]
    placed = tuple(int(np.argmax(nearest[1:] >= first)) for first in cells.first_in)
    return windows, placed


def least_behind(problem: Problem, cells: Cells, upper_ms: float, copies: int = 1) -> Ints:
    """The fewest ranks behind a cut of each cell, a multiple of `copies`: none computes for longer
    than `upper_ms` a micro-batch."""
    left = np.maximum(cells.most[-1] * (1 - _SLACK) - cells.most, 0.0)
    each = np.minimum(left / max(copies * upper_ms, _SHORTEST_MS), problem.cluster.devices)
    return np.asarray(copies * np.ceil(each).astype(np.int64))


class _Passes:
    """The dynamic program from behind and from before.

    Only cuts that leave no more to either side than its ranks can do within the upper bound are
    looked at: position p has the cells `window[p]`. The nearer the upper bound is to the work of
    all devices, the fewer they are, and the finer the cells can be.
    """

    def __init__(
        self,
        problem: Problem,
        reduced: ReducedGraph,
        crossing: Crossing,
        layout: Layout,
        upper_ms: float,
        pause: Pause,
    ) -> None:
        self.problem = problem
        self.pause = pause
        self.layout = layout
        self.upper = upper_ms
        self.geometry = Geometry(problem, layout.size)
        self.compute = np.array(reduced.compute_ms)
        self.weights = np.array(reduced.parameter_bytes, dtype=np.float64)
        self.kept = np.array(reduced.kept_bytes, dtype=np.float64)
        self.total = float(self.compute.sum())
        finest_ms = self._finest_ms()
        breaks = math.ceil(self.total / finest_ms) if finest_ms > 0 else 1
        self.cells = cells_of(reduced, max(2, breaks), finest_ms)
        self.crossing = crossing.of(self.cells)
        self.window = [self._window(p) for p in range(layout.size + 1)]
        self.cost = {a: self._cost(a) for a in layout.leaves}
        self.whole = [
            len(self.cells) - 1 - w.start if w.start < w.stop == len(self.cells) else -1
            for w in self.window
        ]

    def _finest_ms(self) -> float:
        """Width of cells for which the pairs of all arcs are about as many as can be afforded."""
        spare = self.layout.size * self.layout.copies * self.upper - self.total
        spare = min(max(spare, self.total * 1e-3), self.total)
        # Breakpoints and the even grid between them make up to twice as many.
        cells = math.sqrt(_PAIRS / max(1, len(self.layout.leaves))) / 2
        most = min(_MOST_CELLS, _CELLS_A_BLOCK * len(self.compute))
        return max(spare / max(cells, 4.0), self.total / most)

    def _window(self, p: int) -> slice:
        """Cells in which the cut before position p may lie."""
        cells, copies = self.cells, self.layout.copies
        done = p * copies * self.upper
        left = (self.layout.size - p) * copies * self.upper
        stop = int(np.searchsorted(cells.least, done, side="right"))
        first = int(np.searchsorted(cells.most, self.total * (1 - _SLACK) - left, side="left"))
        return slice(min(first, stop), stop)

    def result(self) -> Relaxation:
        """What plans of every number of ranks use together."""
        bound = self.upper
        kept: set[Arc] = set()
        starts: dict[int, Bools] = {}
        for ends in self._rounds():
            costs = {
                a: self._fitting(a, ends[0])
                for a in self.layout.leaves
                if a.start + a.machines <= ends[-1]
            }
            whole = [row if p in ends else -1 for p, row in enumerate(self.whole)]
            least, arcs, possible = self._round(costs, whole)
            bound = min(bound, least)
            kept |= arcs
            for p, rows in possible.items():
                starts[p] = starts[p] | rows if p in starts else rows
        cells = {}
        for p in sorted(starts):
            cells[p] = np.zeros(len(self.cells), dtype=np.bool_)
            cells[p][self.window[p]] = starts[p]
        windows = windows_of(self.layout, self.cells, cells)
        return Relaxation(bound * (1 - _SLACK), frozenset(kept), *windows)

    def _rounds(self) -> list[range]:
        """Numbers of ranks of a copy that plans may use, looked at together: all, or, where the
        ranks behind a stage tell what it holds in memory, a few."""
        fewest = int(least_behind(self.problem, self.cells, self.upper, self.layout.copies)[0])
        ends = range(max(1, fewest // self.layout.copies), self.layout.size + 1)
        if self.problem.cluster.memory_bytes is None or self.problem.schedule == "gpipe":
            return [ends] if ends else []
        rounds = max(1, min(_MOST_ROUNDS, _MOST_ARCS // max(1, len(self.layout.leaves))))
        step = -(-len(ends) // rounds)
        return [ends[i : i + step] for i in range(0, len(ends), step)] if ends else []

    def _round(
        self, costs: Mapping[Arc, ArcCosts], whole: Sequence[int]
    ) -> tuple[float, set[Arc], dict[int, Bools]]:
        """Bound, arcs and cells before their starts: every stage alone, then the ports that several
        share, one level after the other."""
        bound, kept, starts = self._alone(costs, whole)
        levels: list[int | None] = list(range(len(self.geometry.ports)))
        if self.geometry.shares_ports:
            levels.append(None)
        for port in levels:
            if not kept or len(kept) > _MOST_SHARED:
                break
            left = {a: cost for a, cost in costs.items() if a in kept}
            load = SharedLoad(self.geometry, left, whole, port, self.pause)
            bound = self._raised(load, bound)
            kept, seen = load.used(self.upper)
            starts = {p: starts[p] & seen[p] for p in seen}
        return bound if kept else self.upper, kept, starts

    def _alone(
        self, costs: Mapping[Arc, ArcCosts], whole: Sequence[int]
    ) -> tuple[float, set[Arc], dict[int, Bools]]:
        """The same where each stage counts for itself."""
        arcs: dict[int, list[Arc]] = {}
        for a, cost in costs.items():
            if cost.busy_ms.size:
                arcs.setdefault(a.start, []).append(a)
        behind = [np.full(w.stop - w.start, np.inf) for w in self.window]
        before = [x.copy() for x in behind]
        for p, row in enumerate(whole):
            if row >= 0:
                behind[p][row] = 0.0
        for p in sorted(arcs, reverse=True):
            for a in arcs[p]:
                self.pause()
                busiest = np.maximum(costs[a].busy_ms, behind[p + a.machines][None, :])
                np.minimum(behind[p], busiest.min(axis=1), out=behind[p])
        bound = self.upper
        if behind[0].size and self.window[0].start == 0:
            before[0][0] = 0.0
            bound = min(bound, float(behind[0][0]))
        kept: set[Arc] = set()
        for p in sorted(arcs):
            for a in arcs[p]:
                self.pause()
                end = p + a.machines
                busiest = np.maximum(costs[a].busy_ms, before[p][:, None])
                np.minimum(before[end], busiest.min(axis=0), out=before[end])
                if np.maximum(busiest, behind[end][None, :]).min() <= self.upper:
                    kept.add(a)
        starts = {
            p: np.maximum(before[p], behind[p]) <= self.upper
            for p in sorted({a.start for a in kept})
        }
        return bound, kept, starts

    def _raised(self, load: SharedLoad, bound: float) -> float:
        """The bound with a shared load: the largest period that is known to be too short."""
        high = self.upper
        while high - bound > _PRECISION * high:
            middle = (bound + high) / 2
            if load.feasible(middle):
                high = middle
            else:
                bound = middle
        return bound

    def _cost(self, a: Arc) -> ArcCosts:
        """A stage for every pair of a cut before and one behind it."""
        self.pause()
        rows, columns = self._sides(a)
        weights = self.cells.pairs(self.weights, rows, columns)
        entering, leaving = self.crossing[rows], self.crossing[columns]
        stages = JointStages(
            self.problem,
            self.geometry,
            self.cells.measured(self.compute, rows, columns),
            weights,
            entering,
            leaving,
            relaxed=True,
        )
        busy = stages.busy_ms(a.start, a.machines)
        busy[self.cells.barred_in(rows, columns)] = np.inf
        return ArcCosts(busy, weights, entering, leaving)

    def _fitting(self, a: Arc, end: int) -> ArcCosts:
        """The costs of an arc, infinite where a rank's least memory is above the limit though no
        more than `end` ranks of a copy are used."""
        cost = self.cost[a]
        limit = self.problem.cluster.memory_bytes
        if limit is None:
            return cost
        copies = self.layout.copies
        held = in_flight(
            self.problem.schedule,
            max(end - a.start, a.machines) * copies,
            a.machines * copies,
            self.problem.micro_batches,
        )
        need = peaks_of(
            self.problem,
            weights=cost.weights,
            kept=self.cells.pairs(self.kept, *self._sides(a)),
            entering=cost.entering[:, None],
            held=held,
        )
        too_large = need > limit * (1 + _SLACK)
        return replace(cost, busy_ms=np.where(too_large, np.inf, cost.busy_ms))

    def _sides(self, a: Arc) -> tuple[slice, slice]:
        """The windows before and behind an arc."""
        return self.window[a.start], self.window[a.start + a.machines]
