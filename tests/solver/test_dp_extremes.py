"""The dp on figures at the ends of their ranges, beside the exhaustive oracle."""

import math

import pytest

from pipeplan.core.cluster import Cluster
from pipeplan.core.errors import ProblemError
from pipeplan.core.graph import GraphInput, Layer, LayerGraph
from pipeplan.core.problem import Constraints, Problem
from pipeplan.solver.api import solve
from pipeplan.solver.result import Status


def problem(
    figures: list[tuple[float, int, int]],
    *,
    edges: list[tuple[int, int]] | None = None,
    children: tuple[int, ...] = (2,),
    rate: float = 1e9,
    memory: int | None = None,
    inputs: tuple[GraphInput, ...] = (),
    **asked: object,
) -> Problem:
    """Layers l0, l1, ... of (ms, output bytes, parameter bytes)."""
    layers = [Layer(f"l{i}", ms, 0.0, out, own) for i, (ms, out, own) in enumerate(figures)]
    graph = LayerGraph.build(
        layers,
        [(f"l{a}", f"l{b}") for a, b in edges or []],
        inputs=inputs,
    )
    cluster = Cluster.of(children, [rate] * len(children), memory_bytes=memory)
    return Problem(graph, cluster, **asked)  # type: ignore[arg-type]


def agree(asked: Problem) -> None:
    """Status and objective are those of the oracle, and the bound meets the plan."""
    found, right = solve(asked, "dp"), solve(asked, "exhaustive")
    assert found.status is right.status
    assert (found.objective_ms is None) == (right.objective_ms is None)
    if found.objective_ms is not None and right.objective_ms is not None:
        assert math.isclose(found.objective_ms, right.objective_ms, rel_tol=1e-9, abs_tol=1e-12)


def test_a_forced_cut_of_layers_that_cost_nothing_is_reached() -> None:
    # The smaller cut inside it is as good in every figure, yet may not be followed past it.
    cuts = Constraints(forced_cuts=(frozenset({2, 3}),))
    agree(problem([(0, 0, 8), (0, 0, 0), (0, 0, 8), (0, 0, 0)], constraints=cuts))


def test_a_forced_cut_does_not_hide_a_better_plan() -> None:
    cuts = Constraints(forced_cuts=(frozenset({0, 1}),))
    agree(
        problem(
            [(2, 1000, 0), (0, 1000, 0), (0, 1000, 0)],
            edges=[(0, 2)],
            children=(2, 2),
            rate=1e6,
            constraints=cuts,
        )
    )


@pytest.mark.parametrize("memory", [None, 40, 10_000])
def test_nothing_takes_any_time(memory: int | None) -> None:
    agree(problem([(0, 0, 8), (0, 0, 2)], edges=[(0, 1)], memory=memory))


@pytest.mark.parametrize("ms", [5e-324, 1e-300, 1e-150, 1e-9, 1e12, 1e15])
@pytest.mark.parametrize("scope", ["joint", "nested"])
def test_times_from_the_smallest_to_the_largest(ms: float, scope: str) -> None:
    cost_model = "topology" if scope == "joint" else "levelwise"
    agree(problem([(ms, 1, 1), (ms, 1, 0)], edges=[(0, 1)], scope=scope, cost_model=cost_model))


@pytest.mark.parametrize("recompute", [False, True])
def test_peaks_beyond_64_bits_do_not_fit_any_memory(recompute: bool) -> None:
    inputs = (GraphInput("x", 2**60, ("l0",)),)
    asked = problem(
        [(1, 2**58, 2**59), (1, 2**59, 2**58)],
        edges=[(0, 1)],
        children=(3, 2),
        memory=2**61,
        inputs=inputs,
        weight_copies=100,
        recompute=recompute,
    )
    agree(asked)
    assert solve(asked, "dp").status is Status.INFEASIBLE


def test_the_least_memory_of_a_nested_plan_is_exact() -> None:
    asked = problem(
        [(1, 2**55 + 1, 0), (1, 2**55 + 2, 1)],
        edges=[(0, 1)],
        children=(1,),
        memory=2**54,
        scope="nested",
        cost_model="levelwise",
    )
    assert solve(asked, "dp").smallest_memory_bytes == 2**56 + 3 + 4


@pytest.mark.parametrize("at", ["output", "parameter"])
def test_totals_that_cannot_be_counted_exactly_are_refused(at: str) -> None:
    size = 2**59
    figures = [(1.0, size, 0) if at == "output" else (1.0, 0, size)] * 3
    with pytest.raises(ProblemError, match=rf"{at}s of all layers add up to {3 * size} bytes"):
        problem(figures)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("batch", [2, 4, 9])
@pytest.mark.parametrize("rates", [(1e6, 1e5), (1e5, 1e6)])
def test_the_best_batch_may_be_of_another_number_of_copies_than_the_best_period(
    schedule: str, batch: int, rates: tuple[float, float]
) -> None:
    layers = [Layer(f"l{i}", 1.0 + i % 3, 1.0, 1000, 500 * i) for i in range(6)]
    graph = LayerGraph.build(layers, [(f"l{i}", f"l{i + 1}") for i in range(5)])
    asked = Problem(
        graph,
        Cluster.of([2, 2], rates),
        schedule=schedule,  # type: ignore[arg-type]
        micro_batches=batch,
    )
    agree(asked)
