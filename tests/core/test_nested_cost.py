"""`levelwise` against a naive recursion, `pipedream` on graphs that show each of its quirks."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeplan.core.cluster import Cluster
from pipeplan.core.cost import baselines, evaluate
from pipeplan.core.errors import PlanError
from pipeplan.core.graph import Layer, LayerGraph
from pipeplan.core.nested_cost import PipedreamGraph, evaluate_nested, limiting_stages
from pipeplan.core.plan import NestedStage, Plan, Stage, nested_plan
from pipeplan.core.problem import Problem


def naive_levelwise(
    problem: Problem, stages: tuple[NestedStage, ...], level: int, before: set[int]
) -> float:
    """DESIGN 4.2: the recursion with sets of layers, cuts taken from the definition."""
    graph, cluster = problem.graph, problem.cluster
    bandwidth = cluster.levels[level - 1].bandwidth_bytes_per_s
    devices = 1
    for tier in cluster.levels[: level - 1]:
        devices *= tier.children
    worst = 0.0
    for stage in stages:
        m = stage.replicas
        after = before | set(stage.layers)
        if level == 1:
            own = sum(
                graph.layers[v].forward_ms + graph.layers[v].backward_ms for v in stage.layers
            )
        else:
            own = naive_levelwise(problem, stage.inner, level - 1, before)
        if not problem.synchronous:
            weights = sum(graph.layers[v].parameter_bytes for v in stage.layers)
            own += 4 * (m - 1) / (m * devices) * weights / bandwidth * 1e3
        worst = max(worst, own / m)
        for ideal in (before, after):
            crossing = graph.cut_bytes(ideal) / problem.compression
            worst = max(worst, 2 * crossing / (bandwidth * m) * 1e3)
        before = after
    return worst


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_levelwise_is_the_naive_recursion(data: st.DataObject, make: SimpleNamespace) -> None:
    graph, cluster = data.draw(make.graphs()), data.draw(make.clusters(27))
    nested = data.draw(make.nested_structures(graph, cluster))
    flush = data.draw(st.booleans())
    problem = Problem(
        graph,
        cluster,
        scope="nested",
        cost_model="levelwise",
        schedule="1f1b" if flush else "pipedream",
        micro_batches=4 if flush else None,
        activation_compression_ratio=data.draw(st.sampled_from([None, 1.0, 3.0])),
    )
    plan = nested_plan(cluster, nested)
    expected = naive_levelwise(problem, nested, len(cluster.levels), set())
    assert evaluate_nested(problem, plan) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    price = evaluate(problem, plan)
    assert price.objective_ms == price.period_ms == evaluate_nested(problem, plan)
    chain = limiting_stages(problem, plan)
    assert chain[0].period_ms == price.period_ms
    assert [x.level for x in chain] == list(range(len(cluster.levels), 0, -1))[: len(chain)]
    for outer, inner in pairwise(chain):
        assert outer.inside_ms == inner.period_ms
        assert outer.first <= inner.first <= inner.last <= outer.last
    ends = chain[-1]
    assert not ends.stage.inner or ends.period_ms == ends.transfer_ms


def chain_problem(cluster: Cluster, layers: list[Layer], ratio: float | None) -> Problem:
    graph = LayerGraph.build(layers, [(a.id, b.id) for a, b in pairwise(layers)])
    return Problem(
        graph,
        cluster,
        scope="nested",
        cost_model="pipedream",
        activation_compression_ratio=ratio,
    )


def leaf(replicas: int, *layers: int) -> NestedStage:
    return NestedStage(layers, replicas)


def test_quirk_1_transfers_count_only_where_a_ratio_is_given() -> None:
    cluster = Cluster.of([2], [1e3])
    layers = [Layer("n1", 1, 1, 500), Layer("n2", 1, 1, 500)]
    plan = nested_plan(cluster, (leaf(1, 0), leaf(1, 1)))
    assert evaluate(chain_problem(cluster, layers, None), plan).objective_ms == 2.0
    assert evaluate(chain_problem(cluster, layers, 1.0), plan).objective_ms == 1000.0
    assert evaluate(chain_problem(cluster, layers, 4.0), plan).objective_ms == 250.0


def test_quirk_2_only_the_first_stage_shares_its_all_reduce_among_the_inner_devices() -> None:
    # Figures of the demonstration: n = [4, 3], A 2 s and 2 GB, B 4 s and 1 GB.
    cluster = Cluster.of([4, 3], [1e15, 4e9])
    layers = [Layer("n1", 0, 2000, 0, 2 * 10**9), Layer("n2", 0, 4000, 0, 10**9)]
    problem = chain_problem(cluster, layers, None)

    def priced(a: int, b: int) -> float:
        outer = (
            NestedStage((0,), a, (leaf(4, 0),)),
            NestedStage((1,), b, (leaf(4, 1),)),
        )
        return evaluate(problem, nested_plan(cluster, outer)).objective_ms

    # 2000 / 4 = 500 ms inside; 4 * 1/2 * 2 GB / (4 GB/s * 4 devices) = 250 ms; both halved.
    assert priced(2, 1) == pytest.approx(max((500 + 250) / 2, 1000), rel=1e-5)
    # The second stage pays 4 * 1/2 * 1 GB / 4 GB/s = 500 ms in full.
    assert priced(1, 2) == pytest.approx(max(500, (1000 + 500) / 2), rel=1e-5)


def test_quirk_3_data_parallel_divides_by_the_level_below_alone() -> None:
    cluster = Cluster.of([2, 2, 2], [1e15, 1e15, 1e9])
    layers = [Layer("n1", 500, 500, 0, 10**9)]
    base = baselines(chain_problem(cluster, layers, None))
    assert base.one_device_ms == 1000.0
    # 1000 / 4 after two fast levels, then + 4 * 1/2 * 1 GB / (1 GB/s * 2), all / 2.
    assert base.data_parallel_ms == pytest.approx((1000 / 4 + 1000) / 2, rel=1e-5)


def test_quirk_5_a_first_stage_pays_no_transfer() -> None:
    cluster = Cluster.of([8], [1e6])
    layers = [Layer("n1", 0, 7, 10_000), Layer("n2", 0, 7, 0)]
    problem = chain_problem(cluster, layers, 1.0)
    plan = nested_plan(cluster, (leaf(1, 0), leaf(7, 1)))
    # 20 ms leave one machine, but only the 20 / 7 that enter the next seven are counted.
    assert evaluate(problem, plan).objective_ms == 7.0
    mended = Problem(problem.graph, cluster, scope="nested", cost_model="levelwise")
    assert evaluate(mended, plan).objective_ms == 20.0


def test_quirk_7_a_cut_counts_producers_whose_readers_are_all_inside() -> None:
    graph = LayerGraph.build(
        [Layer("s", 0, 1, 1000), Layer("a", 0, 1, 1), Layer("b", 0, 1, 1), Layer("t", 0, 1, 1)],
        [("s", "a"), ("s", "b"), ("a", "t"), ("b", "t")],
    )
    assert [x.id for x in graph.layers] == ["s", "a", "b", "t"]
    view = PipedreamGraph(graph)
    assert graph.cut_bytes({0, 1, 2}) == 2
    assert view.output_bytes(frozenset({0, 1, 2})) == 1002
    assert view.output_bytes(frozenset({0, 1})) == 1001


def test_unused_tuple_items_are_left_out_and_dead_ends_behind_them_stay() -> None:
    graph = LayerGraph.build(
        [
            Layer("n1", 0, 10, 5, 3),
            Layer("n2", 0, 100, 7, 11, description="__getitem__(0)"),
            Layer("n3", 0, 20, 7, 3, description="__getitem__(1)"),
            Layer("n4", 0, 40, 7, 3),
        ],
        [("n1", "n2"), ("n1", "n3"), ("n3", "n4")],
    )
    view = PipedreamGraph(graph)
    assert view.removed == {1}
    assert view.kept == view.whole() == {0, 2, 3}
    cluster = Cluster.of([1], [1.0])
    problem = Problem(graph, cluster, scope="nested", cost_model="pipedream")
    plan = nested_plan(cluster, (leaf(1, 0, 1, 2, 3),))
    assert evaluate(problem, plan).objective_ms == 70.0
    assert baselines(problem).one_device_ms == baselines(problem).data_parallel_ms == 70.0


def test_quirk_9_what_does_not_hang_together_with_the_first_source_is_not_whole() -> None:
    graph = LayerGraph.build(
        [Layer(x, 1, 1, 1) for x in "abcdef"],
        [("a", "b"), ("c", "b"), ("c", "d"), ("e", "f")],
    )
    names = [x.id for x in graph.layers]
    view = PipedreamGraph(graph)
    assert names[view.first] == "a"
    assert {names[v] for v in view.whole()} == {"a", "b", "c", "d"}


def test_output_bytes_of_a_large_graph_need_no_table_of_all_ancestors(
    make: SimpleNamespace,
) -> None:
    graph = make.large_graph(20_000)
    view = PipedreamGraph(graph)
    assert len(view.whole()) == 20_000
    state = frozenset(range(10_000))
    assert view.output_bytes(state) >= graph.cut_bytes(state)


def test_a_plan_without_structure_is_priced_by_topology_alone(make: SimpleNamespace) -> None:
    graph = make.chain(3)
    cluster = Cluster.of([2], [1e6])
    plan = Plan((Stage((0, 1), (1,)), Stage((2,), (0,))))
    for model in ("levelwise", "pipedream"):
        problem = Problem(graph, cluster, scope="nested", cost_model=model)
        with pytest.raises(PlanError, match="no level-wise structure"):
            evaluate_nested(problem, plan)
        price = evaluate(problem, plan)
        assert price.objective_ms == price.period_ms == price.topology.period_ms


def test_levelwise_baselines_replicate_at_every_level(make: SimpleNamespace) -> None:
    graph = make.chain(2, parameter_bytes=1000)
    cluster = Cluster.of([2, 2], [1e6, 1e5])
    for flush in (False, True):
        problem = Problem(
            graph,
            cluster,
            scope="nested",
            cost_model="levelwise",
            schedule="gpipe" if flush else "pipedream",
            micro_batches=3 if flush else None,
        )
        base = baselines(problem)
        assert base.one_device_ms == 6.0
        sync = 0 if flush else 1
        inner = (6 + sync * 4 / 2 * 2000 / 1e6 * 1e3) / 2
        outer = (inner + sync * 4 / (2 * 2) * 2000 / 1e5 * 1e3) / 2
        assert base.data_parallel_ms == pytest.approx(outer)


def test_levelwise_spreads_an_all_reduce_over_all_devices_below() -> None:
    # Three levels of two, the outermost slow: its 4 * 1/2 * 1 GB are moved by 4 devices a group
    # (by M_{l-1} = 2 in the original, quirk 3).
    cluster = Cluster.of([2, 2, 2], [1e15, 1e15, 1e9])
    graph = LayerGraph.build([Layer("n1", 500, 500, 0, 10**9)], [])
    nested = (NestedStage((0,), 2, (NestedStage((0,), 2, (leaf(2, 0),)),)),)
    plan = nested_plan(cluster, nested)
    problem = Problem(graph, cluster, scope="nested", cost_model="levelwise")
    assert evaluate(problem, plan).objective_ms == pytest.approx(
        (1000 / 4 + 2000 / 4) / 2, rel=1e-5
    )
    assert baselines(problem).data_parallel_ms == evaluate(problem, plan).objective_ms
