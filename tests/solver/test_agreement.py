"""cpsat and milp against dp on every real profile that dp can do: `pytest -m slow -k agreement`.

A backend that proves its answer must give that of dp; one that a limit stopped must not contradict
it. What was not proven in time is printed, not hidden.
"""

import math
from functools import cache
from pathlib import Path

import pytest

from pipeplan.core.cluster import Cluster
from pipeplan.core.errors import TooLargeError
from pipeplan.core.graph import LayerGraph
from pipeplan.core.problem import Problem
from pipeplan.models.formats import read_profile
from pipeplan.solver.api import solve
from pipeplan.solver.options import SolveOptions
from pipeplan.solver.result import Status

PROFILES = Path(__file__).resolve().parents[3] / "shared/reference/pipedream"
TOLERANCE = 1e-5
LIMIT_S = 20.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.reference,
    pytest.mark.skipif(not PROFILES.is_dir(), reason="../shared/reference is not here"),
]

CLUSTERS = {
    "4": ((4,), (1e10,)),
    "8": ((8,), (1e10,)),
    "4x4": ((4, 4), (1e10, 1.25e9)),
    "8x2": ((8, 2), (1e10, 1.25e9)),
    "2x2x2": ((2, 2, 2), (1e10, 5e9, 1.25e9)),
}
NAMES = (
    "alexnet",
    "vgg16",
    "gnmt",
    "resnet18",
    "resnet50",
    "resnext50",
    "resnet101",
    "densenet121",
    "inception_v3",
)


@cache
def graph(name: str) -> LayerGraph:
    return read_profile(PROFILES / f"{name}.graph.txt").graph


@pytest.mark.parametrize("memory", [None, 16 * 10**9, 10**8], ids=["free", "16GB", "100MB"])
@pytest.mark.parametrize("scope", ["joint", "nested"])
@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("backend", ["cpsat", "milp"])
def test_agreement(
    backend: str,
    name: str,
    cluster: str,
    scope: str,
    memory: int | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    children, rates = CLUSTERS[cluster]
    problem = Problem(
        graph(name),
        Cluster.of(children, rates, memory_bytes=memory),
        scope=scope,  # type: ignore[arg-type]
        cost_model="topology" if scope == "joint" else "levelwise",
    )
    try:
        truth = solve(problem, "dp")
    except TooLargeError as error:
        pytest.skip(f"dp cannot do it: {error}")
    assert truth.status in (Status.OPTIMAL, Status.INFEASIBLE)
    result = solve(problem, backend, SolveOptions(time_limit_s=LIMIT_S))  # type: ignore[arg-type]
    if result.status in (Status.OPTIMAL, Status.INFEASIBLE):
        assert result.status is truth.status
    else:
        with capsys.disabled():
            print(
                f" [{result.status.value}: {result.objective_ms}, bound {result.bound_ms}]", end=""
            )
    if truth.objective_ms is None:
        assert result.plan is None
        return
    if result.objective_ms is not None:
        assert result.objective_ms >= truth.objective_ms * (1 - TOLERANCE)
        if result.status is Status.OPTIMAL:
            assert math.isclose(result.objective_ms, truth.objective_ms, rel_tol=TOLERANCE)
    if result.bound_ms is not None:
        assert result.bound_ms <= truth.objective_ms * (1 + TOLERANCE)
