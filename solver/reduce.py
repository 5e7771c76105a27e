"""Exact contraction before solving: layers that no valid plan can separate become one block.

Two kinds of layers are inseparable: those that `Problem.together` puts in one stage (tied weights,
a tuple and its items, an in-place operation and its producer, what the asker demands), and those
that lie between two of them. A stage is a difference of two ideals and hence convex, so the blocks
are the strongly connected components of the graph with every group closed to a cycle. Nothing else
is merged: every plan of the problem is a plan of the contracted graph and the other way round.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import networkx as nx  # type: ignore[import-untyped]

from pipeplan.core.graph import LayerGraph
from pipeplan.core.problem import Problem

__all__ = ["Feed", "ReducedGraph", "Tensor", "reduce_graph"]

_REACHABILITY_LIMIT: Final = 20_000
"""Blocks up to which reachability is kept, as bit sets: 50 MB each way."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Outputs that cross a cut together: all of one block and read by the same blocks.

    `consumers` holds the maximal readers alone (an ideal that lacks a reader lacks a maximal one,
    for what comes after a missing block is missing too). `bytes_` is the sum of the outputs.
    """

    producer: int
    consumers: tuple[int, ...]
    bytes_: int


@dataclass(frozen=True, slots=True)
class Feed:
    """A network input: enters with the first stage that reads it. `consumers`: minimal readers."""

    consumers: tuple[int, ...]
    bytes_: int


@dataclass(frozen=True)
class ReducedGraph:
    """Blocks of layers in topological order, with what planning needs of each.

    `edges` are those of the transitive reduction (all of them, beyond the size up to which
    reachability is kept). `compute_ms` and the byte sums are per micro-batch, as in `Layer`.
    """

    problem: Problem
    members: tuple[tuple[int, ...], ...]
    edges: tuple[tuple[int, int], ...]
    tensors: tuple[Tensor, ...]
    feeds: tuple[Feed, ...]

    def __len__(self) -> int:
        return len(self.members)

    @cached_property
    def block_of(self) -> tuple[int, ...]:
        """Block of each layer."""
        out = [0] * len(self.problem.graph)
        for block, layers in enumerate(self.members):
            for v in layers:
                out[v] = block
        return tuple(out)

    @cached_property
    def compute_ms(self) -> tuple[float, ...]:
        """Forward plus backward of each block."""
        return tuple(self.problem.graph.compute_ms(layers) for layers in self.members)

    @cached_property
    def parameter_bytes(self) -> tuple[int, ...]:
        """Parameters of each block."""
        return tuple(self.problem.graph.parameter_bytes(layers) for layers in self.members)

    @cached_property
    def kept_bytes(self) -> tuple[int, ...]:
        """What each block keeps for the backward pass of one micro-batch."""
        layers = self.problem.graph.layers
        return tuple(sum(layers[v].kept_bytes for v in block) for block in self.members)

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """For each block the ends of its edges."""
        out: list[list[int]] = [[] for _ in self.members]
        for a, b in self.edges:
            out[a].append(b)
        return tuple(map(tuple, out))

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """For each block a bit set of itself and everything before it."""
        above = [1 << b for b in range(len(self))]
        for a, b in sorted(self.edges, key=lambda edge: (edge[1], edge[0])):
            above[b] |= above[a]
        return tuple(above)

    @cached_property
    def descendants(self) -> tuple[int, ...]:
        """For each block a bit set of itself and everything after it."""
        below = [1 << b for b in range(len(self))]
        for a, b in sorted(self.edges, reverse=True):
            below[a] |= below[b]
        return tuple(below)

    def layers(self, blocks: Iterable[int]) -> tuple[int, ...]:
        """Layers of some blocks, ascending."""
        return tuple(sorted(v for block in blocks for v in self.members[block]))

    def ends(self, cut: frozenset[int]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Maximal blocks inside a cut and minimal blocks outside it; None if it splits a block.

        An ideal equals the cut exactly where it holds all of the first and none of the second.
        """
        inside = {b for b in range(len(self)) if self.members[b][0] in cut}
        if any((v in cut) != (self.block_of[v] in inside) for v in range(len(self.block_of))):
            return None
        last = {a for a, b in self.edges if a in inside and b in inside}
        first = {b for a, b in self.edges if a not in inside and b not in inside}
        outside = set(range(len(self))) - inside
        return tuple(sorted(inside - last)), tuple(sorted(outside - first))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What was contracted, in words; empty where nothing was."""
        graph = self.problem.graph
        merged = [block for block in self.members if len(block) > 1]
        if not merged:
            return ()
        count = sum(map(len, merged))
        out = [
            f"{count} of {len(graph)} layers were contracted to {len(merged)}, so that "
            f"{len(self)} are placed"
        ]
        reasons: dict[int, str] = {}
        for group in graph.together:
            reasons.setdefault(self.block_of[graph.index[group.layers[0]]], group.reason)
        for members in merged[:8]:
            names = [graph.layers[v].id for v in members]
            shown = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
            why = reasons.get(self.block_of[members[0]], "asked for, or between such layers")
            out.append(f"together: {shown} ({why})")
        return tuple(out)


def reduce_graph(problem: Problem) -> ReducedGraph:
    """Contract what no valid plan separates."""
    graph = problem.graph
    joined: nx.DiGraph = nx.DiGraph()
    joined.add_nodes_from(range(len(graph)))
    joined.add_edges_from(graph.edges)
    for group in problem.together:
        joined.add_edges_from(zip(group, (*group[1:], group[0]), strict=True))
    parts = sorted(tuple(sorted(part)) for part in nx.strongly_connected_components(joined))
    part_of = {v: i for i, part in enumerate(parts) for v in part}
    condensed: nx.DiGraph = nx.DiGraph()
    condensed.add_nodes_from(range(len(parts)))
    condensed.add_edges_from(
        (part_of[a], part_of[b]) for a, b in joined.edges if part_of[a] != part_of[b]
    )
    order = list(nx.lexicographical_topological_sort(condensed))
    rank = {part: b for b, part in enumerate(order)}
    block_of = {v: rank[part] for v, part in part_of.items()}
    edges = sorted((rank[a], rank[b]) for a, b in condensed.edges)
    below = above = None
    if len(order) <= _REACHABILITY_LIMIT:
        below, above = _reach(len(order), edges)
        edges = _reduction(edges, below)
    return ReducedGraph(
        problem,
        tuple(parts[i] for i in order),
        tuple(edges),
        _tensors(graph, block_of, below),
        _feeds(graph, block_of, above),
    )


def _reach(count: int, edges: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """For each block the bit sets of what comes strictly after, and strictly before it."""
    below, above = [0] * count, [0] * count
    for a, b in sorted(edges, reverse=True):
        below[a] |= below[b] | 1 << b
    for a, b in sorted(edges, key=lambda edge: (edge[1], edge[0])):
        above[b] |= above[a] | 1 << a
    return below, above


def _reduction(edges: list[tuple[int, int]], below: list[int]) -> list[tuple[int, int]]:
    """Transitive reduction: an edge goes if another reader of its producer comes before its end.

    networkx has it too, with a Python set a node: a hundred million entries for 10,000 layers.
    """
    behind = [0] * len(below)
    for a, b in edges:
        behind[a] |= below[b]
    return [(a, b) for a, b in edges if not behind[a] >> b & 1]


def _extreme(blocks: set[int], beyond: list[int] | None) -> tuple[int, ...]:
    """Those with no other of the set beyond them; all of them where reachability is unknown."""
    if beyond is None:
        return tuple(sorted(blocks))
    mask = sum(1 << b for b in blocks)
    return tuple(sorted(b for b in blocks if not beyond[b] & mask))


def _tensors(
    graph: LayerGraph, block_of: dict[int, int], below: list[int] | None
) -> tuple[Tensor, ...]:
    merged: dict[tuple[int, tuple[int, ...]], int] = {}
    for v, layer in enumerate(graph.layers):
        readers = {block_of[w] for w in graph.consumers[v]} - {block_of[v]}
        if readers and layer.output_bytes:
            key = (block_of[v], _extreme(readers, below))
            merged[key] = merged.get(key, 0) + layer.output_bytes
    return tuple(Tensor(a, readers, size) for (a, readers), size in sorted(merged.items()))


def _feeds(
    graph: LayerGraph, block_of: dict[int, int], above: list[int] | None
) -> tuple[Feed, ...]:
    merged: dict[tuple[int, ...], int] = {}
    for item in graph.inputs:
        readers = {block_of[graph.index[x]] for x in item.consumers}
        if readers and item.output_bytes:
            key = _extreme(readers, above)
            merged[key] = merged.get(key, 0) + item.output_bytes
    return tuple(Feed(readers, size) for readers, size in sorted(merged.items()))
