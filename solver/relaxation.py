"""A lower bound for joint plans, and what it rules out, from the compute placed before a cut alone.

A cut (an ideal D) is known here by its compute c(D), up to a narrow interval. Block v is surely in
D where c(D) > c(V) - c(v and all behind it), surely not where c(D) < c(v and all before it). So the
sums over surely placed blocks bound a stage's weights from below, and a minimum cut over the blocks
that are not sure bounds what crosses; a dynamic program over the intervals then bounds the period.
On chains the bound is exact but for the coupling of shared ports; where branches run in parallel it
weakens with their compute.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from pipeplan.solver.arcs import Arc, Layout
from pipeplan.solver.backends.dp.layout import Layout as Geometry
from pipeplan.solver.joint_stages import JointStages
from pipeplan.solver.reduce import ReducedGraph

__all__ = ["MOST_BLOCKS", "Relaxation", "relax_joint"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_BLOCKS: Final = 4_000
"""Beyond this many blocks their reachability is too large to sum over."""
_CELLS: Final = 6_000
_SLACK: Final = 1e-9
_MOST_FREE: Final = 300
"""Blocks of a cell that may be on either side, up to which a minimum cut is looked for."""


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


@dataclass(frozen=True)
class _Cells:
    """Intervals of compute, ascending; the first is the empty cut, the last the whole graph.

    A cut of a cell computes from `least` to `most` ms; blocks v with first_in[v] <= cell are surely
    in it, those with last_out[v] >= cell surely not.
    """

    least: Floats
    most: Floats
    first_in: Ints
    last_out: Ints

    def pairs(self, values: Sequence[float]) -> Floats:
        """Sum of values over the blocks that are surely not in cut i and surely in cut j."""
        size = len(self.least)
        out = np.zeros((size, size))
        known = (self.first_in < size) & (self.last_out >= 0)
        index = (self.last_out[known], self.first_in[known])
        np.add.at(out, index, np.asarray(values, dtype=np.float64)[known])
        return np.flip(np.flip(out, 0).cumsum(0), 0).cumsum(1)


def relax_joint(reduced: ReducedGraph, layout: Layout, upper_ms: float) -> Relaxation:
    """Bound the period of joint plans of a layout, and say what plans of at most `upper_ms` use."""
    cells = _cells(reduced, layout.size)
    geometry = Geometry(reduced.problem, layout.size)
    compute = np.maximum(
        cells.least[None, :] - cells.most[:, None], cells.pairs(reduced.compute_ms)
    )
    stages = JointStages(
        reduced.problem,
        geometry,
        np.maximum(compute, 0.0),
        cells.pairs(reduced.parameter_bytes),
        _crossing(reduced, cells),
        relaxed=True,
    )
    return _Passes(layout, stages, cells, upper_ms * (1 + _SLACK)).result(reduced)


def _cells(reduced: ReducedGraph, devices: int) -> _Cells:
    """Intervals between the breakpoints at which what is sure changes, thinned out to the number
    that a dynamic program over so many devices affords."""
    values = np.asarray(reduced.compute_ms)
    total = float(values.sum())
    eps = total * 1e-9
    down = _closure_sums(reduced.ancestors, values)
    up = _closure_sums(reduced.descendants, values)
    rest = total - up
    most_cells = max(50, _CELLS // devices)
    breaks = np.unique(np.concatenate(([0.0], down, rest)))
    breaks = breaks[np.concatenate(([True], np.diff(breaks) > 4 * eps))]
    if len(breaks) > most_cells:
        wanted = np.linspace(0.0, total, most_cells)
        breaks = breaks[np.unique(np.searchsorted(breaks, wanted, side="right") - 1)]
    floor = np.concatenate(([0.0], breaks - 2 * eps, [total]))
    ceiling = np.concatenate(([0.0], breaks[1:] - 2 * eps, [total, total]))
    # Sure membership is monotone in the compute placed: one threshold a block.
    first_in = np.searchsorted(floor[1:-1], rest + eps, side="right") + 1
    last_out = np.searchsorted(ceiling[1:-1], down - eps, side="right")
    first_in = np.minimum(first_in, len(floor) - 1).astype(np.int64)
    last_out = last_out.astype(np.int64)
    # Where a cell's sure blocks compute more than its floor, or leave less than its ceiling.
    sure = np.bincount(first_in, weights=values, minlength=len(floor)).cumsum()
    out = np.bincount(last_out, weights=values, minlength=len(floor))
    possible = total - (out[::-1].cumsum()[::-1])
    least = np.maximum(floor, sure - eps)
    most = np.minimum(ceiling, possible + eps)
    least[0] = most[0] = 0.0
    least[-1] = most[-1] = total
    return _Cells(np.maximum(least, 0.0), np.maximum(most, 0.0), first_in, last_out)


def _closure_sums(sets: Sequence[int], values: Floats) -> Floats:
    """Sum of values over each bit set."""
    width = -(-len(values) // 8)
    raw = np.frombuffer(b"".join(x.to_bytes(width, "little") for x in sets), dtype=np.uint8)
    rows = raw.reshape(len(sets), width)
    out = np.empty(len(sets))
    for first in range(0, len(sets), 512):
        bits = np.unpackbits(rows[first : first + 512], axis=1, bitorder="little")
        out[first : first + 512] = bits[:, : len(values)] @ values
    return out


def _crossing(reduced: ReducedGraph, cells: _Cells) -> Floats:
    """The least that crosses any cut of each cell: a minimum cut over the blocks not sure."""
    size = len(cells.least)
    known: dict[tuple[int, ...], int] = {}
    out = np.zeros(size)
    for i in range(1, size - 1):
        sure = cells.first_in <= i
        gone = cells.last_out >= i
        free = tuple(int(v) for v in np.flatnonzero(~sure & ~gone))
        key = (int(sure.sum()), *free)
        if key not in known:
            known[key] = _least_cut(reduced, sure, gone, free)
        out[i] = known[key]
    return out


def _least_cut(
    reduced: ReducedGraph,
    sure: npt.NDArray[np.bool_],
    gone: npt.NDArray[np.bool_],
    free: tuple[int, ...],
) -> int:
    """Least bytes that cross a cut which holds the sure blocks and none of those gone.

    Minimum cut between "in" and "out": a tensor's producer feeds a node of its own, from where an
    unbounded edge leads to every reader, and a block in the cut forces its producers in.
    """
    always = 0
    flow = nx.DiGraph()
    undecided = set(free) if len(free) <= _MOST_FREE else set()

    def node(v: int) -> int | str:
        return v if v in undecided else "in" if sure[v] else "out"

    for number, tensor in enumerate(reduced.tensors):
        if gone[tensor.producer] or all(sure[w] for w in tensor.consumers):
            continue
        if sure[tensor.producer] and any(gone[w] for w in tensor.consumers):
            always += tensor.bytes_
        elif undecided and (sure[tensor.producer] or tensor.producer in undecided):
            hub = ("tensor", number)
            flow.add_edge(node(tensor.producer), hub, capacity=tensor.bytes_)
            for w in tensor.consumers:
                if not sure[w]:
                    flow.add_edge(hub, node(w))
    if "in" not in flow or "out" not in flow:
        return always
    for u, v in reduced.edges:
        if u in undecided and v in undecided:
            flow.add_edge(v, u)
    return always + int(nx.minimum_cut_value(flow, "in", "out"))


class _Passes:
    """The dynamic program from behind and from before."""

    def __init__(self, layout: Layout, stages: JointStages, cells: _Cells, upper_ms: float) -> None:
        self.layout = layout
        self.stages = stages
        self.cells = cells
        self.upper = upper_ms
        size = len(cells.least)
        # A stage may stay within a cell, but never starts from the whole graph.
        self.barred = np.tril(np.ones((size, size), dtype=np.bool_), -1)
        self.barred[0, 0] = self.barred[-1, -1] = True

    def result(self, reduced: ReducedGraph) -> Relaxation:
        """Both passes, and what they rule out."""
        layout, size = self.layout, len(self.cells.least)
        behind = np.full((layout.size + 1, size), np.inf)
        behind[:, -1] = 0.0
        arcs: dict[int, list[Arc]] = {}
        for a in layout.leaves:
            arcs.setdefault(a.start, []).append(a)
        for p in sorted(arcs, reverse=True):
            for a in arcs[p]:
                cost = self._cost(a)
                np.maximum(cost, behind[p + a.machines][None, :], out=cost)
                np.minimum(behind[p], cost.min(axis=1), out=behind[p])
            behind[p, -1] = 0.0
        before = np.full((layout.size + 1, size), np.inf)
        before[0, 0] = 0.0
        kept: set[Arc] = set()
        for p in sorted(arcs):
            rows = np.flatnonzero(np.maximum(before[p], behind[p]) <= self.upper)
            if not len(rows):
                continue
            for a in arcs[p]:
                end = p + a.machines
                cost = self._cost(a)[rows]
                np.maximum(cost, before[p][rows, None], out=cost)
                np.minimum(before[end], cost.min(axis=0), out=before[end])
                if np.maximum(cost, behind[end][None, :]).min() <= self.upper:
                    kept.add(a)
        return Relaxation(
            float(behind[0, 0]) * (1 - _SLACK),
            frozenset(kept),
            *self._windows(before, behind, kept, reduced),
        )

    def _cost(self, a: Arc) -> Floats:
        cost = self.stages.busy_ms(a.start, a.machines)
        cost[self.barred] = np.inf
        return cost

    def _windows(
        self, before: Floats, behind: Floats, kept: set[Arc], reduced: ReducedGraph
    ) -> tuple[dict[int, tuple[float, float]], tuple[int, ...]]:
        """Compute before each start, and from where on each block is surely placed."""
        cells, positions = self.cells, self.layout.size
        windows: dict[int, tuple[float, float]] = {}
        first_cell = np.full(positions + 1, len(cells.least) - 1)
        for p in sorted({a.start for a in kept}):
            rows = np.flatnonzero(np.maximum(before[p], behind[p]) <= self.upper)
            windows[p] = (float(cells.least[rows].min()), float(cells.most[rows].max()))
            first_cell[p] = rows.min()
        # Behind position p the cut is that before the next start, or everything is placed.
        nearest = np.minimum.accumulate(first_cell[::-1])[::-1]
        placed = tuple(
            int(np.argmax(nearest[1:] >= cells.first_in[v]))
            if nearest[-1] >= cells.first_in[v]
            else positions
            for v in range(len(reduced))
        )
        return windows, placed
