"""Long networks on many GPUs: a plan with a small gap, within bounded memory."""

import resource
import subprocess
import sys

import pytest

from pipeplan.core.check import violations
from pipeplan.core.cluster import Cluster
from pipeplan.core.problem import Problem
from pipeplan.models.synthetic import transformer
from pipeplan.solver.api import solve
from pipeplan.solver.options import BackendName, SolveOptions
from pipeplan.solver.result import Limit, Status


@pytest.mark.parametrize(
    ("backend", "rates"),
    [("auto", (1e11, 1.25e10)), ("auto", (1e10, 1.25e9)), ("cpsat", (1e10, 1.25e9))],
)
def test_a_long_transformer_is_planned_near_the_bound(
    backend: BackendName, rates: tuple[float, float]
) -> None:
    # Three thousand layers in 300 equal blocks, 4.7 for each GPU.
    problem = Problem(transformer(3000), Cluster.of([8, 8], rates))
    result = solve(problem, backend, SolveOptions(gap=0.08, workers=1))
    assert result.status in (Status.FEASIBLE, Status.OPTIMAL)
    assert result.limit in (Limit.GAP, Limit.SIZE, None)
    assert violations(problem, result.require_plan()) == ()
    assert result.objective_ms is not None
    assert result.bound_ms is not None
    assert problem.graph.total_compute_ms / 64 * (1 - 1e-6) <= result.bound_ms
    assert result.objective_ms <= result.bound_ms * 1.08


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited on Linux alone")
def test_ten_thousand_layers_need_little_memory() -> None:
    code = (
        "from pipeplan.core.cluster import Cluster\n"
        "from pipeplan.core.problem import Problem\n"
        "from pipeplan.models.synthetic import transformer\n"
        "from pipeplan.solver.api import solve\n"
        "from pipeplan.solver.options import SolveOptions\n"
        "problem = Problem(transformer(10_000), Cluster.of([8, 4], [1e11, 1.25e10]))\n"
        "result = solve(problem, 'cpsat', SolveOptions(workers=1))\n"
        "print(result.status.value, (result.objective_ms - result.bound_ms) / result.bound_ms)\n"
    )
    limit = 4 * 2**30

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limited,
    )
    assert ran.returncode == 0, ran.stderr
    status, gap = ran.stdout.split()
    assert status == "FEASIBLE"
    assert float(gap) < 0.05
