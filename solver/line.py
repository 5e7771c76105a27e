"""Topological orders of a graph, and the sums that a pipeline along one of them needs."""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pipeplan.solver.peaks import Peaks
from pipeplan.solver.reduce import ReducedGraph

__all__ = ["Line", "line_of", "topological_orders"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Line:
    """Cut positions along an order, ascending from 0 to the whole, with the sums of what is before.

    `positions` are numbers of blocks, `layers` of layers. `compute_ms`, `weights`, `kept`, `inputs`
    (network inputs read so far) and `crossing` (what crosses the cut) hold one entry a position,
    in bytes but for the first. `forced` entries must be cuts; a forbidden cut has no entry.
    """

    reduced: ReducedGraph
    order: tuple[int, ...]
    positions: Ints
    layers: Ints
    compute_ms: Floats
    weights: Floats
    kept: Floats
    inputs: Floats
    crossing: Floats
    forced: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.positions)

    def take(self, chosen: Iterable[int]) -> "Line":
        """The line with some of its positions alone; the ends and forced ones always stay."""
        last = len(self) - 1
        keep = sorted({0, last, *self.forced, *(i for i in chosen if 0 <= i <= last)})
        index = np.array(keep)
        return replace(
            self,
            positions=self.positions[index],
            layers=self.layers[index],
            compute_ms=self.compute_ms[index],
            weights=self.weights[index],
            kept=self.kept[index],
            inputs=self.inputs[index],
            crossing=self.crossing[index],
            forced=tuple(keep.index(i) for i in self.forced),
        )

    def peaks(self) -> Peaks:
        """Peaks of stages between two entries, none across a forced cut."""
        i, j = np.arange(len(self))[:, None], np.arange(len(self))[None, :]
        barred = np.asarray(i >= j)
        for cut in self.forced:
            barred |= (i < cut) & (cut < j)
        return Peaks(
            self.reduced.problem,
            self.weights[None, :] - self.weights[:, None],
            self.kept[None, :] - self.kept[:, None],
            self.inputs[None, :] - self.inputs[:, None] + self.crossing[:, None],
            barred,
        )

    def slices(self, count: int) -> set[int]:
        """The entry where least crosses, in each of `count` slices of about equal compute."""
        size = len(self)
        even = self.compute_ms[-1] * np.arange(size) / (4 * size)
        share = self.compute_ms + even + 1e-300
        bucket = np.minimum((share / share[-1] * count).astype(int), count - 1)
        order = np.lexsort((np.arange(size), self.crossing, bucket))
        first = np.unique(bucket[order], return_index=True)[1]
        return {int(i) for i in order[first]}

    def blocks(self, first: int, last: int) -> tuple[int, ...]:
        """Blocks between two entries."""
        return self.order[self.positions[first] : self.positions[last]]

    def layers_between(self, first: int, last: int) -> tuple[int, ...]:
        """Layers between two entries."""
        return self.reduced.layers(self.blocks(first, last))


def topological_orders(reduced: ReducedGraph) -> list[tuple[int, ...]]:
    """A few different topological orders: by index from either end, depth first, and the one that
    keeps little crossing. Forced cuts are prefixes of every one of them."""
    cuts = sorted(reduced.problem.constraints.forced_cuts, key=len)
    segment = [
        next((s for s, cut in enumerate(cuts) if members[0] in cut), len(cuts))
        for members in reduced.members
    ]
    least = _LeastCrossing(reduced)
    found = [
        _kahn(reduced, lambda v, when: (segment[v], v)),
        _kahn(reduced, lambda v, when: (segment[v], -v)),
        _kahn(reduced, lambda v, when: (segment[v], -when)),
        least.order(segment),
    ]
    return list(dict.fromkeys(found))


def _kahn(reduced: ReducedGraph, key: Callable[[int, int], tuple[int, int]]) -> tuple[int, ...]:
    """Kahn's order, smallest key first among the ready; `when` is the step that made one ready."""
    waits = [0] * len(reduced)
    for _, b in reduced.edges:
        waits[b] += 1
    heap = [(*key(v, 0), v) for v, count in enumerate(waits) if not count]
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        v = heapq.heappop(heap)[-1]
        order.append(v)
        for w in reduced.readers[v]:
            waits[w] -= 1
            if not waits[w]:
                heapq.heappush(heap, (*key(w, len(order)), w))
    return tuple(order)


class _LeastCrossing:
    """Greedy order: of the ready blocks, next comes the one after which least crosses the cut."""

    def __init__(self, reduced: ReducedGraph) -> None:
        self.reduced = reduced
        self.made: list[list[int]] = [[] for _ in range(len(reduced))]
        self.read: list[list[int]] = [[] for _ in range(len(reduced))]
        for i, tensor in enumerate(reduced.tensors):
            self.made[tensor.producer].append(i)
            for w in tensor.consumers:
                self.read[w].append(i)

    def order(self, segment: list[int]) -> tuple[int, ...]:
        """The order, earlier segments first."""
        reduced = self.reduced
        tensors = reduced.tensors
        left = [len(tensor.consumers) for tensor in tensors]
        waits = [0] * len(reduced)
        for _, b in reduced.edges:
            waits[b] += 1
        ready = [v for v, count in enumerate(waits) if not count]
        out: list[int] = []

        def grown(v: int) -> tuple[int, int, int]:
            freed = sum(tensors[i].bytes_ for i in self.read[v] if left[i] == 1)
            return segment[v], sum(tensors[i].bytes_ for i in self.made[v]) - freed, v

        while ready:
            v = min(ready, key=grown)
            ready.remove(v)
            out.append(v)
            for i in self.read[v]:
                left[i] -= 1
            for w in reduced.readers[v]:
                waits[w] -= 1
                if not waits[w]:
                    ready.append(w)
        return tuple(out)


def line_of(reduced: ReducedGraph, order: tuple[int, ...]) -> Line:
    """Every cut along an order but the forbidden ones."""
    count = len(order)
    place = {v: i for i, v in enumerate(order)}

    def summed(values: Iterable[float]) -> Floats:
        by_block = list(values)
        return np.concatenate(([0.0], np.cumsum([by_block[v] for v in order])))

    crossing = np.zeros(count + 2)
    for tensor in reduced.tensors:
        crossing[place[tensor.producer] + 1] += tensor.bytes_
        crossing[max(place[w] for w in tensor.consumers) + 1] -= tensor.bytes_
    inputs = np.zeros(count + 1)
    for feed in reduced.feeds:
        inputs[min(place[v] for v in feed.consumers) + 1] += feed.bytes_
    asked = reduced.problem.constraints
    layers = np.cumsum([0, *(len(reduced.members[v]) for v in order)])
    at = {int(size): i for i, size in enumerate(layers)}

    def entry(cut: frozenset[int]) -> int | None:
        """The position whose prefix is a cut."""
        i = at.get(len(cut))
        return i if i is not None and set(reduced.layers(order[:i])) == cut else None

    line = Line(
        reduced=reduced,
        order=order,
        positions=np.arange(count + 1),
        layers=layers,
        compute_ms=summed(reduced.compute_ms),
        weights=summed(reduced.parameter_bytes),
        kept=summed(reduced.kept_bytes),
        inputs=np.cumsum(inputs),
        crossing=np.cumsum(crossing)[: count + 1],
        forced=tuple(sorted(i for i in map(entry, asked.forced_cuts) if i is not None)),
    )
    forbidden = {entry(cut) for cut in asked.forbidden_cuts} - set(line.forced)
    return line.take(i for i in range(count + 1) if i not in forbidden)
