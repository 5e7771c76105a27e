"""Backends that contradict each other are told so, pair by pair."""

import pytest

from pipeplan.core.plan import Plan, Stage
from pipeplan.solver.result import Limit, SolveResult, Stats, Status
from pipeplan.validation.crosscheck import Claim, crosscheck

PLAN = Plan((Stage((0,), (0,)),))


def claim(
    name: str, status: str, objective: float | None = None, bound: float | None = None
) -> Claim:
    """What a backend of that name said."""
    kind = Status(status)
    return Claim(
        name,
        SolveResult(
            status=kind,
            stats=Stats(name, 1.0),
            plan=None if objective is None else PLAN,
            objective_ms=objective,
            bound_ms=bound,
            limit=Limit.TIME if kind in (Status.FEASIBLE, Status.NO_SOLUTION) else None,
        ),
    )


@pytest.mark.parametrize(
    "claims",
    [
        [claim("a", "OPTIMAL", 10.0, 10.0), claim("b", "OPTIMAL", 10.000001, 10.000001)],
        [claim("a", "OPTIMAL", 10.0, 10.0), claim("b", "FEASIBLE", 12.0, 8.0)],
        [claim("a", "INFEASIBLE"), claim("b", "INFEASIBLE")],
        [claim("a", "INFEASIBLE"), claim("b", "NO_SOLUTION", None, 3.0)],
        [claim("a", "FEASIBLE", 12.0, 1.0), claim("b", "FEASIBLE", 14.0, 11.9)],
        [claim("a", "OPTIMAL", 10.0, 10.0), Claim("b", None, "not installed")],
        [claim("a", "OPTIMAL", 0.0, 0.0), claim("b", "OPTIMAL", 0.0, 0.0)],
    ],
)
def test_agreement(claims: list[Claim]) -> None:
    verdict = crosscheck(claims)
    assert verdict.agree
    assert crosscheck(claims[::-1]).agree


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        (
            [claim("a", "OPTIMAL", 10.0, 10.0), claim("b", "OPTIMAL", 10.1, 10.1)],
            "both say OPTIMAL",
        ),
        ([claim("a", "INFEASIBLE"), claim("b", "FEASIBLE", 12.0, 8.0)], "a says INFEASIBLE, but b"),
        (
            [claim("a", "FEASIBLE", 12.0, 1.0), claim("b", "FEASIBLE", 14.0, 12.1)],
            "b says that no plan is below 12.100 ms, but a has a plan of 12.000 ms",
        ),
        (
            [claim("a", "NO_SOLUTION", None, 11.0), claim("b", "OPTIMAL", 10.0, 10.0)],
            "a says that no plan is below 11.000 ms",
        ),
    ],
)
def test_contradictions(claims: list[Claim], words: str) -> None:
    for order in (claims, claims[::-1]):
        verdict = crosscheck(order)
        assert not verdict.agree
        assert any(words in text for text in verdict.disagreements) or "both say" in words


def test_every_pair_is_looked_at() -> None:
    verdict = crosscheck(
        [
            claim("a", "OPTIMAL", 10.0, 10.0),
            claim("b", "OPTIMAL", 10.0, 10.0),
            claim("c", "INFEASIBLE"),
        ]
    )
    assert len(verdict.disagreements) == 2
    assert verdict.best_ms == 10.0
    assert verdict.bound_ms == 10.0
    assert verdict.answered == 3


def test_the_tolerance_is_relative() -> None:
    claims = [claim("a", "OPTIMAL", 1e6, 1e6), claim("b", "OPTIMAL", 1e6 + 0.5, 1e6 + 0.5)]
    assert crosscheck(claims).agree
    assert not crosscheck(claims, tolerance=1e-9).agree
