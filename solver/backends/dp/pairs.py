"""Pairs of nested ideals: which cut may follow which, by compute windows."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pipeplan.core.problem import Problem
from pipeplan.solver.ideals import IdealTable

__all__ = ["Pairs"]

Ints = npt.NDArray[np.int64]
_DENSE = 4096
"""Up to this many ideals all nested pairs are listed once; beyond, they are found as asked for."""


class Pairs:
    """Nested pairs (i, j) of a table's ideals that the problem's cut constraints allow."""

    def __init__(self, problem: Problem, table: IdealTable) -> None:
        self.table = table
        self.problem = problem
        self._forced = [
            np.array([self._relation(table.layers_of(i), cut) for i in range(len(table))])
            for cut in problem.constraints.forced_cuts
        ]
        self._holds: dict[int, npt.NDArray[np.bool_]] = {}

    @staticmethod
    def _relation(ideal: frozenset[int], cut: frozenset[int]) -> int:
        """-1 strictly inside the cut, 0 equal, 1 strictly around it, 2 neither."""
        if ideal == cut:
            return 0
        if ideal < cut:
            return -1
        return 1 if ideal > cut else 2

    def holds(self, layer: int) -> npt.NDArray[np.bool_]:
        """Which ideals hold a layer."""
        if layer not in self._holds:
            block = self.table.reduced.block_of[layer]
            word = self.table.masks[:, block // 64]
            self._holds[layer] = (word >> np.uint64(block % 64) & np.uint64(1)).astype(np.bool_)
        return self._holds[layer]

    def supersets(self, index: int, low: int, high: int) -> Ints:
        """Ideals in [low, high) that properly contain ideal `index` and may follow it as a cut."""
        masks = self.table.masks
        good = np.ones(high - low, dtype=np.bool_)
        for word in range(masks.shape[1]):
            own = masks[index, word]
            if own:
                good &= (masks[low:high, word] & own) == own
        if low <= index < high:
            good[index - low] = False
        for relation in self._forced:
            follow = relation[low:high]
            here = relation[index]
            if here < 0:
                good &= follow <= 0
            else:
                good &= (follow >= 0) & (follow <= 1) if here <= 1 else False
        return np.flatnonzero(good).astype(np.int64) + low

    @cached_property
    def dense(self) -> tuple[Ints, Ints]:
        """All pairs as (offsets, successors): those of i are successors[offsets[i]:offsets[i+1]]."""
        count = len(self.table)
        found = [self.supersets(i, i + 1, count) for i in range(count)]
        offsets = np.zeros(count + 1, dtype=np.int64)
        np.cumsum([len(x) for x in found], out=offsets[1:])
        return offsets, np.concatenate(found) if found else np.zeros(0, dtype=np.int64)

    def between(
        self,
        ideals: Ints,
        need_ms: float,
        ceiling_ms: npt.NDArray[np.float64],
        *,
        last: bool,
        chunk: int,
    ) -> Iterator[tuple[Ints, Ints]]:
        """Pairs (row of `ideals`, successor) whose successor computes at least `need_ms` and at most
        the row's `ceiling_ms`; with `last`, only the whole graph may follow."""
        compute, count = self.table.compute_ms, len(self.table)
        low = count - 1 if last else int(np.searchsorted(compute, need_ms, side="left"))
        highs = np.searchsorted(compute, ceiling_ms, side="right").astype(np.int64)
        if count <= _DENSE:
            yield from self._dense_between(ideals, low, highs, chunk)
            return
        rows: list[Ints] = []
        nexts: list[Ints] = []
        size = 0
        cache: dict[tuple[int, int], Ints] = {}
        for row, (ideal, high) in enumerate(zip(ideals.tolist(), highs.tolist(), strict=True)):
            first = max(low, ideal + 1)
            if first >= high:
                continue
            key = (ideal, high)
            if key not in cache:
                cache = {key: self.supersets(ideal, first, high)}
            found = cache[key]
            if found.size:
                rows.append(np.full(found.size, row, dtype=np.int64))
                nexts.append(found)
                size += found.size
                if size >= chunk:
                    yield np.concatenate(rows), np.concatenate(nexts)
                    rows, nexts, size = [], [], 0
        if size:
            yield np.concatenate(rows), np.concatenate(nexts)

    def _dense_between(
        self, ideals: Ints, low: int, highs: Ints, chunk: int
    ) -> Iterator[tuple[Ints, Ints]]:
        offsets, successors = self.dense
        count = np.int64(len(self.table) + 1)
        # One sorted key for (ideal, successor) lets a single search find every row's window.
        keys = self._keys
        begin = np.searchsorted(keys, ideals * count + low).astype(np.int64)
        end = np.searchsorted(keys, ideals * count + highs).astype(np.int64)
        begin = np.maximum(begin, offsets[ideals])
        lengths = np.maximum(end - begin, 0)
        edges = np.cumsum(lengths)
        total = int(edges[-1]) if len(edges) else 0
        at = 0
        while at < len(ideals) and total:
            done = int(edges[at - 1]) if at else 0
            stop = int(np.searchsorted(edges, done + chunk, side="right"))
            stop = min(len(ideals), max(stop, at + 1))
            sizes = lengths[at:stop]
            size = int(sizes.sum())
            if size:
                rows = np.repeat(np.arange(at, stop, dtype=np.int64), sizes)
                shift = np.arange(size, dtype=np.int64) - np.repeat(np.cumsum(sizes) - sizes, sizes)
                yield rows, successors[begin[rows] + shift]
            at = stop

    @cached_property
    def _keys(self) -> Ints:
        offsets, successors = self.dense
        count = np.int64(len(self.table) + 1)
        owner = np.repeat(np.arange(len(self.table), dtype=np.int64), np.diff(offsets))
        return owner * count + successors
