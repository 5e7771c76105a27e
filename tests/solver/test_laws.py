"""Laws that any planner must obey, for every backend: what changes nothing, what never hurts."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeplan.core.cluster import Cluster, Level
from pipeplan.core.graph import GraphInput, Layer, LayerGraph, Together
from pipeplan.core.problem import Constraints, Problem
from pipeplan.models.synthetic import random_dag
from pipeplan.solver.api import solve
from pipeplan.solver.options import BackendName, SolveOptions

BACKENDS: list[BackendName] = ["dp", "cpsat", "milp"]
TOLERANCE = 2e-5
"""Twice what the integer backends state as the error of their ticks on these problems."""

drawn = settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
per_backend = pytest.mark.parametrize("backend", BACKENDS)
scopes = st.sampled_from([("joint", "topology"), ("nested", "levelwise")])
seeds = st.integers(0, 10_000)


def problem(
    seed: int, scope: tuple[str, str], shape: tuple[int, ...] = (2, 2), rate: float = 2e7
) -> Problem:
    levels = tuple(Level(n, rate / (level + 1)) for level, n in enumerate(shape))
    graph = random_dag(7, seed=seed)
    return Problem(graph, Cluster(levels), scope=scope[0], cost_model=scope[1])  # type: ignore[arg-type]


def best(asked: Problem, backend: BackendName) -> float:
    result = solve(asked, backend, SolveOptions(workers=1))
    return math.inf if result.objective_ms is None else result.objective_ms


def close(a: float, b: float) -> bool:
    return a == b or math.isclose(a, b, rel_tol=TOLERANCE)


def no_worse(a: float, b: float) -> bool:
    return a <= b * (1 + TOLERANCE)


def mapped(graph: LayerGraph, *, times: float = 1.0, rename: str = "") -> LayerGraph:
    """The same graph with all times scaled, or with its layers renamed back to front."""
    count = len(graph)
    name = {x.id: f"{rename}{count - i}" if rename else x.id for i, x in enumerate(graph.layers)}
    layers = [
        replace(
            x, id=name[x.id], forward_ms=x.forward_ms * times, backward_ms=x.backward_ms * times
        )
        for x in graph.layers
    ]
    edges = [(name[graph.layers[a].id], name[graph.layers[b].id]) for a, b in graph.edges]
    inputs = [
        GraphInput(x.id, x.output_bytes, tuple(name[c] for c in x.consumers)) for x in graph.inputs
    ]
    groups = [Together(tuple(name[v] for v in x.layers), x.reason) for x in graph.together]
    return LayerGraph.build(reversed(layers), edges, inputs=inputs, together=groups)


@per_backend
@drawn
@given(seeds, scopes)
def test_all_times_scaled_scale_the_period(
    backend: BackendName, seed: int, scope: tuple[str, str]
) -> None:
    asked = problem(seed, scope)
    levels = tuple(
        replace(x, bandwidth_bytes_per_s=x.bandwidth_bytes_per_s / 8) for x in asked.cluster.levels
    )
    slower = replace(asked, graph=mapped(asked.graph, times=8.0), cluster=Cluster(levels))
    assert close(best(slower, backend), 8.0 * best(asked, backend))


@per_backend
@drawn
@given(seeds, scopes)
def test_names_and_their_order_change_nothing(
    backend: BackendName, seed: int, scope: tuple[str, str]
) -> None:
    asked = problem(seed, scope)
    other = replace(asked, graph=mapped(asked.graph, rename="x"))
    assert close(best(other, backend), best(asked, backend))


@per_backend
@drawn
@given(seeds, scopes)
def test_more_bandwidth_never_hurts(
    backend: BackendName, seed: int, scope: tuple[str, str]
) -> None:
    asked = problem(seed, scope)
    for level in range(2):
        levels = list(asked.cluster.levels)
        levels[level] = replace(levels[level], bandwidth_bytes_per_s=1e9)
        faster = replace(asked, cluster=Cluster(tuple(levels)))
        assert no_worse(best(faster, backend), best(asked, backend))


@per_backend
@drawn
@given(seeds)
def test_another_device_never_hurts(backend: BackendName, seed: int) -> None:
    # On one level: with servers, a device more in each is a cluster of another shape.
    for scope in (("joint", "topology"), ("nested", "levelwise")):
        found = [best(problem(seed, scope, (n,)), backend) for n in (1, 2, 3, 4)]
        assert all(no_worse(more, less) for less, more in pairwise(found))


@per_backend
@drawn
@given(seeds, scopes)
def test_more_memory_never_hurts(backend: BackendName, seed: int, scope: tuple[str, str]) -> None:
    asked = problem(seed, scope)
    needed = 4 * asked.graph.total_parameter_bytes + sum(x.kept_bytes for x in asked.graph.layers)
    found = []
    for share in (0.2, 0.4, 0.8, 4.0):
        cluster = replace(asked.cluster, memory_bytes=max(1, int(needed * share)))
        found.append(best(replace(asked, cluster=cluster), backend))
    found.append(best(asked, backend))
    assert all(no_worse(more, less) for less, more in pairwise(found))
    assert math.isfinite(found[-1])


@per_backend
@drawn
@given(seeds, scopes)
def test_the_cuts_of_the_best_plan(backend: BackendName, seed: int, scope: tuple[str, str]) -> None:
    asked = problem(seed, scope)
    result = solve(asked, backend, SolveOptions(workers=1))
    plan = result.require_plan()
    assert result.objective_ms is not None
    cuts = plan.prefixes[:-1]
    forced = replace(asked, constraints=Constraints(forced_cuts=cuts))
    assert close(best(forced, backend), result.objective_ms)
    forbidden = replace(asked, constraints=Constraints(forbidden_cuts=cuts))
    assert no_worse(result.objective_ms, best(forbidden, backend))


@per_backend
def test_a_chain_merged_into_one_layer_never_helps(backend: BackendName) -> None:
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
    fine = best(Problem(whole, cluster), backend)
    assert no_worse(fine, best(Problem(coarse, cluster), backend))
