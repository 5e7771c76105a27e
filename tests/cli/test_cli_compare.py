"""`pipeplan compare`: a row a backend, and exit code 1 where they contradict each other."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeplan.core.problem import Problem
from pipeplan.solver.outcome import Outcome
from pipeplan.solver.result import SolveResult, Stats, Status

Run = Callable[..., Any]
CLUSTER = ("-n", 2, 2, "-b", "10GB/s", "1GB/s")


def test_backends_that_agree(run: Run, chain: Path) -> None:
    ran = run("compare", chain, chain, *CLUSTER, "--backends", "auto,dp")
    assert ran.code == 0
    assert ran.out.count("2 backends agree.") == 2
    answer = run("compare", chain, *CLUSTER, "--backends", "auto,dp", "--json")
    document = json.loads(answer.out)
    assert document["agree"]
    rows = document["instances"][0]["backends"]
    assert [row["backend"] for row in rows] == ["auto", "dp"]
    assert rows[0]["objective_ms"] == rows[1]["objective_ms"]
    assert all(row["status"] == "OPTIMAL" and row["seconds"] >= 0 for row in rows)


def test_a_false_infeasible_is_exit_code_1(
    run: Run, chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeplan.cli import search

    honest = search.find

    def find(problem: Problem, backend: Any, asked: Any) -> SolveResult:
        if backend == "auto":
            return SolveResult(status=Status.INFEASIBLE, stats=Stats("auto", 0.0))
        return honest(problem, backend, asked)

    monkeypatch.setattr(search, "find", find)
    for flags in ((), ("--json",)):
        ran = run("compare", chain, *CLUSTER, "--backends", "auto,dp", *flags)
        assert ran.code == 1
        assert "auto says INFEASIBLE, but dp has a plan" in ran.out


def test_a_backend_that_cannot_answer_is_a_row_of_its_own(
    run: Run, chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeplan.core.errors import BackendUnavailableError

    def missing(*_: object) -> Outcome:
        raise BackendUnavailableError("dp cannot run here")

    monkeypatch.setattr("pipeplan.solver.backends.dp.backend.solve_dp", missing)
    ran = run("compare", chain, *CLUSTER, "--backends", "dp")
    assert ran.code == 3
    assert "dp: dp cannot run here" in ran.out
    assert "Nothing to compare" in ran.out


def test_an_answer_of_someone_else_does_not_count(
    run: Run, chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeplan.cli import search

    honest = search.find
    monkeypatch.setattr(search, "find", lambda problem, _, asked: honest(problem, "dp", asked))
    ran = run("compare", chain, *CLUSTER, "--backends", "dp,milp")
    assert ran.code == 0
    assert "milp: the answer came from dp, not from milp" in ran.out
    assert "Nothing to compare" in ran.out


def test_the_table_fits_80_columns_whole() -> None:
    from pipeplan.cli.render.comparison import comparison
    from pipeplan.cli.render.terminal import console
    from pipeplan.solver.result import Limit
    from pipeplan.validation.crosscheck import Claim, crosscheck

    stats = Stats("exhaustive", 12.345, variables=123456, constraints=1234567)
    result = SolveResult(
        status=Status.NO_SOLUTION, stats=stats, bound_ms=1234.567891, limit=Limit.INTERRUPT
    )
    solved = SolveResult(
        status=Status.OPTIMAL, stats=stats, objective_ms=1234.567891, bound_ms=1234.567889
    )
    claims = [Claim("exhaustive", result), Claim("dp", solved)]
    out = console(width=80)
    with out.capture() as captured:
        for part in comparison("net", claims, crosscheck(claims)):
            out.print(part)
    text = captured.get()
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines())
    for figure in ("1234.567891", "12.345", "123456", "1234567", "NO_SOLUTION"):
        assert figure in text
    assert "\u2026" not in text
