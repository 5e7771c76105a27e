"""What is sure of a cut of which only the compute placed before it is known, up to an interval.

Block v is surely in an ideal D where c(D) > c(V) - c(v and all behind it), and surely not where
c(D) < c(v and all before it). So the sums over surely placed blocks bound a stage's weights from
below, and a minimum cut over the blocks that are not sure bounds what crosses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from pipeplan.solver.reduce import ReducedGraph

__all__ = ["CellSums", "Cells", "cell_sums", "cells_of", "closure_sums", "least_crossing"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_MOST_FREE: Final = 300
"""Blocks of a cell that may be on either side, up to which a minimum cut is looked for."""


@dataclass(frozen=True)
class Cells:
    """Intervals of compute, ascending; the first is the empty cut, the last the whole graph.

    A cut of a cell computes from `least` to `most` ms; blocks v with first_in[v] <= cell are surely
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
        out = np.tril(np.ones((len(self), len(self)), dtype=np.bool_), -1)
        out[0, 0] = out[-1, -1] = True
        return out

    def compute_ms(self, values: Sequence[float]) -> Floats:
        """The least compute of a stage from a cut of cell i to one of cell j."""
        apart = self.least[None, :] - self.most[:, None]
        return np.maximum(np.maximum(apart, self.pairs(values)), 0.0)

    def pairs(self, values: Sequence[float]) -> Floats:
        """Sum of values over the blocks that are surely not in cut i and surely in cut j."""
        size = len(self.least)
        out = np.zeros((size, size))
        known = (self.first_in < size) & (self.last_out >= 0)
        index = (self.last_out[known], self.first_in[known])
        np.add.at(out, index, np.asarray(values, dtype=np.float64)[known])
        return np.flip(np.flip(out, 0).cumsum(0), 0).cumsum(1)


@dataclass(frozen=True)
class CellSums:
    """Cells of a graph, with lower bounds: `compute_ms[i,j]` and `weights[i,j]` (bytes) of a stage
    between cuts of cells i and j, `crossing[i]` (bytes) of a cut of cell i."""

    cells: Cells
    compute_ms: Floats
    weights: Floats
    crossing: Floats


def cell_sums(reduced: ReducedGraph, most: int) -> CellSums:
    """All that is sure of cuts in at most so many cells (and two)."""
    cells = cells_of(reduced, most)
    return CellSums(
        cells,
        cells.compute_ms(reduced.compute_ms),
        cells.pairs(reduced.parameter_bytes),
        least_crossing(reduced, cells),
    )


def cells_of(reduced: ReducedGraph, most: int) -> Cells:
    """Intervals between the breakpoints at which what is sure changes, thinned out to `most`."""
    values = np.asarray(reduced.compute_ms)
    total = float(values.sum())
    eps = total * 1e-9
    down = closure_sums(reduced.ancestors, values)
    up = closure_sums(reduced.descendants, values)
    rest = total - up
    breaks = np.unique(np.concatenate(([0.0], down, rest)))
    breaks = breaks[np.concatenate(([True], np.diff(breaks) > 4 * eps))]
    if len(breaks) > most:
        wanted = np.linspace(0.0, total, most)
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
    highest = np.minimum(ceiling, possible + eps)
    least[0] = highest[0] = 0.0
    least[-1] = highest[-1] = total
    return Cells(np.maximum(least, 0.0), np.maximum(highest, 0.0), first_in, last_out)


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


def least_crossing(reduced: ReducedGraph, cells: Cells) -> Floats:
    """The least that crosses any cut of each cell: what surely crosses, and a minimum cut over the
    blocks that are not sure."""
    size = len(cells)
    surely = np.zeros(size + 1)
    touching: list[list[int]] = [[] for _ in range(len(reduced))]
    for number, tensor in enumerate(reduced.tensors):
        first = int(cells.first_in[tensor.producer])
        last = max(int(cells.last_out[w]) for w in tensor.consumers)
        if first <= last:
            surely[first] += tensor.bytes_
            surely[last + 1] -= tensor.bytes_
        for v in (tensor.producer, *tensor.consumers):
            touching[v].append(number)
    out = surely.cumsum()[:-1]
    for i in range(1, size - 1):
        free = np.flatnonzero((cells.first_in > i) & (cells.last_out < i))
        if 0 < len(free) <= _MOST_FREE:
            out[i] += _least_cut(reduced, cells, i, [int(v) for v in free], touching)
    return out


def _least_cut(
    reduced: ReducedGraph, cells: Cells, cell: int, free: list[int], touching: list[list[int]]
) -> int:
    """Least bytes that cross a cut of a cell, besides what surely does.

    Minimum cut between "in" and "out": a tensor's producer feeds a node of its own, from where an
    unbounded edge leads to every reader, and a block in the cut forces its producers in.
    """
    sure, gone = cells.first_in <= cell, cells.last_out >= cell
    undecided = set(free)
    flow = nx.DiGraph()

    def node(v: int) -> int | str:
        return v if v in undecided else "in" if sure[v] else "out"

    for number in sorted({number for v in free for number in touching[v]}):
        tensor = reduced.tensors[number]
        if gone[tensor.producer] or all(sure[w] for w in tensor.consumers):
            continue
        if sure[tensor.producer] and any(gone[w] for w in tensor.consumers):
            continue
        hub = ("tensor", number)
        flow.add_edge(node(tensor.producer), hub, capacity=tensor.bytes_)
        for w in tensor.consumers:
            if not sure[w]:
                flow.add_edge(hub, node(w))
    if "in" not in flow or "out" not in flow:
        return 0
    for v in free:
        for w in reduced.readers[v]:
            if w in undecided:
                flow.add_edge(w, v)
    return int(nx.minimum_cut_value(flow, "in", "out"))
