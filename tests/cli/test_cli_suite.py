"""`pipeplan compare` over many instances: --suite, --markdown, --json, and what an end leaves."""

import contextlib
import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeplan.core.problem import Problem
from pipeplan.models.profiles import packaged_names
from pipeplan.solver.result import Limit, SolveResult, Stats, Status
from pipeplan.validation.suite import CLUSTERS

Run = Callable[..., Any]
CLUSTER = ("-n", 2, 2, "-b", "10GB/s", "1GB/s")
Honest = Callable[[Problem, str], SolveResult]


@pytest.fixture
def folder(tmp_path: Path, chain: Path) -> Path:
    """Two profiles, one a little larger, and a file that is none."""
    place = tmp_path / "nets"
    place.mkdir()
    (place / "a.graph.txt").write_text(chain.read_text())
    (place / "b|c.graph.txt").write_text(chain.read_text().replace("=20.0", "=40.0"))
    (place / "README.md").write_text("# Nets\n")
    (place / "deeper").mkdir()
    (place / "dangling").symlink_to(place / "nowhere")
    os.mkfifo(place / "pipe")
    return place


@pytest.fixture
def unsolved(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Problem, str]]:
    """Answers every search at once with an optimum of 1 ms; the list holds what was asked."""
    asked: list[tuple[Problem, str]] = []

    def find(problem: Problem, backend: str, flags: Any) -> SolveResult:
        asked.append((problem, backend))
        return SolveResult(Status.OPTIMAL, Stats(backend, 0.5), objective_ms=1.0, bound_ms=1.0)

    monkeypatch.setattr("pipeplan.cli.search.find", find)
    return asked


def lies(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[Honest, Problem, str], SolveResult]
) -> None:
    """Let `answer` stand between the command and the solver."""
    from pipeplan.cli import search

    honest = search.find

    def find(problem: Problem, backend: str, flags: Any) -> SolveResult:
        return answer(lambda *asked: honest(*asked, flags), problem, backend)

    monkeypatch.setattr(search, "find", find)


def cells(line: str) -> list[str]:
    """The cells of a row in Markdown."""
    return [x.strip() for x in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_a_folder_is_a_table_of_the_profiles_in_it(run: Run, folder: Path) -> None:
    ran = run("compare", "--suite", folder, *CLUSTER, "--backends", "dp,auto")
    assert ran.code == 0
    assert "2 of 2 instances: backends agree on 2, contradict each other on 0" in ran.out
    for name in ("a.graph.txt", "b|c.graph.txt"):
        assert name in ran.out
    assert ran.out.count("OPTIMAL") == 4
    assert "2,2 at 10 GB/s and 1 GB/s" in " ".join(ran.out.split())
    assert "Share of 2 instances proved" in ran.out
    for name in ("README.md", "deeper", "dangling", "pipe"):
        assert f"left out: {folder / name}" in ran.err
    assert "1 of 4: a.graph.txt on 2,2 at 10 GB/s and 1 GB/s: dp OPTIMAL" in ran.err
    assert "4 of 4: b|c.graph.txt" in ran.err


def test_markdown_has_five_columns_a_backend(run: Run, folder: Path) -> None:
    ran = run("compare", "--suite", folder, *CLUSTER, "--backends", "dp,auto", "--markdown")
    assert ran.code == 0
    head, ruler, *rows = [x for x in ran.out.split("\n\n")[0].splitlines()]
    assert cells(head)[3:8] == ["dp status", "dp ms", "dp bound ms", "dp gap", "dp s"]
    assert len(rows) == 2
    assert all(len(cells(x)) == 3 + 2 * 5 for x in (head, ruler, *rows))
    first, second = map(cells, rows)
    assert first[0] == "a.graph.txt"
    assert second[0] == "b\\|c.graph.txt"
    assert (first[2], first[3], first[6]) == ("yes", "OPTIMAL", "0 %")
    assert first[4] == first[9]
    assert float(second[4]) > float(first[4])
    assert "| proved | 2 | 2 |" in ran.out


def test_markdown_of_profiles_that_are_named(run: Run, chain: Path) -> None:
    ran = run("compare", chain, *CLUSTER, "--backends", "dp", "--markdown")
    assert ran.code == 0
    assert "| OPTIMAL |" in ran.out
    assert "1 of 1 instance: backends agree on 0" in ran.out
    assert "factor" not in ran.out


def test_json_holds_the_same(run: Run, folder: Path) -> None:
    ran = run("compare", "--suite", folder, *CLUSTER, "--backends", "dp,auto", "--json")
    assert ran.code == 0
    document = json.loads(ran.out)
    assert document["agree"]
    assert document["asked"] == 2
    assert [x["profile"] for x in document["instances"]] == ["a.graph.txt", "b|c.graph.txt"]
    for instance in document["instances"]:
        for row in instance["backends"]:
            assert (row["status"], row["gap"], row["error"]) == ("OPTIMAL", 0.0, None)
    performance = document["performance"]
    assert performance["instances"] == performance["proved_by_all"] == 2
    assert performance["factors"][0] == 1
    assert [x["backend"] for x in performance["backends"]] == ["dp", "auto"]
    assert all(x["shares"][-1] == 1.0 and x["proved"] == 2 for x in performance["backends"])


def test_the_packaged_suite_is_every_profile_on_the_clusters_of_the_project(
    run: Run, unsolved: list[tuple[Problem, str]]
) -> None:
    ran = run("compare", "--suite", "packaged", "--backends", "dp,milp", "--json")
    assert ran.code == 0
    rows = [(x["profile"], x["cluster"]) for x in json.loads(ran.out)["instances"]]
    assert rows == [(name, x.name) for name in packaged_names() for x in CLUSTERS]
    assert len(unsolved) == 2 * len(rows)
    assert {x.cluster for x, _ in unsolved} == {x.cluster for x in CLUSTERS}


def test_a_cluster_of_ones_own_and_limits_hold_for_the_whole_suite(
    run: Run, unsolved: list[tuple[Problem, str]]
) -> None:
    flags = ("--backends", "dp", "--memory", "16GB", "--schedule", "1f1b", "--micro-batches", 8)
    assert run("compare", "--suite", "packaged", *CLUSTER, *flags).code == 0
    assert {x.cluster.group_sizes for x, _ in unsolved} == {(1, 2, 4)}
    assert len(unsolved) == len(packaged_names())
    unsolved.clear()
    ran = run("compare", "--suite", "packaged", *flags, "--duplex", "half", "--json")
    assert {x.cluster.levels for x, _ in unsolved} == {x.cluster.levels for x in CLUSTERS}
    for problem, _ in unsolved:
        assert problem.cluster.memory_bytes == 16 * 10**9
        assert problem.cluster.duplex == "half"
        assert (problem.schedule, problem.micro_batches) == ("1f1b", 8)
    first = json.loads(ran.out)["instances"][0]["cluster"]
    assert first == f"{CLUSTERS[0].name}, 16 GB a GPU, half duplex"


@pytest.mark.parametrize("flags", [(), ("--markdown",), ("--json",)])
def test_contradictions_are_named_with_their_instance(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    def answer(honest: Honest, problem: Problem, backend: str) -> SolveResult:
        if backend == "auto" and "b" in problem.graph.name:
            return SolveResult(Status.INFEASIBLE, Stats("auto", 0.0))
        return honest(problem, backend)

    lies(monkeypatch, answer)
    ran = run("compare", "--suite", folder, *CLUSTER, "--backends", "dp,auto", *flags)
    assert ran.code == 1
    assert "auto says INFEASIBLE, but dp has a plan" in " ".join(ran.out.split())
    if "--json" in flags:
        honest, wrong = json.loads(ran.out)["instances"]
        assert (len(honest["disagreements"]), len(wrong["disagreements"])) == (0, 1)
    else:
        assert ran.out.count("DISAGREEMENT") == (1 if "--markdown" in flags else 2)
        assert "agree on 1, contradict each other on 1" in ran.out
        assert "Share of 1 instance proved" in ran.out


@pytest.mark.parametrize("flags", [(), ("--markdown",), ("--json",)])
def test_an_interrupt_leaves_what_is_finished(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    def answer(honest: Honest, problem: Problem, backend: str) -> SolveResult:
        if "b" in problem.graph.name:
            return SolveResult(Status.NO_SOLUTION, Stats(backend, 0.0), limit=Limit.INTERRUPT)
        return honest(problem, backend)

    lies(monkeypatch, answer)
    ran = run("compare", "--suite", folder, *CLUSTER, "--backends", "dp,auto", *flags)
    assert ran.code == 130
    assert ran.err.splitlines()[-1] == "pipeplan: interrupted"
    if "--json" in flags:
        document = json.loads(ran.out)
        assert document["asked"] == 2
        assert [x["profile"] for x in document["instances"]] == ["a.graph.txt"]
    else:
        assert "1 of 2 instances: backends agree on 1" in ran.out
        assert "b|c" not in ran.out


def test_an_interrupt_that_a_search_survives_ends_the_run_too(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(honest: Honest, problem: Problem, backend: str) -> SolveResult:
        result = honest(problem, backend)
        if "b" in problem.graph.name:
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        return result

    lies(monkeypatch, answer)
    before = signal.getsignal(signal.SIGINT)
    ran = run("compare", "--suite", folder, *CLUSTER, "--backends", "dp")
    assert ran.code == 130
    assert "1 of 2 instances" in ran.out
    assert signal.getsignal(signal.SIGINT) is before


def test_why_a_backend_gave_no_answer_is_said_once_a_profile(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeplan.core.errors import TooLargeError

    def answer(honest: Honest, problem: Problem, backend: str) -> SolveResult:
        if backend == "milp":
            raise TooLargeError("the graph is too large")
        return SolveResult(Status.OPTIMAL, Stats(backend, 0.5), objective_ms=1.0, bound_ms=1.0)

    lies(monkeypatch, answer)
    for flags in ((), ("--markdown",)):
        ran = run("compare", "--suite", folder, "--backends", "dp,milp", *flags)
        assert ran.code == 0
        assert ran.out.count("milp (4 times): the graph is too large") == 2
        assert "on 8 fewer than two answered" in ran.out


@pytest.mark.parametrize("columns", [80, 140])
def test_the_table_fits_its_columns_with_every_figure_whole(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    def answer(honest: Honest, problem: Problem, backend: str) -> SolveResult:
        return SolveResult(
            Status.FEASIBLE,
            Stats(backend, 60.123),
            objective_ms=3358.732365,
            bound_ms=1234.567891,
            limit=Limit.TIME,
        )

    lies(monkeypatch, answer)
    ran = run("compare", "--suite", folder, "--backends", "dp,cpsat,milp", columns=columns)
    assert ran.code == 0
    assert all(len(line) <= columns for line in ran.out.splitlines())
    for figure in ("FEASIBLE (time)", "60.123 s", "3358.732365 ms", "1234.567891", "63.2 %"):
        assert ran.out.count(figure) == 2 * 4 * 3
    assert "\u2026" not in ran.out


def test_what_makes_no_sense(run: Run, folder: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for arguments, words in (
        ((), "which PROFILE?"),
        (("vgg16", "--suite", "packaged"), "leave out 'vgg16'"),
        (("--suite", "nowhere"), "there is no suite 'nowhere': it is packaged, or a folder"),
        (("--suite", empty), "is a profile"),
        (("--suite", folder, "-n", 4), "-b is missing"),
        (("--suite", "packaged", "--force-cut", "fc", "-n", 2, "-b", 1e9), "alexnet: 'fc' is no"),
        (("resnet18", "vgg16", "--pin", "conv1:0", "-n", 2, "-b", 1e9), "vgg16: 'conv1' is no"),
        (("--suite", folder, "--json", "--markdown"), "give one of them"),
        (("--suite", folder, "--backends", "dp,dp"), "name each backend once"),
        (("--suite", folder, "--backends", "magic"), "no backend 'magic'"),
        (("--suite", folder, "--time-limit", "0s"), "time limit"),
    ):
        ran = run("compare", *arguments)
        assert ran.code == 2, arguments
        assert words in ran.err
        assert ran.out == ""
