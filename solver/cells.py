"""What is sure of a cut of which only the compute placed before it is known, up to an interval.

Block v is surely in an ideal D where c(D) > c(V) - c(v and all behind it), and surely not where
c(D) < c(v and all before it). So the sums over surely placed blocks bound a stage's weights from
below, and a minimum cut over the blocks that are not sure bounds what crosses.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeplan.solver.cell_cuts import CellCuts
from pipeplan.solver.clock import Pause, unhurried
from pipeplan.solver.peaks import Peaks
from pipeplan.solver.reduce import ReducedGraph

__all__ = [
    "CellSums",
    "Cells",
    "Crossing",
    "affordable_cells",
    "cell_sums",
    "cells_of",
    "closure_sums",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_CUTS_A_CELL: Final = 15
"""Minimum cuts for one cell: on NASNet-mobile ten more times as many raise no bound."""


@dataclass(frozen=True)
class Cells:
    """Intervals of a measure of cuts, ascending; the first is the empty cut, the last the whole
    graph. The measure is a sum over a cut's blocks: compute (ms) unless said otherwise.

    A cut of a cell measures from `least` to `most`; blocks v with first_in[v] <= cell are surely
    in it, those with last_out[v] >= cell surely not.
    """

    least: Floats
    most: Floats
    first_in: Ints
    last_out: Ints

    def __len__(self) -> int:
        return len(self.least)

    @cached_property
    def barred(self) -> npt.NDArray[np.bool_]:
        """Pairs of cells between which no stage lies: a stage may stay within a cell, but neither
        within the empty cut nor within the whole graph."""
        return self.barred_in(slice(0, len(self)), slice(0, len(self)))

    def barred_in(self, rows: slice, columns: slice) -> npt.NDArray[np.bool_]:
        """`barred` of cells i in `rows` and j in `columns` alone."""
        last = len(self) - 1
        i = np.arange(rows.start, rows.stop)[:, None]
        j = np.arange(columns.start, columns.stop)[None, :]
        return np.asarray((i > j) | ((i == j) & ((i == 0) | (i == last))))

    def measured(self, values: Floats, rows: slice, columns: slice) -> Floats:
        """The least measure of a stage from a cut of cell i in `rows` to one of j in `columns`;
        `values` are the blocks' own."""
        apart = self.least[None, columns] - self.most[rows, None]
        return np.maximum(np.maximum(apart, self.pairs(values, rows, columns)), 0.0)

    def pairs(self, values: Floats, rows: slice, columns: slice) -> Floats:
        """Sum of values over the blocks that are surely not in cut i and surely in cut j."""
        out = np.zeros((rows.stop - rows.start, columns.stop - columns.start))
        if not out.size:
            return out
        known = (self.last_out >= rows.start) & (self.first_in < columns.stop)
        outside = np.minimum(self.last_out[known], rows.stop - 1) - rows.start
        inside = np.maximum(self.first_in[known], columns.start) - columns.start
        np.add.at(out, (outside, inside), values[known])
        return np.flip(np.flip(out, 0).cumsum(0), 0).cumsum(1)


@dataclass(frozen=True)
class CellSums:
    """Cells of a graph, with lower bounds: `compute_ms[i,j]`, `weights[i,j]` and `kept[i,j]`
    (bytes) of a stage between cuts of cells i and j, `crossing[i]` (bytes) of a cut of cell i."""

    cells: Cells
    compute_ms: Floats
    weights: Floats
    kept: Floats
    crossing: Floats


def cell_sums(reduced: ReducedGraph, most: int, pause: Pause = unhurried) -> CellSums:
    """All that is sure of cuts in at most so many cells (and two). `pause` is called now and then
    and may raise."""
    cells = cells_of(reduced, most)
    every = slice(0, len(cells))
    return CellSums(
        cells,
        cells.measured(np.array(reduced.compute_ms), every, every),
        cells.pairs(np.array(reduced.parameter_bytes, dtype=np.float64), every, every),
        cells.pairs(np.array(reduced.kept_bytes, dtype=np.float64), every, every),
        _least_crossing(reduced, cells, pause)[0],
    )


def cell_peaks(reduced: ReducedGraph, most: int, pause: Pause = unhurried) -> tuple[Cells, Peaks]:
    """At most so many cells (and two), which here are intervals of bytes, of what each micro-batch
    in flight adds; and the least peaks of stages between their cuts. `pause` is called now and then
    and may raise."""
    problem = reduced.problem
    weights, kept = (
        np.array(x, dtype=np.float64) for x in (reduced.parameter_bytes, reduced.kept_bytes)
    )
    versions = not problem.synchronous and not problem.recompute
    cells = cells_of(reduced, most, values=weights + kept if versions else kept)
    every = slice(0, len(cells))
    own = cells.pairs(weights, every, every)
    each = cells.measured(weights + kept if versions else kept, every, every)
    entering = (
        _least_crossing(reduced, cells, pause)[0] if problem.recompute else np.zeros(len(cells))
    )
    kept = each - own if versions else each
    return cells, Peaks(problem, own, kept, entering[:, None], cells.barred)


def affordable_cells(reduced: ReducedGraph) -> int:
    """Cells for which the least that crosses is looked for: each costs a few minimum cuts in the
    graph, so the fewer the larger that is."""
    return max(24, min(1_000, 1_000_000 // len(reduced)))


class Crossing:
    """The least that crosses a cut of any interval of compute, from minimum cuts in some cells.

    `ideals` are those cuts, each by its blocks as bits; of at most `nodes` for a cell. `pause` is
    called now and then while they are looked for, and may raise.
    """

    def __init__(
        self,
        reduced: ReducedGraph,
        most: int,
        pause: Pause = unhurried,
        *,
        nodes: int = _CUTS_A_CELL,
    ) -> None:
        self._cells = cells_of(reduced, most)
        self._bytes, self.ideals = _least_crossing(reduced, self._cells, pause, nodes)

    def of(self, cells: Cells) -> Floats:
        """Lower bounds in bytes for other cells of the same graph."""
        own = self._cells
        # A cut lies in some own cell: the cheapest of those that the other cell overlaps counts.
        first = np.searchsorted(own.most, cells.least, side="left")
        stop = np.searchsorted(own.least, cells.most, side="right")
        out = self._bytes[np.minimum(first, stop - 1)]
        for further in range(1, int((stop - first).max(initial=0))):
            out = np.minimum(out, self._bytes[np.minimum(first + further, stop - 1)])
        out[0] = out[-1] = 0.0
        return out


def cells_of(
    reduced: ReducedGraph,
    most: int,
    finest: float = math.inf,
    values: Floats | None = None,
) -> Cells:
    """Intervals between the breakpoints at which what is sure changes, thinned out to `most`; none
    is wider than `finest`, which may make them more. `values` are the measure of each block in
    whole numbers (None: its compute in ms)."""
    whole = values is not None
    values = np.asarray(reduced.compute_ms) if values is None else values
    total = float(values.sum())
    eps = max(0.125, total * 1e-15) if whole else total * 1e-9
    down = closure_sums(reduced.ancestors, values)
    up = closure_sums(reduced.descendants, values)
    rest = total - up
    breaks = _apart(np.concatenate(([0.0], down, rest)), 4 * eps)
    if len(breaks) > most:
        wanted = np.linspace(0.0, total, most)
        breaks = breaks[np.unique(np.searchsorted(breaks, wanted, side="right") - 1)]
    if finest < total:
        breaks = _apart(np.concatenate((breaks, np.arange(0.0, total, finest))), 4 * eps)
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
    highest = np.minimum(ceiling, possible + eps)
    if whole and eps < 0.5:
        least, highest = np.ceil(least), np.floor(highest)
    least[0] = highest[0] = 0.0
    least[-1] = highest[-1] = total
    return Cells(np.maximum(least, 0.0), np.maximum(highest, 0.0), first_in, last_out)


def _apart(values: Floats, distance: float) -> Floats:
    """The values in order, less those that follow another too closely."""
    ordered = np.unique(values)
    return ordered[np.concatenate(([True], np.diff(ordered) > distance))]


def closure_sums(sets: Sequence[int], values: Floats) -> Floats:
    """Sum of values over each bit set (`ReducedGraph.ancestors` and `descendants`)."""
    width = -(-len(values) // 8)
    raw = np.frombuffer(b"".join(x.to_bytes(width, "little") for x in sets), dtype=np.uint8)
    rows = raw.reshape(len(sets), width)
    out = np.empty(len(sets))
    for first in range(0, len(sets), 512):
        bits = np.unpackbits(rows[first : first + 512], axis=1, bitorder="little")
        out[first : first + 512] = bits[:, : len(values)] @ values
    return out


def _least_crossing(
    reduced: ReducedGraph, cells: Cells, pause: Pause, nodes: int = 1
) -> tuple[Floats, tuple[int, ...]]:
    """The least that crosses any cut of each cell: what surely crosses, and what `cell_cuts` says
    of the rest with so many minimum cuts. Second, these cuts by their blocks as bits."""
    size = len(cells)
    surely = np.zeros(size + 1)
    for tensor in reduced.tensors:
        first = int(cells.first_in[tensor.producer])
        last = max(int(cells.last_out[w]) for w in tensor.consumers)
        if first <= last:
            surely[first] += tensor.bytes_
            surely[last + 1] -= tensor.bytes_
    out = surely.cumsum()[:-1]
    ideals: dict[int, None] = {}
    cuts = CellCuts(reduced, nodes, pause)
    for i in range(1, size - 1):
        sure, gone = (
            sum(1 << v for v in np.flatnonzero(rows).tolist())
            for rows in (cells.first_in <= i, cells.last_out >= i)
        )
        least, found = cuts.least(float(cells.least[i]), float(cells.most[i]), sure, gone)
        out[i] += least
        ideals.update(dict.fromkeys(found))
    return out, tuple(ideals)
