"""dp against exhaustive search on drawn problems: status, objective, memory that would do."""

import math

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pipeplan.core.cluster import Cluster, Level
from pipeplan.core.errors import ProblemError, TooLargeError
from pipeplan.core.graph import GraphInput, Layer, LayerGraph, Together
from pipeplan.core.problem import Constraints, Problem
from pipeplan.solver.api import solve
from pipeplan.solver.backends.exhaustive import solve_exhaustive
from pipeplan.solver.judge import judge
from pipeplan.solver.result import Status

SETTINGS = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    derandomize=True,
)


@st.composite
def graphs(draw: st.DrawFn, most: int = 5) -> LayerGraph:
    """Small graphs: branches, several sources and components, zero costs, ties, inputs, groups."""
    count = draw(st.integers(1, most))
    times = st.sampled_from([0.0, 0.0, 1.0, 1.0, 2.0, 3.5, 0.1, 7.0])
    sizes = st.sampled_from([0, 1000, 1000, 5000, 40000])
    layers = [
        Layer(
            f"n{i}",
            draw(times),
            draw(times),
            draw(sizes),
            draw(sizes),
            draw(st.sampled_from([None, 0, 3000])),
        )
        for i in range(count)
    ]
    edges = [
        (f"n{i}", f"n{j}")
        for j in range(count)
        for i in range(j)
        if draw(st.integers(0, 9)) < (7 if j == i + 1 else 3)
    ]
    inputs = []
    if draw(st.booleans()):
        readers = draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=2, unique=True))
        inputs.append(GraphInput("x", draw(sizes), tuple(f"n{i}" for i in sorted(readers))))
    together = []
    if count > 2 and draw(st.integers(0, 4)) == 0:
        pair = draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=2, unique=True))
        together.append(Together(tuple(f"n{i}" for i in pair), "tied"))
    return LayerGraph.build(layers, edges, inputs=inputs, together=together)


@st.composite
def clusters(draw: st.DrawFn, shapes: list[tuple[int, ...]]) -> Cluster:
    shape = draw(st.sampled_from(shapes))
    rates = st.sampled_from([1e5, 1e6, 5e6, 1e8, 3e6])
    latency = st.sampled_from([0.0, 0.0, 0.25, 3.0])
    levels = tuple(Level(n, draw(rates), draw(latency)) for n in shape)
    memory = draw(st.one_of(st.none(), st.none(), st.integers(1, 400_000)))
    return Cluster(levels, memory, draw(st.sampled_from(["full", "full", "half"])))


def agree(problem: Problem) -> None:
    try:
        truth = judge(problem, solve_exhaustive(problem, limit=1500))
    except TooLargeError:
        assume(False)
        return
    result = solve(problem, "dp")
    assert result.status is truth.status
    if truth.status is Status.OPTIMAL:
        assert result.objective_ms is not None
        assert truth.objective_ms is not None
        assert math.isclose(result.objective_ms, truth.objective_ms, rel_tol=1e-9, abs_tol=1e-9)
        assert result.bound_ms is not None
        assert result.bound_ms <= result.objective_ms
    else:
        assert result.explanation
        if truth.smallest_memory_bytes is not None and problem.cost_model != "pipedream":
            assert result.smallest_memory_bytes == truth.smallest_memory_bytes


def schedules(draw: st.DrawFn) -> tuple[str, int | None]:
    name = draw(st.sampled_from(["pipedream", "pipedream", "1f1b", "gpipe"]))
    return name, None if name == "pipedream" else draw(st.sampled_from([1, 2, 3, 8]))


def constraints(draw: st.DrawFn, graph: LayerGraph, *, numbered: bool) -> Constraints:
    """Mostly none; else straight, a stage limit, pinned layers, forced and forbidden cuts."""
    if draw(st.integers(0, 2)):
        return Constraints()
    cuts = []
    for _ in range(2):
        cut = graph.down_closure([draw(st.integers(0, len(graph) - 1))])
        cuts.append((cut,) if len(cut) < len(graph) and draw(st.integers(0, 2)) == 0 else ())
    return Constraints(
        straight=draw(st.integers(0, 4)) == 0,
        max_stages=draw(st.sampled_from([None, 1, 2, 3])) if numbered else None,
        pinned=((draw(st.integers(0, len(graph) - 1)), draw(st.integers(0, 2))),)
        if numbered and draw(st.integers(0, 3)) == 0
        else (),
        forced_cuts=cuts[0],
        forbidden_cuts=cuts[1],
    )


@SETTINGS
@given(st.data())
def test_joint(data: st.DataObject) -> None:
    draw = data.draw
    graph = draw(graphs())
    cluster = draw(clusters([(1,), (3,), (4,), (2, 2), (1, 3), (3, 2), (2, 1, 2), (2, 2, 2)]))
    schedule, batch = schedules(draw)
    problem = Problem(
        graph,
        cluster,
        schedule=schedule,  # type: ignore[arg-type]
        micro_batches=batch,
        recompute=draw(st.booleans()),
        overlap_sync=draw(st.booleans()),
        weight_copies=draw(st.sampled_from([1, 4])),
        activation_compression_ratio=draw(st.sampled_from([None, 2.0])),
        constraints=constraints(draw, graph, numbered=True),
    )
    agree(problem)


@SETTINGS
@given(st.data())
def test_levelwise(data: st.DataObject) -> None:
    draw = data.draw
    graph = draw(graphs(4))
    cluster = draw(clusters([(1,), (4,), (2, 2), (3, 2), (1, 2), (2, 1, 2), (2, 2, 2)]))
    schedule, batch = schedules(draw)
    problem = Problem(
        graph,
        cluster,
        scope="nested",
        cost_model="levelwise",
        schedule=schedule,  # type: ignore[arg-type]
        micro_batches=batch,
        recompute=draw(st.booleans()),
        activation_compression_ratio=draw(st.sampled_from([None, 2.0])),
        constraints=constraints(draw, graph, numbered=False),
    )
    agree(problem)


@SETTINGS
@given(st.data())
def test_pipedream(data: st.DataObject) -> None:
    draw = data.draw
    graph = draw(graphs(4))
    # With several sources the original explores but some of the cuts, the oracle all.
    assume(sum(not producers for producers in graph.producers) == 1)
    shape = draw(st.sampled_from([(1,), (4,), (2, 2), (3, 2), (2, 2, 2)]))
    rates = st.sampled_from([1e5, 1e6, 5e6, 1e8])
    cluster = Cluster.of(
        shape,
        [draw(rates) for _ in shape],
        memory_bytes=draw(st.one_of(st.none(), st.integers(1, 200_000))),
    )
    problem = Problem(
        graph,
        cluster,
        scope="nested",
        cost_model="pipedream",
        use_fewer_machines=draw(st.booleans()),
        activation_compression_ratio=draw(st.sampled_from([None, 1.0, 2.0])),
        constraints=Constraints(straight=draw(st.integers(0, 3)) == 0),
    )
    agree(problem)


def test_pipedream_drops_no_layer_in_silence() -> None:
    graph = LayerGraph.build([Layer("a", 1.0, 1.0, 10), Layer("b", 1.0, 1.0, 10)], [])
    problem = Problem(graph, Cluster.of([2], [1e9]), scope="nested", cost_model="pipedream")
    with pytest.raises(ProblemError, match="never reaches layer b"):
        solve(problem, "dp")
