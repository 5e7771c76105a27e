"""`pipeplan report` from the command line: what it writes, and what it refuses."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeplan.cli.app import app
from pipeplan.validation.report.raster import find_browser


@pytest.fixture(scope="module")
def plan_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    question = ["-n", "2", "2", "-b", "4GiB/s", "1GiB/s", "--backend", "dp"]
    result = CliRunner().invoke(app, ["solve", "alexnet", *question, "-o", str(path)])
    assert result.exit_code == 0
    return path


def run(*args: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["report", *map(str, args)])
    return result.exit_code, result.output


def test_page_and_dot(plan_path: Path, tmp_path: Path) -> None:
    page, dot = tmp_path / "report.html", tmp_path / "graph.dot"
    code, out = run(plan_path, "-o", page, "--dot", dot)
    assert code == 0, out
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "Proven optimal (dp)" in text
    assert dot.read_text().startswith("digraph")
    again = tmp_path / "again.html"
    assert run(plan_path, "-o", again)[0] == 0
    assert again.read_text() == text


def test_a_sweep_is_drawn_into_the_page(plan_path: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    code, out = run(plan_path, "-o", page, "--sweep", "bandwidth=1..4GB/s:2")
    assert code == 0, out
    assert "objective against bandwidth" in page.read_text()


def test_refusals_are_one_message(plan_path: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken.html"
    taken.write_text("mine")
    for arguments, words in (
        ([plan_path], "say what to write"),
        ([plan_path, "-o", taken], "--force"),
        ([tmp_path / "none.json", "-o", tmp_path / "x.html"], "no such file"),
        ([plan_path, "-o", tmp_path / "x.html", "--sweep", "speed=1..2"], "not a sweep"),
    ):
        code, out = run(*arguments)
        assert code == 2
        assert words in out
        assert "Traceback" not in out
    assert taken.read_text() == "mine"
    assert not (tmp_path / "x.html").exists()


NESTED = ("--scope", "nested", "--cost-model", "pipedream", "--use_memory_constraint")


@pytest.mark.parametrize(
    "asked",
    [
        ("solve", "--force-cut", "features.3", "--forbid-cut", "features.1,5", "--pin", "0:0"),
        ("solve", "--together", "7,8,9", "--max-stages", "3", "--memory", "40GB", "--recompute"),
        ("solve", *NESTED, "--memory_size", "40e9", "--activation_compression_ratio", "2"),
        ("solve", "--schedule", "1f1b", "--micro-batches", "8", "--weight-copies", "3"),
        ("evaluate", "--stages", "0-9:3", "10-21:1", "--overlap-sync"),
    ],
)
def test_the_command_on_the_page_asks_the_same_question(
    asked: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster = ("-n", "2", "2", "-b", "4GiB/s", "1GiB/s")
    written = CliRunner().invoke(
        app, [asked[0], "alexnet", *cluster, *asked[1:], "-o", "plan.json"]
    )
    assert written.exit_code == 0, written.output
    assert run("plan.json", "-o", "report.html")[0] == 0
    page = Path("report.html").read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    # What the page's three buttons save.
    Path("profile.json").write_text(json.dumps(data["plan"]["profile"]))
    Path("cluster.toml").write_text(data["cluster_toml"])
    again = shlex.split(data["command"])
    assert again[0] == "pipeplan"
    found = CliRunner().invoke(app, [*again[1:], "-o", "again.json"])
    assert found.exit_code == 0, found.output
    first, second = (json.loads(Path(x).read_text()) for x in ("plan.json", "again.json"))
    assert second["problem"] == first["problem"]
    assert second["stages"] == first["stages"]


@pytest.mark.skipif(find_browser() is None, reason="needs a Chromium on PATH")
def test_picture(plan_path: Path, tmp_path: Path) -> None:
    picture = tmp_path / "report.png"
    code, out = run(plan_path, "--png", picture)
    assert code == 0, out
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert picture.stat().st_size > 50_000


def test_a_picture_without_a_browser_says_what_is_missing(
    plan_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    code, out = run(plan_path, "--png", tmp_path / "report.png")
    assert code == 2
    assert "chromium" in out
