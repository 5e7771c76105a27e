"""Which replica of a stage feeds which replica of the next: pairing is local first (DESIGN 4.1)."""

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from heapq import heapify, heapreplace
from itertools import pairwise
from math import lcm

from pipeplan.core.cluster import Cluster
from pipeplan.core.plan import Plan

__all__ = ["Route", "micro_batch_paths", "routes", "routing_cycle"]


@dataclass(frozen=True, slots=True)
class Route:
    """A share of all micro-batches that passes from one rank to a rank of the next stage."""

    source: int
    target: int
    share: Fraction


def routes(cluster: Cluster, source: tuple[int, ...], target: tuple[int, ...]) -> tuple[Route, ...]:
    """Pair two stages' replicas, innermost groups first, so that only the excess leaves a group.

    Every source sends 1/len(source) of the micro-batches and every target receives 1/len(target).
    Routes come by source and target; there are fewer than replicas of both stages together.
    """
    # In units of 1/(len(source) * len(target)) all shares are whole.
    unit = len(source) * len(target)
    supply = [(rank, len(target)) for rank in sorted(source)]
    demand = [(rank, len(source)) for rank in sorted(target)]
    out: list[Route] = []
    for size in cluster.group_sizes[1:]:
        takers_of: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for rank, amount in reversed(demand):
            takers_of[rank // size].append((rank, amount))
        left: list[tuple[int, int]] = []
        for rank, amount in supply:
            takers = takers_of[rank // size]
            rest = amount
            while rest and takers:
                to, wanted = takers.pop()
                passed = min(rest, wanted)
                out.append(Route(rank, to, Fraction(passed, unit)))
                rest -= passed
                if wanted > passed:
                    takers.append((to, wanted - passed))
            if rest:
                left.append((rank, rest))
        supply = left
        demand = sorted(x for takers in takers_of.values() for x in takers)
    return tuple(sorted(out, key=lambda route: (route.source, route.target)))


def routing_cycle(cluster: Cluster, plan: Plan) -> int:
    """Micro-batches after which the routing repeats itself."""
    parts = [
        route.share.denominator
        for a, b in pairwise(plan.stages)
        for route in routes(cluster, a.ranks, b.ranks)
    ]
    return lcm(*parts, *(stage.replicas for stage in plan.stages))


def micro_batch_paths(cluster: Cluster, plan: Plan, count: int) -> list[tuple[int, ...]]:
    """The rank of each stage that processes micro-batch 0, 1, ..., count-1.

    Micro-batches are dealt in turn: each goes to the rank that is furthest behind its share, of the
    routes that leave the rank it is on. Over a whole cycle the shares are met exactly: by induction
    a rank's micro-batches of a cycle are as many as its routes are due by the end of it.
    """
    first = plan.stages[0].ranks
    queues = [_due(routes(cluster, a.ranks, b.ranks)) for a, b in pairwise(plan.stages)]
    paths: list[tuple[int, ...]] = []
    for m in range(count):
        rank = first[m % len(first)]
        path = [rank]
        for queue_of in queues:
            # Earliest due first: the k-th micro-batch of a route is due at k / share.
            due, rank, interval = queue_of[rank][0]
            heapreplace(queue_of[path[-1]], (due + interval, rank, interval))
            path.append(rank)
        paths.append(tuple(path))
    return paths


def _due(following: tuple[Route, ...]) -> dict[int, list[tuple[int, int, int]]]:
    """For each source a heap of (when the next micro-batch of a route is due, target, interval).

    Times are whole numbers: in units in which 1 / share is whole for all routes of the source.
    """
    leaving: dict[int, list[Route]] = defaultdict(list)
    for route in following:
        leaving[route.source].append(route)
    out: dict[int, list[tuple[int, int, int]]] = {}
    for source, options in leaving.items():
        unit = lcm(*(x.share.numerator for x in options))
        intervals = [unit // x.share.numerator * x.share.denominator for x in options]
        out[source] = [(n, x.target, n) for n, x in zip(intervals, options, strict=True)]
        heapify(out[source])
    return out
