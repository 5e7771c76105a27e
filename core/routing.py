"""Which replica of a stage feeds which replica of the next: pairing is local first (DESIGN 4.1)."""

from dataclasses import dataclass
from fractions import Fraction
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
    """
    supply = {rank: Fraction(1, len(source)) for rank in source}
    demand = {rank: Fraction(1, len(target)) for rank in target}
    out: list[Route] = []
    for size in cluster.group_sizes[1:]:
        for group in sorted({rank // size for rank in supply} & {rank // size for rank in demand}):
            givers = [rank for rank in sorted(supply) if rank // size == group]
            takers = [rank for rank in sorted(demand) if rank // size == group]
            while givers and takers:
                a, b = givers[0], takers[0]
                share = min(supply[a], demand[b])
                out.append(Route(a, b, share))
                for side, rank, queue in ((supply, a, givers), (demand, b, takers)):
                    side[rank] -= share
                    if not side[rank]:
                        del side[rank]
                        queue.pop(0)
    return tuple(sorted(out, key=lambda route: (route.source, route.target)))


def routing_cycle(cluster: Cluster, plan: Plan) -> int:
    """Micro-batches after which the routing repeats itself."""
    pairs = zip(plan.stages, plan.stages[1:], strict=False)
    parts = [
        route.share.denominator for a, b in pairs for route in routes(cluster, a.ranks, b.ranks)
    ]
    return lcm(*parts, *(stage.replicas for stage in plan.stages))


def micro_batch_paths(cluster: Cluster, plan: Plan, count: int) -> list[tuple[int, ...]]:
    """The rank of each stage that processes micro-batch 0, 1, ..., count-1.

    Micro-batches are dealt in turn: each goes to the rank that is furthest behind its share, of the
    routes that leave the rank it is on. Over a whole cycle the shares are met exactly, and at every
    moment nearly so.
    """
    first = plan.stages[0].ranks
    follow = [
        routes(cluster, a.ranks, b.ranks)
        for a, b in zip(plan.stages, plan.stages[1:], strict=False)
    ]
    sent: list[dict[Route, int]] = [dict.fromkeys(x, 0) for x in follow]
    paths: list[tuple[int, ...]] = []
    for m in range(count):
        path = [first[m % len(first)]]
        for cut, options in enumerate(follow):
            # Earliest due first: the k-th micro-batch of a route is due at k / share.
            leaving = [x for x in options if x.source == path[-1]]
            best = min(leaving, key=lambda x: ((sent[cut][x] + 1) / x.share, x.target))
            sent[cut][best] += 1
            path.append(best.target)
        paths.append(tuple(path))
    return paths
