"""`pipeplan solve --sweep` from the command line."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from pipeplan.cli.app import app

SMALL = ["solve", "alexnet", "-n", "2", "-b", "4GB/s", "--backend", "dp"]


def run(*args: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*SMALL, *map(str, args)])
    return result.exit_code, result.output


def test_a_sweep_says_which_plan_where(tmp_path: Path) -> None:
    plot = tmp_path / "sweep.svg"
    code, out = run("--sweep", "bandwidth=0.1..100GB/s:4", "--plot", plot)
    assert code == 0
    assert "Now 4 GB/s: the same plan from" in out
    assert "<- now" in out
    ElementTree.fromstring(plot.read_text())


@pytest.mark.parametrize(("columns", "below"), [(80, True), (200, False)])
def test_plans_stand_below_the_table_where_they_do_not_fit(
    monkeypatch: pytest.MonkeyPatch, columns: int, below: bool
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out = run("--sweep", "bandwidth=0.1..100GB/s:4")
    assert code == 0
    assert max(map(len, out.splitlines())) <= columns
    assert "\u2026" not in out
    assert ("Plans (layers:replicas of each stage):" in out) is below
    # Each plan is written whole, as `evaluate` takes it.
    assert "0-5:1 6-21:1" in out


def test_sweeps_as_json() -> None:
    code, out = run("--sweep", "devices=1..3", "--sweep", "memory=10MB..40GB:3", "--json")
    assert code == 0
    devices, memory = json.loads(out)["sweeps"]
    assert [x["value"] for x in devices["points"]][:3] == [1, 2, 3]
    times = [x["objective_ms"] for x in devices["points"]]
    assert times == sorted(times, reverse=True)
    assert memory["points"][0]["status"] == "INFEASIBLE"
    assert memory["points"][-1]["plan"] is not None


def test_sweeps_that_make_no_sense(tmp_path: Path) -> None:
    for arguments, words in (
        (["--sweep", "speed=1..2"], "not a sweep"),
        (["--sweep", "devices=1..2", "-o", tmp_path / "plan.json"], "many plans"),
        (["--plot", tmp_path / "plot.svg"], "give --sweep too"),
    ):
        code, out = run(*arguments)
        assert code == 2
        assert words in out
