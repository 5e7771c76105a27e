"""Pairs of nested ideals: which cut may follow which, by compute windows.

Some ideals are comparable to every other one: the network's bottlenecks, such as the ends of its
modules. They divide the table into segments, and any ideal of an earlier segment lies inside any of
a later one. So containment needs a test within a segment only, and of the cuts of one segment only
those that no other beats in every respect can matter to cuts of later ones.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pipeplan.core.problem import Problem
from pipeplan.solver.clock import Pause
from pipeplan.solver.ideals import IdealTable

__all__ = ["Pairs", "usable"]

Ints = npt.NDArray[np.int64]


def usable(problem: Problem, table: IdealTable) -> IdealTable | None:
    """The table without ideals that no valid chain holds: forbidden cuts, and those beside a forced
    one. None where a forced cut is itself no ideal of the table (it splits layers kept together, or
    is forbidden too)."""
    asked = problem.constraints
    keep = np.ones(len(table), dtype=np.bool_)
    for cut in asked.forbidden_cuts:
        index = table.index_of(cut)
        if index is not None:
            keep[index] = False
    forced = [table.index_of(cut) for cut in asked.forced_cuts]
    for index in forced:
        if index is None or not keep[index]:
            return None
        inside = ~(table.masks & ~table.masks[index]).any(axis=1)
        keep &= inside | table.subset_of(index)
    if any(index is not None and not keep[index] for index in forced):
        return None
    return table if keep.all() else table.take(keep)


class Pairs:
    """Nested pairs (i, j) of a usable table that skip no forced cut."""

    def __init__(self, problem: Problem, table: IdealTable) -> None:
        self.table = table
        forced = sorted(
            {
                index
                for cut in problem.constraints.forced_cuts
                if (index := table.index_of(cut)) is not None
            }
        )
        count = len(table)
        stops = np.array([*forced, count - 1], dtype=np.int64)
        self.stop: Ints = stops[
            np.minimum(np.searchsorted(stops, np.arange(count), side="right"), len(stops) - 1)
        ]
        """For each ideal the next forced cut (the whole graph after the last one): a stage that
        begins at the ideal may reach as far and no further."""
        self._holds: dict[int, npt.NDArray[np.bool_]] = {}

    def holds(self, layer: int) -> npt.NDArray[np.bool_]:
        """Which ideals hold a layer."""
        if layer not in self._holds:
            block = self.table.reduced.block_of[layer]
            word = self.table.masks[:, block // 64]
            self._holds[layer] = (word >> np.uint64(block % 64) & np.uint64(1)).astype(np.bool_)
        return self._holds[layer]

    @cached_property
    def segment(self) -> Ints:
        """Segment of each ideal; an ideal that all others compare to closes its segment."""
        masks = self.table.masks
        below = np.bitwise_or.accumulate(masks, axis=0)
        above = np.bitwise_and.accumulate(masks[::-1], axis=0)[::-1]
        closes = ((below == masks) & (above == masks)).all(axis=1)
        out = np.zeros(len(masks), dtype=np.int64)
        out[1:] = np.cumsum(closes)[:-1]
        return out

    @cached_property
    def segment_end(self) -> Ints:
        """For each ideal the index after the last one of its segment."""
        return np.searchsorted(self.segment, self.segment, side="right").astype(np.int64)

    def supersets(self, index: int, low: int, high: int) -> Ints:
        """Ideals in [low, high) that properly contain ideal `index`, within its segment or not."""
        masks = self.table.masks
        good = np.ones(high - low, dtype=np.bool_)
        for word in range(masks.shape[1]):
            own = masks[index, word]
            if own:
                good &= (masks[low:high, word] & own) == own
        if low <= index < high:
            good[index - low] = False
        return np.flatnonzero(good).astype(np.int64) + low

    def followers(self, index: int) -> Ints:
        """All cuts that may come next after cut `index`."""
        return self.supersets(index, index + 1, int(self.stop[index]) + 1)

    @cached_property
    def all(self) -> tuple[Ints, Ints]:
        """Every pair, as (before, after)."""
        found = [self.followers(i) for i in range(len(self.table))]
        before = np.repeat(np.arange(len(found), dtype=np.int64), [len(x) for x in found])
        return before, np.concatenate(found)

    def local(
        self, ideals: Ints, lows: Ints, highs: Ints, chunk: int, pause: Pause
    ) -> Iterator[tuple[Ints, Ints]]:
        """Pairs (row of `ideals`, successor in [lows[row], highs[row])) within one segment.

        `ideals` ascend, so that rows of one ideal stand together and are looked up once. `pause`
        is called now and then and may raise.
        """
        first = np.maximum(lows, ideals + 1)
        end = np.minimum(np.minimum(highs, self.segment_end[ideals]), self.stop[ideals] + 1)
        rows: list[Ints] = []
        nexts: list[Ints] = []
        size, known, found = 0, (-1, -1, -1), np.zeros(0, dtype=np.int64)
        for row in np.flatnonzero(first < end).tolist():
            key = (int(ideals[row]), int(first[row]), int(end[row]))
            if key != known:
                pause()
                known, found = key, self.supersets(*key)
            if found.size:
                rows.append(np.full(found.size, row, dtype=np.int64))
                nexts.append(found)
                size += found.size
                if size >= chunk:
                    yield np.concatenate(rows), np.concatenate(nexts)
                    rows, nexts, size = [], [], 0
        if size:
            yield np.concatenate(rows), np.concatenate(nexts)

    def across(
        self, ideals: Ints, rows: Ints, lows: Ints, highs: Ints, chunk: int
    ) -> Iterator[tuple[Ints, Ints]]:
        """Pairs of the given rows with successors in later segments: all of those are nested."""
        first = np.maximum(lows[rows], self.segment_end[ideals[rows]])
        end = np.minimum(highs[rows], self.stop[ideals[rows]] + 1)
        lengths = np.maximum(end - first, 0)
        edges = np.cumsum(lengths)
        total = int(edges[-1]) if len(edges) else 0
        at = 0
        while at < len(rows) and total:
            done = int(edges[at - 1]) if at else 0
            stop = int(np.searchsorted(edges, done + chunk, side="right"))
            stop = min(len(rows), max(stop, at + 1))
            sizes = lengths[at:stop]
            size = int(sizes.sum())
            if size:
                where = np.repeat(np.arange(at, stop, dtype=np.int64), sizes)
                shift = np.arange(size, dtype=np.int64) - np.repeat(np.cumsum(sizes) - sizes, sizes)
                yield rows[where], first[where] + shift
            at = stop

    def highs(self, ceiling_ms: npt.NDArray[np.float64]) -> Ints:
        """Index after the last ideal that computes at most the ceiling, for each row."""
        return np.searchsorted(self.table.compute_ms, ceiling_ms, side="right").astype(np.int64)

    def lows(self, needs_ms: npt.NDArray[np.float64]) -> Ints:
        """First ideal that computes at least what is needed, for each row."""
        return np.searchsorted(self.table.compute_ms, needs_ms, side="left").astype(np.int64)
