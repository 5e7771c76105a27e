"""Shares add up, only the excess leaves a group, and micro-batches meet the shares exactly."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeplan.core.cluster import Cluster
from pipeplan.core.plan import Plan, Stage
from pipeplan.core.routing import Route, micro_batch_paths, routes, routing_cycle


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_routes_are_fair_and_local_first(data: st.DataObject, make: SimpleNamespace) -> None:
    cluster = data.draw(make.clusters(16))
    ranks = data.draw(st.permutations(range(cluster.devices)))
    if cluster.devices < 2:
        return
    middle = data.draw(st.integers(1, cluster.devices - 1))
    end = data.draw(st.integers(middle + 1, cluster.devices))
    source, target = tuple(sorted(ranks[:middle])), tuple(sorted(ranks[middle:end]))
    found = routes(cluster, source, target)

    assert len(found) < len(source) + len(target)
    assert list(found) == sorted(found, key=lambda x: (x.source, x.target))
    assert len({(x.source, x.target) for x in found}) == len(found)
    sent: Counter[int] = Counter()
    received: Counter[int] = Counter()
    for route in found:
        assert route.share > 0
        sent[route.source] += route.share
        received[route.target] += route.share
    assert sent == {rank: Fraction(1, len(source)) for rank in source}
    assert received == {rank: Fraction(1, len(target)) for rank in target}
    # At every level at once, what leaves a child is what cannot be paired inside it.
    size = 1
    for level in cluster.levels:
        for child in range(cluster.devices // size):
            here = sum(1 for r in source if r // size == child)
            there = sum(1 for r in target if r // size == child)
            excess = max(0, Fraction(here, len(source)) - Fraction(there, len(target)))
            leaving = sum(x.share for x in found if x.source // size == child != x.target // size)
            assert leaving == excess
        size *= level.children


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_one_cycle_meets_every_share_exactly(data: st.DataObject, make: SimpleNamespace) -> None:
    cluster = data.draw(make.clusters(10))
    graph = data.draw(make.graphs(5))
    plan = data.draw(make.plans(graph, cluster))
    cycle = routing_cycle(cluster, plan)
    paths = micro_batch_paths(cluster, plan, cycle)
    assert len(paths) == cycle
    for s, stage in enumerate(plan.stages):
        assert Counter(path[s] for path in paths) == dict.fromkeys(
            stage.ranks, cycle // stage.replicas
        )
    for s, (a, b) in enumerate(pairwise(plan.stages)):
        passed = Counter((path[s], path[s + 1]) for path in paths)
        assert passed == {
            (x.source, x.target): x.share * cycle for x in routes(cluster, a.ranks, b.ranks)
        }
    # The routing repeats itself, and a shorter run is the beginning of a longer one.
    assert micro_batch_paths(cluster, plan, 2 * cycle) == paths + paths
    assert micro_batch_paths(cluster, plan, cycle // 2) == paths[: cycle // 2]


def test_a_server_keeps_what_it_can() -> None:
    cluster = Cluster.of([8, 2], [4.0, 2.0])
    inner = (*range(7), *range(8, 15))
    assert routes(cluster, inner, (7, 15)) == tuple(
        Route(rank, 7 if rank < 8 else 15, Fraction(1, 14)) for rank in inner
    )


def test_seven_to_one_is_dealt_in_turn() -> None:
    cluster = Cluster.of([4], [1.0])
    plan = Plan((Stage((0,), (0, 1, 2)), Stage((1,), (3,))))
    assert routing_cycle(cluster, plan) == 3
    assert micro_batch_paths(cluster, plan, 4) == [(0, 3), (1, 3), (2, 3), (0, 3)]


def test_uneven_replicas_share_by_the_largest_common_part() -> None:
    cluster = Cluster.of([5], [1.0])
    found = routes(cluster, (0, 1, 2), (3, 4))
    assert found == (
        Route(0, 3, Fraction(1, 3)),
        Route(1, 3, Fraction(1, 6)),
        Route(1, 4, Fraction(1, 6)),
        Route(2, 4, Fraction(1, 3)),
    )


def test_a_thousand_ranks_route_thousands_of_micro_batches() -> None:
    cluster = Cluster.of([8, 16, 8], [4.0, 2.0, 1.0])
    bounds = (0, 500, 517, 1000, 1024)
    plan = Plan(tuple(Stage((s,), tuple(range(*x))) for s, x in enumerate(pairwise(bounds))))
    paths = micro_batch_paths(cluster, plan, 5_000)
    assert Counter(path[0] for path in paths) == dict.fromkeys(range(500), 10)
    for s, stage in enumerate(plan.stages):
        counts = Counter(path[s] for path in paths)
        assert sum(counts.values()) == 5_000
        # Far from a whole cycle too, no replica is far from its share.
        assert max(counts.values()) <= 2 * 5_000 / stage.replicas + 2
