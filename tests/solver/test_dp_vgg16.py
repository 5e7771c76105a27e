"""The question pipeplan began with: VGG16 on 2 servers of 8 GPUs."""

from pathlib import Path

import pytest

from pipeplan.core.cluster import Cluster
from pipeplan.core.cost import baselines, evaluate
from pipeplan.core.graph import LayerGraph
from pipeplan.core.plan import Plan, Stage
from pipeplan.core.problem import Problem
from pipeplan.models.formats import read_profile
from pipeplan.solver.api import solve
from pipeplan.solver.result import Status

PROFILE = Path(__file__).resolve().parents[3] / "shared/reference/pipedream/vgg16.graph.txt"
CLUSTER = Cluster.of([8, 2], [4294967296, 2147483648])

pytestmark = [
    pytest.mark.reference,
    pytest.mark.skipif(not PROFILE.is_file(), reason="../shared/reference is not here"),
]


@pytest.fixture(scope="module")
def graph() -> LayerGraph:
    return read_profile(PROFILE).graph


def test_pipedream(graph: LayerGraph) -> None:
    problem = Problem(
        graph,
        CLUSTER,
        scope="nested",
        cost_model="pipedream",
        activation_compression_ratio=1.0,
    )
    result = solve(problem, "dp")
    plan = result.require_plan()
    assert result.status is Status.OPTIMAL
    assert result.objective_ms == pytest.approx(78.392462242586, rel=1e-9)
    base = baselines(problem)
    assert base.one_device_ms / 78.392462242586 == pytest.approx(8.579077385257, rel=1e-9)
    assert base.one_device_ms / base.data_parallel_ms == pytest.approx(6.565515477248, rel=1e-9)
    assert base.data_parallel_ms / 78.392462242586 == pytest.approx(1.306687557891, rel=1e-9)
    assert [stage.ranks for stage in plan.stages] == [
        (*range(7), *range(8, 15)),
        (7, 15),
    ]
    # Half of what it costs on the wire, the original cannot see.
    assert evaluate(problem, plan).topology.period_ms == pytest.approx(146.952110, rel=1e-8)


def test_joint(graph: LayerGraph) -> None:
    problem = Problem(graph, CLUSTER, activation_compression_ratio=1.0)
    result = solve(problem, "dp")
    assert result.status is Status.OPTIMAL
    assert result.bound_ms == result.objective_ms
    assert result.objective_ms == pytest.approx(43.709150, rel=1e-8)
    assert result.objective_ms >= 42.0334
    first = [
        (stage.layers[0], stage.layers[-1], stage.ranks) for stage in result.require_plan().stages
    ]
    assert first == [
        (0, 16, tuple(range(12))),
        (17, 24, (12, 13, 14)),
        (25, 39, (15,)),
    ]


def test_marks_that_a_hand_can_check(graph: LayerGraph) -> None:
    problem = Problem(graph, CLUSTER)

    def price(*stages: tuple[int, int, range]) -> float:
        plan = Plan(tuple(Stage(tuple(range(a, b + 1)), tuple(r)) for a, b, r in stages))
        return evaluate(problem, plan).objective_ms

    assert price((0, 39, range(16))) == pytest.approx(72.233946, rel=1e-8)
    assert price((0, 24, range(15)), (25, 39, range(15, 16))) == pytest.approx(44.667759, rel=1e-8)
    assert price(
        (0, 16, range(12)), (17, 24, range(12, 15)), (25, 39, range(15, 16))
    ) == pytest.approx(43.709150, rel=1e-8)


@pytest.mark.parametrize("scope", ["joint", "nested"])
def test_one_gigabyte_is_infeasible_and_says_what_would_do(graph: LayerGraph, scope: str) -> None:
    limited = Cluster(CLUSTER.levels, 10**9)
    model = "topology" if scope == "joint" else "levelwise"

    def ask(cluster: Cluster) -> Problem:
        return Problem(graph, cluster, scope=scope, cost_model=model)  # type: ignore[arg-type]

    result = solve(ask(limited), "dp")
    assert result.status is Status.INFEASIBLE
    assert result.plan is None
    smallest = result.smallest_memory_bytes
    assert smallest is not None
    assert smallest > 10**9
    assert f"{smallest} bytes" in result.explanation
    assert "1000000000 bytes" in result.explanation
    # What is said to do does, and one byte less does not.
    assert solve(ask(Cluster(CLUSTER.levels, smallest)), "dp").status is Status.OPTIMAL
    assert solve(ask(Cluster(CLUSTER.levels, smallest - 1)), "dp").status is Status.INFEASIBLE
