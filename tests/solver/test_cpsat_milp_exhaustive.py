"""cpsat and milp against exhaustive search on drawn problems: status, objective, memory, bound."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pipeplan.core.cluster import Cluster, Level
from pipeplan.core.errors import TooLargeError
from pipeplan.core.graph import GraphInput, Layer, LayerGraph, Together
from pipeplan.core.problem import Constraints, Problem
from pipeplan.solver.backends.cpsat.backend import solve_cpsat
from pipeplan.solver.backends.exhaustive import solve_exhaustive
from pipeplan.solver.backends.milp.backend import solve_milp
from pipeplan.solver.judge import judge
from pipeplan.solver.options import SolveOptions
from pipeplan.solver.outcome import Outcome

Solve = Callable[[Problem, SolveOptions], Outcome]
BACKENDS: dict[str, Solve] = {"cpsat": solve_cpsat, "milp": solve_milp}
OPTIONS = SolveOptions(workers=1)


def drawn(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


@st.composite
def graphs(draw: st.DrawFn, most: int = 5) -> LayerGraph:
    """Branches, several sources and components, zero costs, ties, network inputs, tied layers."""
    count = draw(st.integers(1, most))
    times = st.sampled_from([0.0, 0.0, 1.0, 1.0, 2.0, 3.5, 0.1, 7.0])
    sizes = st.sampled_from([0, 1000, 1000, 5000, 40000])
    saved = st.sampled_from([None, 0, 3000])
    layers = [
        Layer(f"n{i}", draw(times), draw(times), draw(sizes), draw(sizes), draw(saved))
        for i in range(count)
    ]
    edges = [
        (f"n{i}", f"n{j}")
        for j in range(count)
        for i in range(j)
        if draw(st.integers(0, 9)) < (7 if j == i + 1 else 3)
    ]
    some = st.lists(st.integers(0, count - 1), min_size=1, max_size=2, unique=True)
    inputs = []
    if draw(st.booleans()):
        readers = tuple(f"n{i}" for i in sorted(draw(some)))
        inputs.append(GraphInput("x", draw(sizes), readers))
    together = []
    if count > 2 and draw(st.integers(0, 4)) == 0:
        together.append(Together(tuple(f"n{i}" for i in draw(some)), "tied"))
    return LayerGraph.build(layers, edges, inputs=inputs, together=together)


@st.composite
def clusters(draw: st.DrawFn, shapes: list[tuple[int, ...]]) -> Cluster:
    shape = draw(st.sampled_from(shapes))
    rates = st.sampled_from([1e5, 1e6, 3e6, 5e6, 1e8])
    latency = st.sampled_from([0.0, 0.0, 0.25])
    levels = tuple(Level(n, draw(rates), draw(latency)) for n in shape)
    memory = draw(st.one_of(st.none(), st.none(), st.integers(1, 400_000)))
    return Cluster(levels, memory, draw(st.sampled_from(["full", "full", "half"])))


def demands(draw: st.DrawFn, graph: LayerGraph) -> Constraints:
    """Mostly none; else straight, few stages, pinned layers, groups, forced and forbidden cuts."""
    if draw(st.integers(0, 2)):
        return Constraints()
    layer = st.integers(0, len(graph) - 1)
    cuts = []
    for _ in range(2):
        cut = graph.down_closure([draw(layer)])
        cuts.append((cut,) if len(cut) < len(graph) and draw(st.integers(0, 2)) == 0 else ())
    pin = (draw(layer), draw(st.integers(0, 2)))
    return Constraints(
        straight=draw(st.integers(0, 4)) == 0,
        max_stages=draw(st.sampled_from([None, None, 1, 2, 3])),
        pinned=(pin,) if draw(st.integers(0, 3)) == 0 else (),
        together=((draw(layer), draw(layer)),) if draw(st.integers(0, 4)) == 0 else (),
        forced_cuts=cuts[0],
        forbidden_cuts=cuts[1],
    )


def agree(problem: Problem, solve: Solve, options: SolveOptions = OPTIONS) -> None:
    coarse = options.milp_solver == "cpsat"
    try:
        truth = judge(problem, solve_exhaustive(problem, limit=2000))
    except TooLargeError:
        assume(False)
        return
    outcome = solve(problem, options)
    result = judge(problem, outcome, known_ms=truth.objective_ms)
    assert result.status is truth.status
    if truth.objective_ms is None:
        assert result.explanation
        if truth.smallest_memory_bytes is not None and problem.cost_model != "pipedream":
            # What a coarse solver says of the smallest is no proof; where bounds meet there is one.
            unproven = coarse and result.smallest_memory_bytes is None
            assert unproven or result.smallest_memory_bytes == truth.smallest_memory_bytes
        return
    assert result.objective_ms is not None
    assert result.bound_ms is not None
    assert math.isclose(
        result.objective_ms, truth.objective_ms, rel_tol=outcome.tolerance, abs_tol=1e-9
    )
    assert outcome.tolerance < (1e-4 if coarse else 1e-5)
    assert result.bound_ms <= truth.objective_ms * (1 + 1e-12)


def scheduled(draw: st.DrawFn) -> dict[str, Any]:
    schedule = draw(st.sampled_from(["pipedream", "pipedream", "1f1b", "gpipe"]))
    batch = None if schedule == "pipedream" else draw(st.sampled_from([1, 2, 3, 8]))
    return {
        "schedule": schedule,
        "micro_batches": batch,
        "recompute": draw(st.booleans()),
        "activation_compression_ratio": draw(st.sampled_from([None, 2.0])),
    }


@pytest.mark.parametrize("backend", BACKENDS)
@drawn(60)
@given(data=st.data())
def test_joint(backend: str, data: st.DataObject) -> None:
    draw = data.draw
    graph = draw(graphs())
    shapes = [(1,), (3,), (4,), (2, 2), (1, 3), (3, 2), (2, 1, 2), (2, 2, 2)]
    problem = Problem(
        graph,
        draw(clusters(shapes)),
        **scheduled(draw),
        overlap_sync=draw(st.booleans()),
        weight_copies=draw(st.sampled_from([1, 4])),
        constraints=demands(draw, graph),
    )
    agree(problem, BACKENDS[backend])


@drawn(40)
@given(data=st.data())
def test_joint_with_cp_sat_as_the_milp_solver(data: st.DataObject) -> None:
    draw = data.draw
    graph = draw(graphs())
    problem = Problem(
        graph,
        draw(clusters([(3,), (4,), (2, 2), (3, 2)])),
        **scheduled(draw),
        constraints=demands(draw, graph),
    )
    agree(problem, solve_milp, replace(OPTIONS, milp_solver="cpsat"))


@pytest.mark.parametrize("backend", BACKENDS)
@drawn(60)
@given(data=st.data())
def test_levelwise(backend: str, data: st.DataObject) -> None:
    draw = data.draw
    graph = draw(graphs(4))
    shapes = [(1,), (4,), (2, 2), (3, 2), (1, 2), (2, 1, 2), (2, 2, 2)]
    problem = Problem(
        graph,
        draw(clusters(shapes)),
        scope="nested",
        cost_model="levelwise",
        **scheduled(draw),
        constraints=demands(draw, graph),
    )
    agree(problem, BACKENDS[backend])


@pytest.mark.parametrize("backend", BACKENDS)
@drawn(40)
@given(data=st.data())
def test_pipedream_on_chains(backend: str, data: st.DataObject) -> None:
    draw = data.draw
    count = draw(st.integers(1, 4))
    times = st.sampled_from([0.0, 1.0, 2.0, 3.5, 7.0])
    sizes = st.sampled_from([0, 1000, 5000, 40000])
    layers = [
        Layer(f"n{i}", draw(times), draw(times), draw(sizes), draw(sizes)) for i in range(count)
    ]
    edges = [(f"n{i}", f"n{i + 1}") for i in range(count - 1)]
    edges += [(f"n{i}", f"n{i + 2}") for i in range(count - 2) if draw(st.booleans())]
    shape = draw(st.sampled_from([(1,), (4,), (2, 2), (3, 2), (2, 2, 2)]))
    rates = st.sampled_from([1e5, 1e6, 5e6, 1e8])
    memory = draw(st.one_of(st.none(), st.integers(1, 200_000)))
    problem = Problem(
        LayerGraph.build(layers, edges),
        Cluster.of(shape, [draw(rates) for _ in shape], memory_bytes=memory),
        scope="nested",
        cost_model="pipedream",
        use_fewer_machines=draw(st.booleans()),
        activation_compression_ratio=draw(st.sampled_from([None, 1.0, 2.0])),
        constraints=Constraints(straight=draw(st.integers(0, 3)) == 0),
    )
    agree(problem, BACKENDS[backend])
