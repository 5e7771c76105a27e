"""References: what is compared, how a difference is named, and that only --update writes."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipeplan.cli.app import app
from pipeplan.core.errors import BackendBugError, TooLargeError
from pipeplan.core.graph import LayerGraph
from pipeplan.core.problem import Problem
from pipeplan.core.problem_codec import problem_from_dict
from pipeplan.models.formats import read_profile
from pipeplan.models.profiles import packaged_names
from pipeplan.solver.api import solve
from pipeplan.solver.options import BackendName, SolveOptions
from pipeplan.solver.result import Limit, SolveResult, Stats, Status
from pipeplan.validation.pipedream_records import read_pipedream_records
from pipeplan.validation.reference_files import (
    Record,
    ReferenceError,
    ReferenceFile,
    dump_references,
    packaged_folder,
    read_references,
)
from pipeplan.validation.regress import compare, record_answers, regress

REFERENCE = Path(__file__).resolve().parents[3] / "shared" / "reference"
SMALL = "resnet18"
QUICK = ("alexnet", "gpt_tied", "resnet18", "resnet50", "seq2seq", "unet", "vgg16")
"""Profiles with ideals so few that dp needs a blink for most of their records."""


def run(*args: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["regress", *map(str, args)])
    return result.exit_code, result.output


def find(problem: Problem, backend: BackendName) -> SolveResult:
    return solve(problem, backend, SolveOptions(time_limit_s=60))


@pytest.fixture(scope="module")
def graph() -> LayerGraph:
    return read_profile(SMALL).graph


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of one packaged file, with its three quickest records."""
    file = read_references(packaged_folder() / f"{SMALL}.json")
    quick = tuple(x for x in file.records if x.question["scope"] == "joint")[:3]
    (tmp_path / f"{SMALL}.json").write_text(dump_references(replace(file, records=quick)))
    return tmp_path


def changed(folder: Path, **fields: Any) -> None:
    path = folder / f"{SMALL}.json"
    data = json.loads(path.read_text())
    data["records"][0].update(fields)
    path.write_text(json.dumps(data))


def test_every_packaged_profile_has_references_that_read_back_as_they_are() -> None:
    paths = sorted(packaged_folder().glob("*.json"))
    assert {x.stem for x in paths} == set(packaged_names())
    for path in paths:
        file = read_references(path)
        assert dump_references(file) == path.read_text()
        profile = read_profile(file.instance).graph
        assert file.profile_digest == profile.digest
        for record in file.records:
            problem_from_dict(dict(record.question), profile)


def test_the_recorded_answers_are_given_again(folder: Path) -> None:
    code, out = run(folder, "--backends", "dp")
    assert code == 0, out
    assert "3 checks: 3 the same" in out


def quick_records(name: str) -> list[tuple[Path, ReferenceFile]]:
    """A profile's records, but for joint plans of several servers: those take a second or more."""
    path = packaged_folder() / f"{name}.json"
    file = read_references(path)
    quick = tuple(
        x
        for x in file.records
        if x.question["scope"] == "nested" or len(x.question["cluster"]["levels"]) == 1
    )
    assert len(quick) == len(file.records) - 1
    return [(path, replace(file, records=quick))]


@pytest.mark.parametrize("name", QUICK)
def test_dp_gives_the_packaged_answers_again(name: str) -> None:
    for finding in regress(quick_records(name), ("dp",), solve):
        assert finding.verdict == "same", finding


@pytest.mark.parametrize("name", ["alexnet", "gpt_tied"])
def test_cpsat_and_milp_give_packaged_answers_again(name: str) -> None:
    ((path, file),) = quick_records(name)
    native = tuple(x for x in file.records if x.question["cost_model"] != "pipedream")
    for finding in regress([(path, replace(file, records=native))], ("cpsat", "milp"), solve):
        assert finding.verdict in ("same", "tie"), finding


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(packaged_folder().glob("*.json")), ids=lambda x: x.stem)
def test_no_backend_contradicts_a_packaged_answer(path: Path) -> None:
    def hurried(problem: Problem, backend: BackendName) -> SolveResult:
        return solve(problem, backend, SolveOptions(time_limit_s=10))

    file = read_references(path)
    findings = list(regress([(path, file)], ("dp", "cpsat", "milp"), hurried))
    assert len(findings) == 3 * len(file.records)
    assert [x for x in findings if x.verdict == "different"] == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"objective_ms": 1.0, "bound_ms": 1.0}, "is above the recorded 1.0 ms"),
        ({"objective_ms": 1e6, "bound_ms": 1e6}, "is below the recorded bound 1000000.0 ms"),
        (
            {"status": "INFEASIBLE", "objective_ms": None, "bound_ms": None},
            "recorded INFEASIBLE, but there is a plan",
        ),
    ],
)
def test_a_changed_reference_is_a_regression_with_its_difference_named(
    folder: Path, fields: dict[str, Any], words: str
) -> None:
    changed(folder, **fields)
    before = (folder / f"{SMALL}.json").read_text()
    code, out = run(folder, "--backends", "dp")
    assert code == 1
    assert words in out
    assert "different: resnet18, joint topology pipedream on 4" in out
    assert (folder / f"{SMALL}.json").read_text() == before


def test_a_changed_profile_is_a_regression(folder: Path) -> None:
    path = folder / f"{SMALL}.json"
    data = json.loads(path.read_text())
    data["profile_digest"] = "sha256:" + "0" * 64
    path.write_text(json.dumps(data))
    code, out = run(folder, "--backends", "dp")
    assert code == 1
    assert "the profile is sha256:" in out


def result(
    status: Status, objective: float | None, bound: float | None, limit: Limit | None = None
) -> SolveResult:
    return SolveResult(status, Stats("test", 0.0), None, objective, bound, limit)


def test_what_a_limit_stopped_must_not_contradict(graph: LayerGraph) -> None:
    known = Record({}, "OPTIMAL", 10.0, 10.0, None, "test", 1e-9, "2026-01-01")
    none = Record({}, "INFEASIBLE", None, None, None, "test", 1e-9, "2026-01-01")
    assert compare(graph, known, result(Status.FEASIBLE, 12.0, 8.0))[0] == "unfinished"
    assert compare(graph, known, result(Status.NO_SOLUTION, None, 8.0))[0] == "unfinished"
    assert compare(graph, known, result(Status.FEASIBLE, 12.0, 10.5))[0] == "different"
    assert compare(graph, known, result(Status.FEASIBLE, 9.0, 8.0))[0] == "different"
    assert compare(graph, known, result(Status.INFEASIBLE, None, None))[0] == "different"
    assert compare(graph, none, result(Status.INFEASIBLE, None, None))[0] == "same"
    assert compare(graph, none, result(Status.NO_SOLUTION, None, None))[0] == "unfinished"


def test_another_plan_of_the_same_price_is_a_tie(folder: Path) -> None:
    changed(folder, plan_digest="sha256:" + "1" * 64)
    code, out = run(folder, "--backends", "dp")
    assert code == 0
    assert "1 another plan of the same price" in out


def test_update_keeps_what_holds_and_says_what_changes(
    folder: Path, graph: LayerGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / f"{SMALL}.json"
    old = read_references(path)
    asked = [problem_from_dict(dict(x.question), graph) for x in old.records]
    monkeypatch.setattr("pipeplan.validation.regress.reference_problems", lambda _: iter(asked))
    same, changes = record_answers(SMALL, graph, find, old, "2030-01-01")
    assert (same, changes) == (old, [])
    wrong = replace(old, records=(replace(old.records[0], objective_ms=1.0, bound_ms=1.0),))
    new, changes = record_answers(SMALL, graph, find, wrong, "2030-01-01")
    assert new.records[0].objective_ms == old.records[0].objective_ms
    assert [x.date for x in new.records] == ["2030-01-01"] * 3
    assert "OPTIMAL 1.0 ms, bound 1.0 -> OPTIMAL" in changes[0]
    assert "not recorded -> OPTIMAL" in changes[1]


def asked_first(folder: Path, graph: LayerGraph, monkeypatch: pytest.MonkeyPatch) -> ReferenceFile:
    """The first record alone, as the only question that is recorded."""
    old = read_references(folder / f"{SMALL}.json")
    problem = problem_from_dict(dict(old.records[0].question), graph)
    monkeypatch.setattr("pipeplan.validation.regress.reference_problems", lambda _: iter([problem]))
    return replace(old, records=old.records[:1])


def test_update_keeps_what_a_search_could_not_answer(
    folder: Path, graph: LayerGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = asked_first(folder, graph, monkeypatch)

    def refuses(problem: Problem, backend: BackendName) -> SolveResult:
        raise TooLargeError("too large for this machine")

    def finds_nothing(problem: Problem, backend: BackendName) -> SolveResult:
        return result(Status.NO_SOLUTION, None, None, Limit.TIME)

    for search, words in ((refuses, "too large for this machine"), (finds_nothing, "in the limit")):
        new, changes = record_answers(SMALL, graph, search, old, "2030-01-01")
        assert new == old
        assert len(changes) == 1
        assert words in changes[0]


def test_update_records_a_proof_that_was_missing(
    folder: Path, graph: LayerGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = asked_first(folder, graph, monkeypatch)
    (proven,) = old.records
    assert proven.objective_ms is not None
    weaker = replace(proven, status="FEASIBLE", bound_ms=proven.objective_ms / 2)
    new, changes = record_answers(SMALL, graph, find, replace(old, records=(weaker,)), "2030-01-01")
    assert new.records == (replace(proven, date="2030-01-01"),)
    assert "FEASIBLE" in changes[0]


def test_an_interrupted_update_writes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeplan.cli import search

    def stopped(problem: Problem, backend: BackendName, flags: Any) -> SolveResult:
        return result(Status.NO_SOLUTION, None, None, Limit.INTERRUPT)

    monkeypatch.setattr(search, "find", stopped)
    path = folder / f"{SMALL}.json"
    before = path.read_text()
    code, out = run(folder, "--update", "--only", SMALL)
    assert code == 130
    assert "interrupted" in out
    assert path.read_text() == before


def test_what_was_checked_before_an_interrupt_is_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeplan.cli import search

    honest, asked = search.find, []

    def find(problem: Problem, backend: BackendName, flags: Any) -> SolveResult:
        asked.append(problem)
        if len(asked) > 2:
            return result(Status.NO_SOLUTION, None, None, Limit.INTERRUPT)
        return honest(problem, backend, flags)

    monkeypatch.setattr(search, "find", find)
    code, out = run(folder, "--backends", "dp")
    assert code == 130
    assert "2 checks: 2 the same" in out
    assert "interrupted" in out


def test_counts_are_given_for_each_backend(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeplan.cli import search

    honest = search.find

    def find(problem: Problem, backend: BackendName, flags: Any) -> SolveResult:
        if backend == "milp":
            return result(Status.NO_SOLUTION, None, None, Limit.TIME)
        if backend == "cpsat":
            raise BackendBugError("cpsat claims what is not so")
        return honest(problem, backend, flags)

    monkeypatch.setattr(search, "find", find)
    code, out = run(folder, "--backends", "dp,milp")
    assert code == 0
    assert "dp: 3 checks: 3 the same" in out
    assert "milp: 3 checks: 0 the same, 0 another plan of the same price, 3 stopped" in out
    assert "6 checks: 3 the same" in out
    assert out.count("unfinished: resnet18, joint topology") == 3
    code, out = run(folder, "--backends", "cpsat,dp", "--json")
    assert code == 1
    counts = json.loads(out)["backends"]
    assert counts["cpsat"]["different"] == 3
    assert counts["dp"]["same"] == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("{}", "schema"),
        ('{"schema": "pipeplan.references/9"}', "this version reads"),
        (
            '{"schema": "pipeplan.references/1", "instance": "x", "profile_digest": "", '
            '"records": [{"status": "SURE", "tolerance": 0}]}',
            "status is none of",
        ),
        (
            '{"schema": "pipeplan.references/1", "instance": "x", "profile_digest": "", '
            '"records": []}',
            "records is empty",
        ),
        (
            '{"schema": "pipeplan.references/1", "instance": "../../etc/passwd", '
            '"profile_digest": "", "records": [{"status": "INFEASIBLE", "tolerance": 0, '
            '"question": {}, "source": "", "date": ""}]}',
            "no plain name of a profile",
        ),
        (
            '{"schema": "pipeplan.references/1", "instance": "x", "profile_digest": "", '
            '"records": [{"status": "INFEASIBLE", "tolerance": 0, "tolerence": 0.5, '
            '"question": {}, "source": "", "date": ""}]}',
            "unknown field; known are question, status",
        ),
        (
            '{"schema": "pipeplan.references/1", "instance": "x", "profile_digest": "", '
            '"records": [], "record": []}',
            "unknown field; known are schema",
        ),
    ],
)
def test_files_that_are_none(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ReferenceError, match=words):
        read_references(path)
    code, out = run(tmp_path)
    assert code == 2
    assert str(path) in out.replace("\n", "")


def test_a_question_that_is_none_is_named_with_its_file(folder: Path) -> None:
    changed(folder, question={})
    code, out = run(folder, "--backends", "dp")
    assert code == 2
    said = out.replace("\n", "")
    assert f"{folder / f'{SMALL}.json'}: records[0]: " in said
    assert "scope is missing" in said


@pytest.mark.parametrize("place", ["problem", "cluster", "constraints", "level"])
def test_a_misspelt_field_of_a_question_is_not_passed_over(folder: Path, place: str) -> None:
    question = json.loads((folder / f"{SMALL}.json").read_text())["records"][0]["question"]
    holder = {
        "problem": question,
        "cluster": question["cluster"],
        "constraints": question["constraints"],
        "level": question["cluster"]["levels"][0],
    }[place]
    holder["memory_byte"] = 1
    changed(folder, question=question)
    code, out = run(folder, "--backends", "dp")
    assert code == 2
    assert "unknown field" in out
    assert "memory_byte" in out


def test_arguments_that_make_no_sense(tmp_path: Path) -> None:
    for arguments, words in (
        ([tmp_path], "holds no references"),
        ([tmp_path / "nowhere"], "is not a folder"),
        (["--backends", "magic"], "no backend 'magic'"),
        (["--only", "nothing"], "holds no references of nothing"),
        (["--only", "alexnet,nothing"], "holds no references of nothing"),
        (["--update", "--only", "nothing"], "no packaged profile 'nothing'"),
    ):
        code, out = run(*arguments)
        assert code == 2
        assert words in out


@pytest.mark.reference
@pytest.mark.skipif(not REFERENCE.is_dir(), reason="../shared/reference is not here")
def test_outputs_of_the_original_are_references_too(tmp_path: Path) -> None:
    ((path, file),) = read_pipedream_records(REFERENCE, ("vgg16",))
    few = replace(file, records=file.records[::60])
    findings = list(regress([(path, few)], ("dp",), find))
    assert len(findings) >= 7
    assert {x.verdict for x in findings} == {"same"}
    lines = (REFERENCE / "pipedream.jsonl").read_text().splitlines()
    record = next(
        x for x in map(json.loads, lines[1:]) if x["profile"] == "vgg16" and x["outcome"] == "ok"
    )
    record["pipeline_time"] *= 1.001
    (tmp_path / "pipedream").mkdir()
    shutil.copy(REFERENCE / "pipedream" / "vgg16.graph.txt", tmp_path / "pipedream")
    (tmp_path / "pipedream.jsonl").write_text(json.dumps(record) + "\n")
    code, out = run(tmp_path, "--backends", "dp")
    assert code == 1
    assert "is below the recorded bound" in out


def test_solve_is_what_the_references_hold(graph: LayerGraph) -> None:
    file = read_references(packaged_folder() / f"{SMALL}.json")
    record = file.records[0]
    found = solve(problem_from_dict(dict(record.question), graph), "dp")
    assert found.objective_ms == pytest.approx(record.objective_ms, rel=record.tolerance)
