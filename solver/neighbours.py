"""Ideals near a given one: blocks added and taken away one by one, the least crossing first."""

import heapq
from dataclasses import dataclass
from typing import Final

from pipeplan.solver.reduce import ReducedGraph

__all__ = ["Neighbours"]

_STEP: Final = 0.15
"""What a step away weighs against crossing bytes, as a share of what crosses at the centre."""


@dataclass(frozen=True, slots=True)
class _Ideal:
    """An ideal on the way: its blocks as bits, the bytes that cross, the compute added (ms), and
    the blocks that may be added or taken away."""

    mask: int
    crossing: int
    added_ms: float
    ready: tuple[int, ...]
    last: tuple[int, ...]


class Neighbours:
    """Neighbourhoods in the lattice of ideals of a graph."""

    def __init__(self, reduced: ReducedGraph) -> None:
        size = len(reduced)
        self.reduced = reduced
        self.needs = [0] * size
        self.behind = [0] * size
        self.before: list[list[int]] = [[] for _ in range(size)]
        for a, b in reduced.edges:
            self.needs[b] |= 1 << a
            self.behind[a] |= 1 << b
            self.before[b].append(a)
        self.made: list[list[int]] = [[] for _ in range(size)]
        self.read: list[list[int]] = [[] for _ in range(size)]
        for i, tensor in enumerate(reduced.tensors):
            self.made[tensor.producer].append(i)
            for w in tensor.consumers:
                self.read[w].append(i)
        self.bytes_ = [tensor.bytes_ for tensor in reduced.tensors]
        self.readers = [sum(1 << w for w in tensor.consumers) for tensor in reduced.tensors]

    def near(self, mask: int, count: int, reach_ms: float) -> list[int]:
        """At most `count` ideals around one (itself included) that compute at most `reach_ms` more
        or less, those first that are few steps away and that little crosses."""
        centre = self._centre(mask)
        scale = max(centre.crossing, 1)
        seen = {mask}
        # The number breaks ties in the order of discovery.
        heap: list[tuple[float, int, int, _Ideal, int]] = [(0.0, 0, 0, centre, -1)]
        out: list[int] = []
        while heap and len(out) < count:
            _, steps, _, ideal, block = heapq.heappop(heap)
            if block >= 0:
                ideal = self._settled(ideal, block)
            out.append(ideal.mask)
            for b in (*ideal.ready, *ideal.last):
                grown = self._moved(ideal, b)
                if grown.mask not in seen and abs(grown.added_ms) <= reach_ms:
                    seen.add(grown.mask)
                    key = grown.crossing / scale + _STEP * (steps + 1)
                    heapq.heappush(heap, (key, steps + 1, len(seen), grown, b))
        return out

    def _centre(self, mask: int) -> _Ideal:
        blocks = range(len(self.reduced))
        crossing = sum(
            size
            for i, size in enumerate(self.bytes_)
            if mask >> self.reduced.tensors[i].producer & 1 and self.readers[i] & ~mask
        )
        ready = tuple(v for v in blocks if not mask >> v & 1 and not self.needs[v] & ~mask)
        last = tuple(v for v in blocks if mask >> v & 1 and not self.behind[v] & mask)
        return _Ideal(mask, crossing, 0.0, ready, last)

    def _moved(self, ideal: _Ideal, b: int) -> _Ideal:
        """With block b put in or taken out; what may be moved next is still that of before."""
        mask = ideal.mask ^ 1 << b
        sign = 1 if mask > ideal.mask else -1
        larger = max(mask, ideal.mask)
        change = sum(self.bytes_[i] for i in self.made[b])
        change -= sum(self.bytes_[i] for i in self.read[b] if not self.readers[i] & ~larger)
        added = ideal.added_ms + sign * self.reduced.compute_ms[b]
        return _Ideal(mask, ideal.crossing + sign * change, added, ideal.ready, ideal.last)

    def _settled(self, ideal: _Ideal, b: int) -> _Ideal:
        """With what may be moved next, after block b was moved."""
        mask = ideal.mask
        if mask >> b & 1:
            fresh = (w for w in self.reduced.readers[b] if not self.needs[w] & ~mask)
            ready = (*(x for x in ideal.ready if x != b), *fresh)
            last = (*(x for x in ideal.last if not self.needs[b] >> x & 1), b)
        else:
            freed = (w for w in self.before[b] if not self.behind[w] & mask)
            ready = (*(x for x in ideal.ready if not self.behind[b] >> x & 1), b)
            last = (*(x for x in ideal.last if x != b), *freed)
        return _Ideal(mask, ideal.crossing, ideal.added_ms, ready, last)
