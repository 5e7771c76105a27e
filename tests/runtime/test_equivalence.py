"""Stages against the original: every network of the zoo, and that a wrong stage is found."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeplan.codegen.package import build_package, write_package
from pipeplan.core.cluster import Cluster
from pipeplan.core.codec import PlanFile, Provenance
from pipeplan.core.cost import evaluate
from pipeplan.core.errors import PipeplanError
from pipeplan.core.problem import Constraints, Problem
from pipeplan.models.profiler import profile_model
from pipeplan.models.profiler.factory import build_model, load_factory
from pipeplan.models.zoo import FACTORIES
from pipeplan.runtime.equivalence import TOLERANCES, verify
from pipeplan.runtime.original import original_and_inputs
from pipeplan.runtime.package import load_package
from pipeplan.solver.api import solve
from pipeplan.solver.options import SolveOptions

TEXT: dict[str, Any] = {"batch": 2, "vocabulary": 19, "width": 8}
SIZES: dict[str, dict[str, Any]] = {
    "alexnet": {"batch": 2, "image": 64, "classes": 7, "width": 8, "hidden": 16},
    "encoder_decoder": {**TEXT, "length": 5, "heads": 2, "layers": 2},
    "gpt": {**TEXT, "length": 6, "heads": 2, "layers": 3},
    "inception_v3": {"batch": 2, "image": 139, "width": 2, "classes": 5},
    "moe": {**TEXT, "length": 6, "heads": 2, "layers": 2, "experts": 3},
    "resnet18": {"batch": 2, "image": 32, "classes": 5, "width": 4},
    "resnet50": {"batch": 2, "image": 32, "classes": 5, "width": 4},
    "seq2seq": {**TEXT, "length": 5, "layers": 2},
    "unet": {"batch": 2, "image": 16, "width": 4, "depth": 2},
    "vgg16": {"batch": 2, "image": 32, "classes": 5, "width": 4, "hidden": 16},
}
"""Small, but with every part of the full network."""

CASES = [(name, stages) for name in sorted(FACTORIES) for stages in (2, 3, 4)]


def test_every_network_of_the_zoo_is_covered() -> None:
    assert set(SIZES) == set(FACTORIES)


@pytest.mark.parametrize(("name", "stages"), CASES)
def test_stages_equal_the_original(
    name: str, stages: int, make_package: Callable[..., Path]
) -> None:
    directory = make_package(FACTORIES[name], [1] * stages, SIZES[name])
    package = load_package(directory)
    assert package.stages > 1
    verdict = verify(package, dtype="float64" if stages != 3 else "float32")
    assert verdict.failures == ()
    kinds = {(x.mode, x.kind) for x in verdict.differences}
    assert {(m, k) for m in ("train", "eval") for k in ("output", "loss", "gradient")} <= kinds
    # Every parameter of the original was compared, and most have a gradient at all.
    original, _ = original_and_inputs(package.factory, package.sizes)
    compared = {x.name for x in verdict.differences if x.kind == "gradient"}
    assert compared == {x for x, _ in original.named_parameters()}


@pytest.mark.parametrize("name", sorted(FACTORIES))
def test_the_whole_way(name: str, tmp_path: Path) -> None:
    """Profile, solve, generate, verify: the solver's own cuts, wherever they fall."""
    factory, sizes = FACTORIES[name], SIZES[name]
    module, inputs = build_model(load_factory(factory), sizes=sizes)
    graph = profile_model(
        module, inputs, name=name, estimate="v100", factory=factory, sizes=sizes, date="2000-01-01"
    )
    problem = Problem(
        graph,
        Cluster.of([3], [1e13]),
        schedule="1f1b",
        micro_batches=6,
        constraints=Constraints(straight=True),
    )
    options = SolveOptions(time_limit_s=30.0, gap=0.05)
    result = solve(problem, "auto", options)
    plan = result.require_plan()
    assert len(plan.stages) > 1
    file = PlanFile(
        problem,
        plan,
        evaluate(problem, plan),
        Provenance(result.status.value, "auto", "test", result.bound_ms),
    )
    write_package(build_package(file), tmp_path / "net", force=False)
    verdict = verify(load_package(tmp_path / "net"), dtype="float64")
    assert verdict.failures == ()


def test_tied_weights_share_a_stage_and_stay_one(make_package: Callable[..., Path]) -> None:
    package = load_package(make_package(FACTORIES["gpt"], [1, 1], SIZES["gpt"]))
    assert package.tied == (("tokens.weight", "head.weight"),)
    stages = [package.build_stage(s, 0) for s in range(package.stages)]
    holders = [s for s in stages if "tokens.weight" in map(s.original_name, s.state_dict())]
    assert len(holders) == 1
    assert holders[0].tokens.weight is holders[0].head.weight


@pytest.mark.parametrize("name", ["seq2seq", "gpt"])
def test_the_originals_checkpoint_loads_into_each_stage(
    name: str, make_package: Callable[..., Path]
) -> None:
    package = load_package(make_package(FACTORIES[name], [1, 1, 1], SIZES[name]))
    torch.manual_seed(7)
    original, _ = original_and_inputs(package.factory, package.sizes)
    checkpoint = original.state_dict()
    for index in range(package.stages):
        stage = package.stage_class(index)()
        stage.load_state_dict(checkpoint)
        for own, tensor in stage.state_dict().items():
            assert torch.equal(tensor, checkpoint[stage.original_name(own)])
        # Its own state goes back in as well, and something else does not.
        stage.load_state_dict(stage.state_dict())
        if stage.state_dict():
            with pytest.raises(RuntimeError):
                stage.load_state_dict({"other": torch.zeros(1)})


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("= tanh + relu", "= tanh - relu", "output"),
        ("= drop.relu()", "= drop.detach().relu()", "gradient"),
        ("return (relu, ", "return (relu.detach(), ", "gradient"),
        ("nn.Dropout(p=0.3", "nn.Dropout(p=0.6", "output"),
    ],
)
def test_a_wrong_stage_is_found(
    old: str, new: str, kind: str, make_package: Callable[..., Path]
) -> None:
    directory = make_package("pipeplan_small_nets:net", [1, 1, 1])
    assert verify(load_package(directory)).holds
    changed = 0
    for path in sorted(directory.glob("stage_*.py")):
        text = path.read_text()
        if old in text:
            path.write_text(text.replace(old, new))
            changed += 1
    if not changed:
        pytest.fail(
            f"no stage holds {old!r}: {[p.read_text() for p in directory.glob('stage_*.py')]}"
        )
    verdict = verify(load_package(directory))
    assert not verdict.holds
    assert kind in {x.kind for x in verdict.failures}


def test_layer_texts_are_compared_with_the_uncut_graph(
    tmp_path: Path, make_package: Callable[..., Path]
) -> None:
    from pipeplan.codegen.package import build_package, write_package
    from pipeplan.core.cluster import Cluster
    from pipeplan.core.codec import PlanFile, Provenance
    from pipeplan.core.cost import evaluate
    from pipeplan.core.plan import joint_plan
    from pipeplan.core.problem import Problem
    from pipeplan.models.formats import read_profile_text

    fields = "forward_compute_time=1, backward_compute_time=1, activation_size=8, parameter_size=0"
    texts = ["Input", "Linear(in_features=6, out_features=6)", "Dropout(p=0.5)", "Tanh()", "Add"]
    lines = [f"n{i} -- {text} -- {fields}" for i, text in enumerate(texts)]
    lines += [f"\tn{a} -- n{b}" for a, b in ((0, 1), (1, 2), (2, 3), (3, 4), (1, 4))]
    graph = read_profile_text("\n".join(lines), "small.graph.txt").graph
    cluster = Cluster.of([3], [1e9])
    plan = joint_plan(cluster, (((0,), 1), ((1, 2), 1), ((3,), 1)))
    problem = Problem(graph, cluster)
    file = PlanFile(problem, plan, evaluate(problem, plan), Provenance("GIVEN"))
    write_package(build_package(file), tmp_path / "net")
    verdict = verify(load_package(tmp_path / "net"))
    assert verdict.holds
    assert verdict.original == "the whole graph as one stage"
    path = tmp_path / "net" / "stage_2.py"
    path.write_text(path.read_text().replace("n3 + n1", "n3 + n1 * 1.001"))
    assert not verify(load_package(tmp_path / "net")).holds


def test_a_folder_that_is_no_package_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(PipeplanError, match="no generated package"):
        load_package(tmp_path)
    (tmp_path / "package.json").write_text('{"schema": "pipeplan.package/9"}')
    with pytest.raises(PipeplanError, match="this version reads"):
        load_package(tmp_path)


def test_a_stage_that_cannot_be_imported_is_named(make_package: Callable[..., Path]) -> None:
    directory = make_package("pipeplan_small_nets:net", [1, 1])
    (directory / "stage_1.py").write_text("import nothing_of_this_name")
    with pytest.raises(PipeplanError, match=r"stage_1\.py cannot be imported"):
        verify(load_package(directory))
    (directory / "stage_1.py").unlink()
    with pytest.raises(PipeplanError, match=r"stage_1\.py is missing"):
        verify(load_package(directory))


def test_tolerances_are_those_stated() -> None:
    assert TOLERANCES == {"float64": 1e-10, "float32": 1e-4}
