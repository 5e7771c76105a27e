"""The least that crosses a cut of which the compute before it is known, up to an interval.

What is sure of such a cut leaves blocks free, and a minimum cut over those bounds what crosses.
It may compute less than the interval demands: then every cut of the interval holds one of the
blocks that come next, and a branch for each of these gives a better bound, their least; likewise
where it computes more. Where some minimum cuts compute less and others more, a block between them
is in or not. Branches are opened best first, up to a stated number of minimum cuts.
"""

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeplan.solver.clock import Pause
from pipeplan.solver.reduce import ReducedGraph

__all__ = ["CellCuts"]

_MOST_FREE = 600
"""Blocks that may be on either side, up to which a minimum cut is looked for."""
_MOST_FLOW = 2**50
"""Sum of capacities up to which bytes are counted singly: far from the overflow of 64 bits."""


@dataclass(frozen=True, order=True)
class _Node:
    """What is demanded of a cut, as bits of blocks, and the least that crosses one: `smallest` and
    `largest` are such cuts."""

    bytes_: int
    sure: int
    gone: int
    smallest: int
    largest: int


class CellCuts:
    """Minimum cuts of one graph; `nodes` of them for each interval. `pause` is called before each
    and may raise."""

    def __init__(self, reduced: ReducedGraph, nodes: int, pause: Pause) -> None:
        self.reduced = reduced
        self.nodes = nodes
        self.pause = pause
        self.whole = (1 << len(reduced)) - 1
        self._compute = np.array(reduced.compute_ms)
        self._width = -(-len(reduced) // 8)
        self.slack_ms = float(self._compute.sum()) * 1e-9
        self._before: list[int] = [0] * len(reduced)
        self._behind: list[int] = [0] * len(reduced)
        for a, b in reduced.edges:
            self._before[b] |= 1 << a
            self._behind[a] |= 1 << b
        self._touching: list[list[int]] = [[] for _ in range(len(reduced))]
        for number, tensor in enumerate(reduced.tensors):
            for v in (tensor.producer, *tensor.consumers):
                self._touching[v].append(number)

    def least(
        self, least_ms: float, most_ms: float, sure: int, gone: int
    ) -> tuple[int, tuple[int, ...]]:
        """Bytes that cross every cut which computes from `least_ms` to `most_ms`, holds the blocks
        `sure` and none of `gone` (bits), less those of tensors that surely cross: at least so many.
        Second, cuts that attain a bound, as bits; none where the free blocks are too many."""
        free = self._members(self.whole & ~sure & ~gone)
        if not free:
            return 0, (sure,)
        if len(free) > _MOST_FREE:
            return 0, ()
        numbers = sorted({i for v in free for i in self._touching[v]})
        # What surely crosses the cuts of the interval is counted by the caller.
        numbers = [i for i in numbers if not self._crosses(i, sure, gone)]
        root = self._node(sure, gone, numbers)
        if root is None:
            return 0, ()
        heap = [root]
        found = dict.fromkeys((root.smallest, root.largest))
        bound, left = root.bytes_, self.nodes - 1
        while heap:
            node = heapq.heappop(heap)
            bound = node.bytes_
            found.update(dict.fromkeys((node.smallest, node.largest)))
            branches = self._branches(node, least_ms, most_ms)
            if not branches or len(branches) > left:
                break
            left -= len(branches)
            for branch in branches:
                child = self._node(*branch, numbers)
                if child is None:
                    return bound, tuple(found)
                heapq.heappush(heap, child)
        return bound, tuple(found)

    def _branches(self, node: _Node, least_ms: float, most_ms: float) -> list[tuple[int, int]]:
        """What to demand instead of a node, one of which every cut of the interval meets; none
        where one of the node's own cuts lies in it."""
        out: list[tuple[int, int]] = []
        sure, gone = node.sure, node.gone
        low, high = least_ms - self.slack_ms, most_ms + self.slack_ms
        smallest, largest = self._compute_ms(node.smallest), self._compute_ms(node.largest)
        if smallest < low and largest > high:
            between = self._members(node.largest & ~node.smallest)
            v = between[len(between) // 2]
            out = [
                (sure | self.reduced.ancestors[v], gone),
                (sure, gone | self.reduced.descendants[v]),
            ]
        elif largest < low:
            for v in self._members(self.whole & ~node.largest & ~gone):
                if not self._before[v] & ~node.largest:
                    out.append((sure | self.reduced.ancestors[v], gone))
                    gone |= self.reduced.descendants[v]
        elif smallest > high:
            for v in self._members(node.smallest & ~sure):
                if not self._behind[v] & node.smallest:
                    out.append((sure, gone | self.reduced.descendants[v]))
                    sure |= self.reduced.ancestors[v]
        return [
            (inside, outside)
            for inside, outside in out
            if not inside & outside
            and self._compute_ms(inside) <= high
            and self._compute_ms(self.whole & ~outside) >= low
        ]

    def _compute_ms(self, blocks: int) -> float:
        return float(self._flags(blocks) @ self._compute)

    def _members(self, blocks: int) -> list[int]:
        """The blocks of a bit set, ascending."""
        found: list[int] = np.flatnonzero(self._flags(blocks)).tolist()
        return found

    def _flags(self, blocks: int) -> npt.NDArray[np.uint8]:
        raw = np.frombuffer(blocks.to_bytes(self._width, "little"), dtype=np.uint8)
        return np.unpackbits(raw, count=len(self.reduced), bitorder="little")

    def _crosses(self, number: int, sure: int, gone: int) -> bool:
        tensor = self.reduced.tensors[number]
        return bool(sure >> tensor.producer & 1) and any(gone >> w & 1 for w in tensor.consumers)

    def _node(self, sure: int, gone: int, numbers: list[int]) -> _Node | None:
        """The minimum cut that meets demands, None where the library finds none.

        Between "in" (0) and "out" (1): a tensor's producer feeds a node of its own, from where an
        unbounded edge leads to every reader, and a block in the cut forces its producers in.
        """
        from ortools.graph.python import max_flow  # type: ignore[import-untyped]

        self.pause()
        free = self._members(self.whole & ~sure & ~gone)
        node = {v: n for n, v in enumerate(free, start=2)}
        crossing = 0
        tensors = []
        for number in numbers:
            tensor = self.reduced.tensors[number]
            if self._crosses(number, sure, gone):
                crossing += tensor.bytes_
            elif not gone >> tensor.producer & 1 and not all(
                sure >> w & 1 for w in tensor.consumers
            ):
                tensors.append(tensor)
        whole = sum(tensor.bytes_ for tensor in tensors)
        # Rounded down, a capacity still gives a lower bound.
        unit = whole // _MOST_FLOW + 1
        unbounded = whole // unit + 1
        arcs = [(0, 1, 0)]
        for hub, tensor in enumerate(tensors, start=2 + len(free)):
            arcs.append((node.get(tensor.producer, 0), hub, tensor.bytes_ // unit))
            # A reader that is neither free nor sure is out.
            arcs += [
                (hub, node.get(w, 1), unbounded) for w in tensor.consumers if not sure >> w & 1
            ]
        for v, n in node.items():
            arcs += [(node[w], n, unbounded) for w in self.reduced.readers[v] if w in node]
        flow = max_flow.SimpleMaxFlow()
        tails, heads, capacities = np.array(arcs, dtype=np.int64).T
        flow.add_arcs_with_capacity(tails.astype(np.int32), heads.astype(np.int32), capacities)
        if flow.solve(0, 1) != flow.OPTIMAL:
            return None
        inside, outside = set(flow.get_source_side_min_cut()), set(flow.get_sink_side_min_cut())
        smallest = sum(1 << v for v, n in node.items() if n in inside)
        largest = sum(1 << v for v, n in node.items() if n not in outside)
        return _Node(
            crossing + int(flow.optimal_flow()) * unit, sure, gone, sure | smallest, sure | largest
        )
