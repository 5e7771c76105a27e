"""The commands generate, verify and run, as typed."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeplan.core.jsontext import dump_json
from pipeplan.core.profile_codec import graph_to_dict
from pipeplan.models.profiler import profile_model
from pipeplan.models.profiler.factory import build_model, load_factory
from pipeplan.runtime.measured import CutMeasure, MeasuredRun, StageMeasure, as_run
from pipeplan.runtime.package import load_package

Typed = Callable[..., tuple[int, str, str]]
FIELDS = "forward_compute_time=1, backward_compute_time=2, activation_size=8, parameter_size=16"


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Typed:
    """(exit code, stdout, stderr) of a command line in this process."""

    def go(*args: object) -> tuple[int, str, str]:
        from pipeplan.cli.app import main

        monkeypatch.setattr(sys, "argv", ["pipeplan", *map(str, args)])
        # The process and its signals are pytest's.
        monkeypatch.setattr("pipeplan.cli.app.take_over", lambda: None)
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capfd.readouterr()
        return int(left.value.code or 0), out, err

    return go


@pytest.fixture
def line(tmp_path: Path) -> Path:
    """A profile of four layers in a row."""
    texts = ["Input", "Linear(in_features=4, out_features=8)", "ReLU(inplace)", "Tanh()",
             "Linear(in_features=8, out_features=3)"]  # fmt: skip
    rows = [f"n{i} -- {text} -- {FIELDS}" for i, text in enumerate(texts)]
    rows += [f"\tn{i} -- n{i + 1}" for i in range(4)]
    path = tmp_path / "line.graph.txt"
    path.write_text("\n".join(rows) + "\n")
    return path


def solved(typed: Typed, profile: Path, plan: Path) -> Path:
    code, _, err = typed(
        "solve", profile, "-n", "2", "-b", "1GB/s", "--max-stages", "2", "--straight", "-o", plan
    )
    assert code == 0, err
    return plan


def test_from_a_profile_to_a_verified_package(typed: Typed, line: Path, tmp_path: Path) -> None:
    plan = solved(typed, line, tmp_path / "plan.json")
    target = tmp_path / "net"
    code, out, err = typed("generate", line, plan, "-o", target)
    assert code == 0, err
    assert f"pipeplan verify {target}" in out
    code, out, _ = typed("verify", target)
    assert code == 0, out
    assert "equal: nothing differs by more than 1e-10 relative" in out
    # The plan holds its profile: the same files without it.
    code, _, _ = typed("generate", plan, "-o", tmp_path / "again")
    assert code == 0
    for path in target.iterdir():
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_a_captured_model_by_commands(typed: Typed, tmp_path: Path, factories: Path) -> None:
    factory = "pipeplan_small_nets:net"
    model, inputs = build_model(load_factory(factory))
    graph = profile_model(model, inputs, name="net", estimate="v100", factory=factory)
    profile = tmp_path / "net.json"
    profile.write_text(dump_json(graph_to_dict(graph)))
    plan = solved(typed, profile, tmp_path / "plan.json")
    code, _, err = typed("generate", profile, plan, "-o", tmp_path / "net")
    assert code == 0, err
    code, out, err = typed("verify", tmp_path / "net", "--each", "--dtype", "float32")
    assert code == 0, err
    assert out.count("a.weight") == 2
    assert "against pipeplan_small_nets:net" in out


def test_verify_fails_with_1(typed: Typed, make_package: Callable[..., Path]) -> None:
    directory = make_package("pipeplan_small_nets:net", [1, 1])
    path = directory / "stage_1.py"
    path.write_text(path.read_text().replace("torch.tanh(", "torch.sin("))
    code, out, _ = typed("verify", directory)
    assert code == 1
    assert "NOT equal" in out


def test_a_hostile_layer_is_named_by_file_and_line_and_nothing_is_written(
    typed: Typed, line: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = "Conv2d(__import__('os').system('touch pwned'))"
    line.write_text(line.read_text().replace("Tanh()", evil))
    plan = solved(typed, line, tmp_path / "plan.json")
    monkeypatch.chdir(tmp_path)
    before = sorted(x.name for x in tmp_path.iterdir())
    code, out, err = typed("generate", line, plan, "-o", tmp_path / "net")
    assert code == 2
    assert out == ""
    assert f"{line}:4: layer n3: only numbers" in err
    assert "Traceback" not in err
    assert sorted(x.name for x in tmp_path.iterdir()) == before


def test_nothing_is_overwritten_without_force(typed: Typed, line: Path, tmp_path: Path) -> None:
    plan = solved(typed, line, tmp_path / "plan.json")
    target = tmp_path / "net"
    assert typed("generate", plan, "-o", target)[0] == 0
    (target / "train.py").write_text("mine")
    code, _, err = typed("generate", plan, "-o", target)
    assert code == 2
    assert "--force" in err
    assert (target / "train.py").read_text() == "mine"
    assert typed("generate", plan, "-o", target, "--force")[0] == 0
    assert (target / "train.py").read_text() != "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "no.json", "-o", "x"], "there is no such file"),
        (["generate", "a", "b", "c", "-o", "x"], "generate takes"),
        (["verify", "."], "no generated package"),
        (["run", "."], "no generated package"),
    ],
)
def test_bad_input_ends_with_2(
    arguments: list[str], message: str, typed: Typed, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = typed(*arguments)
    assert code == 2
    assert message in err


@pytest.mark.parametrize(
    "option",
    [["--dtype", "int8"], ["--schedule", "zigzag"], ["--device", "tpu"], ["--timeout", "0"]],
)
def test_options_of_run_are_checked(
    option: list[str], typed: Typed, make_package: Callable[..., Path]
) -> None:
    code, _, err = typed("run", make_package("pipeplan_small_nets:net", [1, 1]), *option)
    assert code == 2
    assert option[1] in err or "timeout" in err


def test_the_times_of_a_run_are_shown_beside_the_predicted_ones(
    typed: Typed, make_package: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stage 0 is busy 3 + 1 ms and stage 1 is busy 1 + 3 ms: gpipe needs 3 + 3."""
    directory = make_package("pipeplan_small_nets:net", [1, 1])
    file = load_package(directory).plan_file
    firsts = {stage.layers[0]: s for s, stage in enumerate(file.plan.stages)}
    layers = tuple(
        replace(
            layer,
            forward_ms=(3.0, 1.0)[firsts[v]] if v in firsts else 0.0,
            backward_ms=(1.0, 3.0)[firsts[v]] if v in firsts else 0.0,
        )
        for v, layer in enumerate(file.problem.graph.layers)
    )
    graph = replace(file.problem.graph, layers=layers)
    problem = as_run(replace(file.problem, graph=graph), "gpipe", 4)
    stage = StageMeasure(0, 3.25, 1.5, 0.75, 0.125, 0.0625, 0.03125, 3.0, 1.0, 0.5, 0.25)
    measured = MeasuredRun(
        problem=problem,
        losses=(2.5, 2.25),
        first_step=0,
        stages=(stage, replace(stage, stage=1)),
        cuts=(CutMeasure(0, 0.875, None, 0.625),),
        periods_ms=(6.5,),
        predicted_period_ms=4.0,
        step_ms=30.0,
        predicted_step_ms=28.0,
    )
    monkeypatch.setattr("pipeplan.runtime.local.run_here", lambda *_: measured)
    asked = ("run", directory, "--no-check", "--schedule", "gpipe")
    code, out, err = typed(*asked)
    assert code == 0, err
    lines = [line.split() for line in out.splitlines()]
    assert ["period", "6.500", "4.000"] in lines
    assert ["whole", "step", "30.000", "28.000"] in lines
    assert ["0", "measured", "3.250", "1.500", "0.750", "0.125", "0.062", "0.031"] in lines
    assert lines.count(["predicted", "3.000", "1.000", "0.500", "-", "0.250", "-"]) == 2
    assert ["0", "->", "1", "0.875", "-", "0.625"] in lines
    assert "it allows a period of 6.000 ms at best" in out
    code, out, err = typed(*asked, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["floor_period_ms"] == 6.0
    assert document["stages"][1]["wait_ms"] == 0.75
    assert document["stages"][1]["predicted_wait_ms"] == 0.5
    assert document["cuts"] == [
        {"after_stage": 0, "activation_ms": 0.875, "gradient_ms": None, "predicted_ms": 0.625}
    ]
    monkeypatch.setattr(
        "pipeplan.runtime.local.run_here", lambda *_: replace(measured, periods_ms=())
    )
    assert "A step is too short to have a steady part" in typed(*asked)[1]


@pytest.mark.slow
def test_run_beside_one_process_and_the_prediction(
    typed: Typed, make_package: Callable[..., Path]
) -> None:
    directory = make_package("pipeplan_small_nets:net", [2, 1])
    common = ["--device", "cpu", "--dtype", "float64", "--micro-batches", 12]
    code, out, err = typed("run", directory, "--steps", 5, *common, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert len(document["losses"]) == 5
    assert document["largest_relative_difference"] <= 1e-6
    assert len(document["periods_ms"]) == 4
    assert min(document["periods_ms"]) <= document["period_ms"] <= max(document["periods_ms"])
    assert document["floor_period_ms"] == document["predicted_period_ms"] > 0
    # The plan is for `pipedream`; what is run, and so what is predicted, is a batch of 1f1b.
    assert document["predicted_step_ms"] > 12 * document["predicted_period_ms"]
    assert [x["stage"] for x in document["stages"]] == [0, 1]
    for stage in document["stages"]:
        assert stage["compute_ms"] == pytest.approx(stage["forward_ms"] + stage["backward_ms"])
        parts = ("compute_ms", "wait_ms", "send_ms", "sync_ms", "update_ms")
        assert all(stage[x] >= 0 for x in parts)
    assert [x["after_stage"] for x in document["cuts"]] == [0]
    code, out, err = typed("run", directory, "--steps", 1, *common)
    assert code == 0, err
    assert "Times need two steps or more" in out
