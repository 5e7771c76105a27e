"""The plan along a line: valid, fast enough to be first, and the optimum on chains."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeplan.core.check import violations
from pipeplan.core.cluster import Cluster
from pipeplan.core.cost import evaluate
from pipeplan.core.graph import Layer, LayerGraph
from pipeplan.core.problem import Constraints, Problem
from pipeplan.models.synthetic import transformer
from pipeplan.solver.backends.dp.backend import solve_dp
from pipeplan.solver.clock import unhurried
from pipeplan.solver.line import line_of, topological_orders
from pipeplan.solver.linear_dp import linear_plan
from pipeplan.solver.linear_joint import affordable_positions, joint_plans
from pipeplan.solver.options import SolveOptions
from pipeplan.solver.reduce import reduce_graph


def chain(times: list[float], sizes: list[int]) -> LayerGraph:
    layers = [
        Layer(f"n{i}", t, 2 * t, size, 3 * size)
        for i, (t, size) in enumerate(zip(times, sizes, strict=True))
    ]
    return LayerGraph.build(layers, [(f"n{i}", f"n{i + 1}") for i in range(len(layers) - 1)])


CHAINS = st.integers(2, 7).flatmap(
    lambda n: st.builds(
        chain,
        st.lists(st.sampled_from([0.0, 1.0, 2.5, 4.0]), min_size=n, max_size=n),
        st.lists(st.sampled_from([0, 1000, 20000]), min_size=n, max_size=n),
    )
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(CHAINS, st.sampled_from([1e5, 1e6, 1e8]), st.sampled_from(["joint", "nested"]))
def test_the_optimum_on_a_chain_with_one_level(graph: LayerGraph, rate: float, scope: str) -> None:
    problem = Problem(
        graph,
        Cluster.of([4], [rate]),
        scope=scope,  # type: ignore[arg-type]
        cost_model="topology" if scope == "joint" else "levelwise",
    )
    plan = linear_plan(problem)
    assert plan is not None
    best = solve_dp(problem, SolveOptions()).claimed_ms
    assert best is not None
    found = evaluate(problem, plan).objective_ms
    assert math.isclose(found, best, rel_tol=1e-9, abs_tol=1e-12)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    CHAINS,
    st.sampled_from([(4,), (2, 2), (3, 2)]),
    st.sampled_from([None, 300_000]),
    st.sampled_from([None, 1, 4]),
)
def test_a_known_objective_takes_no_better_plan_away(
    graph: LayerGraph, shape: tuple[int, ...], memory: int | None, batch: int | None
) -> None:
    problem = Problem(
        graph,
        Cluster.of(shape, [1e6] * len(shape), memory_bytes=memory),
        schedule="pipedream" if batch is None else "1f1b",
        micro_batches=batch,
    )
    reduced = reduce_graph(problem)
    line = line_of(reduced, topological_orders(reduced)[0])

    def prices(upper_ms: float) -> list[float]:
        plans = joint_plans(problem, line, lambda: False, unhurried, upper_ms)
        return [evaluate(problem, x).objective_ms for x in plans if not violations(problem, x)]

    free = prices(math.inf)
    assert (linear_plan(problem) is None) == (not free)
    if free:
        assert min(prices(min(free))) == pytest.approx(min(free), rel=1e-9)


def test_the_nearer_the_known_objective_the_finer_the_line() -> None:
    problem = Problem(transformer(3000), Cluster.of([8, 8], [1e11, 1e10]))
    floor = problem.graph.total_compute_ms / 64
    counts = [affordable_positions(problem, floor * x, 1e7) for x in (2.0, 1.3, 1.05, 1.001)]
    assert counts == sorted(counts)
    assert counts[0] * 10 < counts[-1]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    CHAINS,
    st.sampled_from([(4,), (2, 2), (3, 2), (2, 2, 2)]),
    st.sampled_from(["joint", "nested"]),
    st.sampled_from([None, 60_000, 300_000]),
    st.sampled_from(["pipedream", "1f1b", "gpipe"]),
    st.booleans(),
)
def test_what_is_returned_is_a_plan(
    graph: LayerGraph,
    shape: tuple[int, ...],
    scope: str,
    memory: int | None,
    schedule: str,
    recompute: bool,
) -> None:
    problem = Problem(
        graph,
        Cluster.of(shape, [1e6] * len(shape), memory_bytes=memory),
        scope=scope,  # type: ignore[arg-type]
        cost_model="topology" if scope == "joint" else "levelwise",
        schedule=schedule,  # type: ignore[arg-type]
        micro_batches=None if schedule == "pipedream" else 4,
        recompute=recompute,
    )
    plan = linear_plan(problem)
    if plan is None:
        assert memory is not None
    else:
        assert violations(problem, plan) == ()


def branches() -> LayerGraph:
    layers = [Layer(f"n{i}", 1.0, 1.0, 100, 10) for i in range(8)]
    edges = [(0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 5), (5, 6), (0, 6), (6, 7)]
    return LayerGraph.build(layers, [(f"n{a}", f"n{b}") for a, b in edges])


def test_forced_cuts_are_made_and_forbidden_ones_avoided() -> None:
    graph = branches()
    forced = graph.down_closure([4])
    asked = Constraints(forced_cuts=(forced,), forbidden_cuts=(graph.down_closure([5]),))
    problem = Problem(graph, Cluster.of([4], [1e7]), constraints=asked)
    plan = linear_plan(problem)
    assert plan is not None
    assert violations(problem, plan) == ()
    assert forced in plan.prefixes


@pytest.mark.parametrize("most", [1, 2, 3])
def test_stage_limits_and_pins_are_kept(most: int) -> None:
    asked = Constraints(max_stages=most, pinned=((7, most - 1),))
    problem = Problem(branches(), Cluster.of([4], [1e9]), constraints=asked)
    plan = linear_plan(problem)
    assert plan is not None
    assert violations(problem, plan) == ()
    assert len(plan.stages) == most


def test_orders_are_topological_and_lines_know_what_crosses() -> None:
    graph = branches()
    reduced = reduce_graph(Problem(graph, Cluster.of([2], [1e9])))
    orders = topological_orders(reduced)
    assert len(orders) > 1
    for order in orders:
        line = line_of(reduced, order)
        for i, position in enumerate(line.positions):
            prefix = reduced.layers(order[:position])
            assert graph.is_down_closed(prefix)
            assert line.crossing[i] == graph.cut_bytes(prefix)
            assert line.compute_ms[i] == graph.compute_ms(prefix)


def test_a_long_line_is_coarsened_and_still_well_cut() -> None:
    # Every tenth output is small: a coarse line must not lose those cuts.
    count = 3000
    layers = [Layer(f"n{i}", 0.5, 0.5, 10 if i % 10 == 9 else 10**8, 1000) for i in range(count)]
    edges = [(f"n{i}", f"n{i + 1}") for i in range(count - 1)]
    problem = Problem(LayerGraph.build(layers, edges), Cluster.of([8, 4], [1e10, 1e9]))
    plan = linear_plan(problem)
    assert plan is not None
    floor = problem.graph.total_compute_ms / 32
    assert evaluate(problem, plan).objective_ms < floor * 1.03
