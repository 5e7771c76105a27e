"""What `auto` reports where the dp could not answer."""

from dataclasses import replace
from typing import Any

import pytest

from pipeplan.core.cluster import Cluster
from pipeplan.core.errors import TooLargeError
from pipeplan.core.problem import Problem
from pipeplan.models.synthetic import random_dag
from pipeplan.solver.api import solve
from pipeplan.solver.backends.cpsat import backend as cpsat
from pipeplan.solver.backends.dp import backend as dp
from pipeplan.solver.outcome import Outcome


def test_the_seconds_are_those_of_the_whole_search(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = cpsat.solve_cpsat

    def refuses(*_: object, **__: object) -> Outcome:
        raise TooLargeError("more than 10 ideals")

    def instant(*asked: Any, **hints: Any) -> Outcome:
        outcome = honest(*asked, **hints)
        return replace(outcome, stats=replace(outcome.stats, seconds=0.0))

    monkeypatch.setattr(dp, "solve_dp", refuses)
    monkeypatch.setattr(cpsat, "solve_cpsat", instant)
    found = solve(Problem(random_dag(6, seed=1), Cluster.of([2], [1e9])))
    assert found.stats.backend == "cpsat"
    assert found.stats.seconds > 0
    assert found.stats.notes[-1] == "dp: more than 10 ideals"
