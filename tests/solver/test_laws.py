"""Laws that any exact planner obeys, whatever the instance, for every backend."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeplan.core.cluster import Cluster, Level
from pipeplan.core.graph import Layer, LayerGraph
from pipeplan.core.problem import Constraints, Problem
from pipeplan.solver.backends.cpsat.backend import solve_cpsat
from pipeplan.solver.backends.dp.backend import solve_dp
from pipeplan.solver.backends.milp.backend import solve_milp
from pipeplan.solver.judge import judge
from pipeplan.solver.options import SolveOptions
from pipeplan.solver.outcome import Outcome
from pipeplan.solver.result import Status

Solve = Callable[[Problem, SolveOptions], Outcome]
BACKENDS: dict[str, Solve] = {"cpsat": solve_cpsat, "milp": solve_milp, "dp": solve_dp}
OPTIONS = SolveOptions(workers=1)
SLACK = 2e-5
"""Twice the largest tolerance that either backend states."""


@st.composite
def graphs(draw: st.DrawFn) -> LayerGraph:
    count = draw(st.integers(2, 7))
    times = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.5])
    sizes = st.sampled_from([0, 1000, 9000, 40000])
    layers = [
        Layer(f"n{i}", draw(times), draw(times), draw(sizes), draw(sizes)) for i in range(count)
    ]
    edges = [
        (f"n{i}", f"n{j}")
        for j in range(count)
        for i in range(j)
        if draw(st.integers(0, 9)) < (7 if j == i + 1 else 2)
    ]
    return LayerGraph.build(layers, edges)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    shape = draw(st.sampled_from([(3,), (4,), (2, 2), (3, 2)]))
    rates = st.sampled_from([1e6, 5e6, 1e8])
    cluster = Cluster.of(shape, [draw(rates) for _ in shape])
    joint = draw(st.booleans())
    return Problem(
        draw(graphs()),
        cluster,
        scope="joint" if joint else "nested",
        cost_model="topology" if joint else "levelwise",
    )


def best(backend: str, problem: Problem) -> float:
    result = judge(problem, BACKENDS[backend](problem, OPTIONS))
    assert result.status is Status.OPTIMAL
    assert result.objective_ms is not None
    return result.objective_ms


def law(test: Callable[..., None]) -> Callable[..., None]:
    drawn = settings(
        max_examples=12,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    return pytest.mark.parametrize("backend", BACKENDS)(drawn(given(data=st.data())(test)))


@law
def test_scaling_all_times_scales_the_period(backend: str, data: st.DataObject) -> None:
    problem = data.draw(problems())
    factor = data.draw(st.sampled_from([0.25, 7.0, 1000.0]))
    layers = tuple(
        replace(x, forward_ms=x.forward_ms * factor, backward_ms=x.backward_ms * factor)
        for x in problem.graph.layers
    )
    levels = tuple(
        replace(x, bandwidth_bytes_per_s=x.bandwidth_bytes_per_s / factor)
        for x in problem.cluster.levels
    )
    slower = replace(
        problem,
        graph=replace(problem.graph, layers=layers),
        cluster=replace(problem.cluster, levels=levels),
    )
    expected = best(backend, problem) * factor
    assert best(backend, slower) == pytest.approx(expected, rel=SLACK)


@law
def test_names_and_order_of_layers_change_nothing(backend: str, data: st.DataObject) -> None:
    problem = data.draw(problems())
    graph = problem.graph
    names = data.draw(st.permutations([f"m{i}" for i in range(len(graph))]))
    other = LayerGraph.build(
        [replace(x, id=names[v]) for v, x in enumerate(graph.layers)],
        [(names[u], names[v]) for u, v in graph.edges],
    )
    renamed = best(backend, replace(problem, graph=other))
    assert renamed == pytest.approx(best(backend, problem), rel=SLACK)


@law
def test_more_devices_or_bandwidth_never_hurt(backend: str, data: st.DataObject) -> None:
    problem = data.draw(problems())
    cluster = problem.cluster
    if data.draw(st.booleans()):
        levels = tuple(Level(x.children, x.bandwidth_bytes_per_s * 2) for x in cluster.levels)
    else:
        # Another child at the outermost level: idle devices are allowed.
        outer = cluster.levels[-1]
        levels = (*cluster.levels[:-1], replace(outer, children=outer.children + 1))
    more = best(backend, replace(problem, cluster=replace(cluster, levels=levels)))
    if problem.scope == "joint" and levels[-1].children != cluster.levels[-1].children:
        # Copies lie in equal blocks, which another device may not leave room for: one copy alone
        # can always idle it.
        one_copy = replace(problem, constraints=Constraints(straight=True))
        wider = replace(cluster, levels=levels)
        more = best(backend, replace(one_copy, cluster=wider))
        assert more <= best(backend, one_copy) * (1 + SLACK) + 1e-9
        return
    assert more <= best(backend, problem) * (1 + SLACK) + 1e-9


@law
def test_more_memory_never_hurts(backend: str, data: st.DataObject) -> None:
    problem = data.draw(problems())
    limit = data.draw(st.integers(50_000, 900_000))
    before: float | None = None
    for memory in (limit, limit * 2, None):
        given_memory = replace(problem, cluster=replace(problem.cluster, memory_bytes=memory))
        result = judge(given_memory, BACKENDS[backend](given_memory, OPTIONS))
        if before is not None:
            assert result.objective_ms is not None
            assert result.objective_ms <= before * (1 + SLACK) + 1e-9
        before = result.objective_ms


@law
def test_forcing_the_optimums_cuts_keeps_it_and_forbidding_them_never_helps(
    backend: str, data: st.DataObject
) -> None:
    problem = data.draw(problems())
    result = judge(problem, BACKENDS[backend](problem, OPTIONS))
    assert result.objective_ms is not None
    cuts = result.require_plan().prefixes[:-1]
    forced = replace(problem, constraints=Constraints(forced_cuts=cuts))
    assert best(backend, forced) == pytest.approx(result.objective_ms, rel=SLACK, abs=1e-9)
    if cuts:
        forbidden = replace(problem, constraints=Constraints(forbidden_cuts=cuts))
        worse = best(backend, forbidden)
        assert worse >= result.objective_ms * (1 - SLACK) - 1e-9


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_a_chain_merged_into_one_layer_never_helps(backend: str) -> None:
    layers = [Layer(f"n{i}", 1.0 + i % 3, 2.0, 10_000 * (i % 2 + 1), 3000) for i in range(6)]
    edges = [(f"n{i}", f"n{i + 1}") for i in range(5)]
    whole = LayerGraph.build(layers, edges)
    a, b = layers[2], layers[3]
    joined = replace(
        b,
        id="n2",
        forward_ms=a.forward_ms + b.forward_ms,
        backward_ms=a.backward_ms + b.backward_ms,
        parameter_bytes=a.parameter_bytes + b.parameter_bytes,
        saved_bytes=a.kept_bytes + b.kept_bytes,
    )
    coarse = LayerGraph.build(
        [*layers[:2], joined, *layers[4:]],
        [("n0", "n1"), ("n1", "n2"), ("n2", "n4"), ("n4", "n5")],
    )
    cluster = Cluster.of([2, 2], [2e7, 1e7])
    fine = best(backend, Problem(whole, cluster))
    assert fine <= best(backend, Problem(coarse, cluster)) * (1 + SLACK)
