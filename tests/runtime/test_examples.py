"""The example of examples/README.md, step by step."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeplan.codegen.package import build_package, write_package
from pipeplan.core.cluster import Cluster
from pipeplan.core.codec import PlanFile, Provenance
from pipeplan.core.cost import evaluate
from pipeplan.core.plan import joint_plan
from pipeplan.core.problem import Problem
from pipeplan.models.profiler import profile_model
from pipeplan.models.profiler.factory import build_model, load_factory
from pipeplan.runtime.equivalence import verify
from pipeplan.runtime.package import load_package

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_example_can_be_cut_into_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    factory = "residual_mlp:residual_mlp"
    sizes = {"batch": 3, "width": 8}
    model, inputs = build_model(load_factory(factory), sizes=sizes)
    graph = profile_model(model, inputs, name="mlp", estimate="v100", factory=factory, sizes=sizes)
    third = len(graph) // 3
    stages = (range(third), range(third, 2 * third), range(2 * third, len(graph)))
    cluster = Cluster.of([4], [1e10])
    plan = joint_plan(cluster, tuple((tuple(x), 1 + (i == 1)) for i, x in enumerate(stages)))
    problem = Problem(graph, cluster, schedule="1f1b", micro_batches=8)
    file = PlanFile(problem, plan, evaluate(problem, plan), Provenance("GIVEN"))
    write_package(build_package(file), tmp_path / "pipeline")
    package = load_package(tmp_path / "pipeline")
    assert package.micro_batches == 8
    assert verify(package).failures == ()


def test_running_needs_no_ortools() -> None:
    code = "import sys, pipeplan.runtime.launch; sys.exit('ortools' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
