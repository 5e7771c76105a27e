"""`topology` against a second, naive writing of DESIGN 4.1 and 4.3 that routes micro-batches one by
one and counts what passes every port."""

import math
from collections import defaultdict
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeplan.core.cluster import Cluster, Level
from pipeplan.core.cost import evaluate
from pipeplan.core.plan import Plan, Stage, joint_plan
from pipeplan.core.problem import Problem
from pipeplan.core.routing import micro_batch_paths, routing_cycle
from pipeplan.core.topology import evaluate_topology, full_sync_ms, path_level, path_ms, sync_widths


def ancestors_of_group(cluster: Cluster, rank: int) -> list[int]:
    """The child of each level, innermost first, that holds a rank."""
    out = []
    for level in cluster.levels:
        out.append(rank)
        rank //= level.children
    return out


def naive_widths(cluster: Cluster, ranks: tuple[int, ...]) -> list[int]:
    out = []
    for level, tier in enumerate(cluster.levels):
        children = {ancestors_of_group(cluster, r)[level] for r in ranks}
        out.append(
            max(
                sum(1 for child in children if child // tier.children == group)
                for group in {child // tier.children for child in children}
            )
        )
    return out


def naive_crossing(problem: Problem, plan: Plan, s: int) -> int:
    """O_s: every tensor with its producer in stages <= s and a consumer later, once."""
    stage_of = {v: k for k, stage in enumerate(plan.stages) for v in stage.layers}
    return sum(
        layer.output_bytes
        for v, layer in enumerate(problem.graph.layers)
        if stage_of[v] <= s and any(stage_of[w] > s for u, w in problem.graph.edges if u == v)
    )


def naive_ports(problem: Problem, plan: Plan) -> dict[tuple[int, int], tuple[float, float]]:
    """(sync, transfer) ms per micro-batch of every port that carries anything."""
    cluster = problem.cluster
    half = cluster.duplex == "half"
    leaves: dict[tuple[int, int], float] = defaultdict(float)
    enters: dict[tuple[int, int], float] = defaultdict(float)
    cycle = routing_cycle(cluster, plan)
    crossing = [naive_crossing(problem, plan, s) for s in range(len(plan.stages) - 1)]
    for path in micro_batch_paths(cluster, plan, cycle):
        for s, (a, b) in enumerate(pairwise(path)):
            ways = zip(ancestors_of_group(cluster, a), ancestors_of_group(cluster, b), strict=True)
            for level, (here, there) in enumerate(ways, 1):
                if here == there:
                    break  # what stays inside a child passes no port of it, nor further out
                for source, target in ((here, there), (there, here)):  # activation, gradient
                    leaves[level, source] += crossing[s] / problem.compression
                    enters[level, target] += crossing[s] / problem.compression
    syncs: dict[tuple[int, int], float] = defaultdict(float)
    if not problem.synchronous:
        for stage in plan.stages:
            weights = sum(problem.graph.layers[v].parameter_bytes for v in stage.layers)
            for level, q in enumerate(naive_widths(cluster, stage.ranks), 1):
                moved = (4 if half else 2) * (q - 1) / q * weights / len(stage.ranks)
                for child in {ancestors_of_group(cluster, r)[level - 1] for r in stage.ranks}:
                    syncs[level, child] += moved
    out = {}
    for level, child in {*leaves, *enters, *syncs}:
        rate = cluster.levels[level - 1].bandwidth_bytes_per_s
        going, coming = leaves[level, child] / cycle, enters[level, child] / cycle
        assert math.isclose(going, coming, rel_tol=1e-9)
        passed = going + coming if half else going
        out[level, child] = (syncs[level, child] / rate * 1e3, passed / rate * 1e3)
    return {port: load for port, load in out.items() if any(load)}


def naive_full_sync(problem: Problem, stage: Stage) -> float:
    """One all-reduce: its transfer at every level, and 2(q-1) steps of latency."""
    cluster = problem.cluster
    weights = sum(problem.graph.layers[v].parameter_bytes for v in stage.layers)
    total = 0.0
    for tier, q in zip(cluster.levels, naive_widths(cluster, stage.ranks), strict=True):
        factor = 4 if cluster.duplex == "half" else 2
        total += factor * (q - 1) / q * weights / tier.bandwidth_bytes_per_s * 1e3
        total += 2 * (q - 1) * tier.latency_ms
    return total


def naive_devices(problem: Problem, plan: Plan) -> list[float]:
    out = []
    for stage in plan.stages:
        layers = [problem.graph.layers[v] for v in stage.layers]
        busy = sum(x.forward_ms + x.backward_ms for x in layers)
        if not problem.synchronous and not problem.overlap_sync:
            busy += naive_full_sync(problem, stage)
        out.append(busy / len(stage.ranks))
    return out


def naive_batch(problem: Problem, plan: Plan, period: float) -> float:
    cluster = problem.cluster
    total = sum(x.forward_ms + x.backward_ms for x in problem.graph.layers)
    paths = micro_batch_paths(cluster, plan, routing_cycle(cluster, plan))
    for s in range(len(plan.stages) - 1):
        outermost = 1
        for path in paths:
            ways = zip(
                ancestors_of_group(cluster, path[s]),
                ancestors_of_group(cluster, path[s + 1]),
                strict=True,
            )
            outermost = max(outermost, sum(here != there for here, there in ways))
        used = cluster.levels[:outermost]
        bytes_ = naive_crossing(problem, plan, s) / problem.compression
        total += 2 * bytes_ / min(x.bandwidth_bytes_per_s for x in used) * 1e3
        total += 2 * sum(x.latency_ms for x in used)
    total += ((problem.micro_batches or 0) - 1) * period
    return total + max(naive_full_sync(problem, stage) for stage in plan.stages)


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_every_figure_is_that_of_the_naive_writing(
    data: st.DataObject, make: SimpleNamespace
) -> None:
    problem = data.draw(make.topology_problems())
    plan = data.draw(make.plans(problem.graph, problem.cluster))
    cost = evaluate_topology(problem, plan)

    ports = naive_ports(problem, plan)
    found = {(p.level, p.child): (p.sync_ms, p.transfer_ms) for p in cost.ports if p.busy_ms}
    assert found.keys() == ports.keys()
    for port, load in ports.items():
        assert found[port] == pytest.approx(load, rel=1e-9, abs=1e-12)

    devices = naive_devices(problem, plan)
    period = max([*devices, *(sum(load) for load in ports.values())])
    assert cost.period_ms == pytest.approx(period, rel=1e-9, abs=1e-12)
    if cost.bottleneck_stage is not None:
        assert devices[cost.bottleneck_stage] == pytest.approx(period, rel=1e-9, abs=1e-12)
    else:
        assert cost.bottleneck_port is not None
        assert sum(ports[cost.bottleneck_port]) == pytest.approx(period, rel=1e-9)

    crossing = [naive_crossing(problem, plan, s) for s in range(len(plan.stages) - 1)]
    assert list(cost.cut_bytes) == crossing
    for stage, times in zip(plan.stages, cost.stages, strict=True):
        whole = naive_full_sync(problem, stage)
        assert times.full_sync_ms == pytest.approx(whole, rel=1e-9, abs=1e-12)
        counted = 0.0 if problem.synchronous else whole / len(stage.ranks)
        assert times.sync_ms == pytest.approx(counted, rel=1e-9, abs=1e-12)
    if problem.synchronous:
        assert cost.batch_ms == pytest.approx(
            naive_batch(problem, plan, cost.period_ms), rel=1e-9, abs=1e-9
        )
        assert evaluate(problem, plan).objective_ms == cost.batch_ms
    else:
        assert cost.batch_ms is None
        assert evaluate(problem, plan).objective_ms == cost.period_ms


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_plan_is_faster_than_all_work_shared_evenly(
    data: st.DataObject, make: SimpleNamespace
) -> None:
    problem = data.draw(make.topology_problems())
    plan = data.draw(make.plans(problem.graph, problem.cluster))
    period = evaluate_topology(problem, plan).period_ms
    assert period >= problem.graph.total_compute_ms / problem.cluster.devices * (1 - 1e-12)


def test_a_hand_counted_plan(make: SimpleNamespace) -> None:
    # Two servers of two GPUs at 1000 and 500 bytes/s; stage 0 on ranks 0-2, stage 1 on rank 3.
    cluster = Cluster.of([2, 2], [1000.0, 500.0])
    graph = make.chain(2, forward_ms=1.0, output_bytes=60, parameter_bytes=90)
    plan = Plan((Stage((0,), (0, 1, 2)), Stage((1,), (3,))))
    cost = evaluate_topology(Problem(graph, cluster), plan)
    # Ring of two in server 0 and across servers: 2 * 1/2 * 90 bytes each.
    sync = (90 / 1000 + 90 / 500) * 1e3
    assert cost.stages[0].full_sync_ms == pytest.approx(sync)
    assert cost.stages[0].compute_ms + cost.stages[0].sync_ms == pytest.approx((3 + sync) / 3)
    # 2/3 of the 60 bytes leave server 0, where 2/3 of stage 0 and nothing of stage 1 is.
    loads = {(p.level, p.child): p for p in cost.ports}
    assert loads[2, 0].transfer_ms == pytest.approx(40 / 500 * 1e3)
    assert loads[2, 1].transfer_ms == pytest.approx(40 / 500 * 1e3)
    assert loads[1, 0].transfer_ms == pytest.approx(20 / 1000 * 1e3)
    assert loads[1, 3].transfer_ms == pytest.approx(60 / 1000 * 1e3)
    assert loads[2, 1].sync_ms == pytest.approx(90 / 500 * 1e3 / 3)
    assert (1, 3) in loads
    assert loads[1, 3].sync_ms == 0.0
    assert cost.bottleneck_port == (2, 0)
    assert cost.period_ms == pytest.approx(140.0)


def test_half_duplex_doubles_every_port(make: SimpleNamespace) -> None:
    graph = make.chain(3)
    full, half = (
        Cluster.of([2, 2], [1000.0, 500.0], duplex="full"),
        Cluster.of([2, 2], [1000.0, 500.0], duplex="half"),
    )
    stages = (((0, 1), 3), ((2,), 1))
    once = evaluate_topology(Problem(graph, full), joint_plan(full, stages)).ports
    twice = evaluate_topology(Problem(graph, half), joint_plan(half, stages)).ports
    assert [2 * p.busy_ms for p in once] == pytest.approx([p.busy_ms for p in twice])


def test_overlapped_sync_leaves_the_device_but_not_the_port(make: SimpleNamespace) -> None:
    cluster = Cluster.of([2], [1e9])
    graph = make.chain(1, parameter_bytes=10**6)
    plan = joint_plan(cluster, (((0,), 2),))
    added = evaluate_topology(Problem(graph, cluster), plan)
    overlapped = evaluate_topology(Problem(graph, cluster, overlap_sync=True), plan)
    assert added.period_ms == pytest.approx(1.5 + 0.5)
    assert overlapped.period_ms == pytest.approx(1.5)
    assert overlapped.ports == added.ports


def test_a_tensor_used_later_is_relayed_over_every_cut(make: SimpleNamespace) -> None:
    from pipeplan.core.graph import Layer, LayerGraph

    graph = LayerGraph.build(
        [Layer(x, 1, 1, size) for x, size in (("a", 7), ("b", 11), ("c", 13), ("d", 17))],
        [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("a", "c")],
    )
    cluster = Cluster.of([4], [1e3])
    plan = Plan(tuple(Stage((v,), (v,)) for v in range(4)))
    assert evaluate_topology(Problem(graph, cluster), plan).cut_bytes == (7, 18, 20)


def test_widths_count_the_fullest_group() -> None:
    cluster = Cluster.of([4, 2, 2], [3.0, 2.0, 1.0])
    assert sync_widths(cluster, [0]) == (1, 1, 1)
    assert sync_widths(cluster, [0, 1, 5]) == (2, 2, 1)
    assert sync_widths(cluster, [3, 12]) == (1, 1, 2)
    assert sync_widths(cluster, range(16)) == (4, 2, 2)


def test_an_all_reduce_pays_every_level_and_its_latency() -> None:
    cluster = Cluster((Level(4, 100.0, 0.5), Level(2, 50.0, 2.0)))
    ring = 2 * 3 / 4 * 200 / 100 * 1e3 + 2 * 1 / 2 * 200 / 50 * 1e3
    assert full_sync_ms(cluster, (4, 2), 200) == pytest.approx(ring + 2 * 3 * 0.5 + 2 * 2.0)
    assert full_sync_ms(cluster, (1, 1), 200) == 0.0


def test_a_path_is_as_slow_as_its_slowest_port(make: SimpleNamespace) -> None:
    cluster = Cluster((Level(2, 100.0, 0.5), Level(2, 1000.0, 2.0)))
    problem = Problem(make.chain(2), cluster, activation_compression_ratio=2.0)
    assert path_level(cluster, (0,), (1,)) == 1
    assert path_level(cluster, (0, 2), (1, 3)) == 1
    assert path_level(cluster, (0, 1), (2, 3)) == 2
    assert path_ms(problem, 2, 300) == pytest.approx(2 * (300 / 2 / 100 * 1e3 + 2.5))
