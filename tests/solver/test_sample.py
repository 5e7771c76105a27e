"""The search over a sample of ideals: valid plans, never worse than the one it starts from."""

import pytest

from pipeplan.core.check import violations
from pipeplan.core.cluster import Cluster
from pipeplan.core.cost import evaluate
from pipeplan.core.problem import Problem
from pipeplan.models.synthetic import random_dag, transformer
from pipeplan.solver.api import solve
from pipeplan.solver.backends.dp.sample import improved_plan
from pipeplan.solver.linear_dp import linear_plan
from pipeplan.solver.reduce import reduce_graph


@pytest.mark.parametrize("seed", range(6))
def test_between_the_line_and_the_optimum(seed: int) -> None:
    problem = Problem(random_dag(14, seed=seed, sources=2), Cluster.of([4, 2], [5e7, 2e7]))
    reduced = reduce_graph(problem)
    first = linear_plan(problem, reduced)
    assert first is not None
    plan, crossing = improved_plan(problem, reduced, first, 60.0)
    assert crossing is not None
    assert violations(problem, plan) == ()
    price = evaluate(problem, plan).objective_ms
    assert price <= evaluate(problem, first).objective_ms
    best = solve(problem, "dp").objective_ms
    assert best is not None
    assert price >= best * (1 - 1e-9)


def test_without_time_the_given_plan_stays() -> None:
    problem = Problem(transformer(60), Cluster.of([4], [1e9]))
    reduced = reduce_graph(problem)
    first = linear_plan(problem, reduced)
    assert first is not None
    assert improved_plan(problem, reduced, first, 1e-9) == (first, None)
