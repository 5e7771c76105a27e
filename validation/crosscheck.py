"""Do several backends say the same of one problem? Data in, verdict out; nothing is solved here."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from pipeplan.core.units import format_ms
from pipeplan.solver.result import SolveResult, Status

__all__ = ["TOLERANCE", "Claim", "Verdict", "crosscheck"]

TOLERANCE: Final = 1e-6
"""Relative difference of objectives and bounds that quantised backends may show."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What one backend said: a result, or the message of the error that it ended with.

    `faulty` marks the error of a backend whose claim did not hold when it was checked.
    """

    backend: str
    result: SolveResult | None
    error: str = ""
    faulty: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """Every contradiction in words; none is agreement, as far as anything was claimed.

    `answered` counts the backends that proved something or found a plan. `best_ms` is the cheapest
    plan of all, `bound_ms` the highest proven bound.
    """

    disagreements: tuple[str, ...]
    answered: int
    best_ms: float | None
    bound_ms: float | None

    @property
    def agree(self) -> bool:
        """Whether nothing contradicts anything."""
        return not self.disagreements


def crosscheck(claims: Sequence[Claim], tolerance: float = TOLERANCE) -> Verdict:
    """Compare every two claims.

    A plan contradicts a claim of infeasibility, and a bound above its objective. Two proven optima
    must be equal. FEASIBLE and NO_SOLUTION say nothing final, so that only their bounds and plans
    count. A claim that did not hold when it was checked is a contradiction by itself. `tolerance`
    is relative.
    """
    found = [f"{claim.backend} is at fault: {claim.error}" for claim in claims if claim.faulty]
    for a, b in combinations(claims, 2):
        if a.result is not None and b.result is not None:
            found += _against(a.backend, a.result, b.backend, b.result, tolerance)
            found += _against(b.backend, b.result, a.backend, a.result, tolerance)
            found += _optima(a.backend, a.result, b.backend, b.result, tolerance)
    results = [claim.result for claim in claims if claim.result is not None]
    objectives = [x.objective_ms for x in results if x.objective_ms is not None]
    bounds = [x.bound_ms for x in results if x.bound_ms is not None]
    return Verdict(
        disagreements=tuple(found),
        answered=sum(x.status is not Status.NO_SOLUTION for x in results),
        best_ms=min(objectives, default=None),
        bound_ms=max(bounds, default=None),
    )


def _against(
    who: str, claim: SolveResult, other: str, witness: SolveResult, tolerance: float
) -> list[str]:
    """What `witness`'s plan refutes of `claim`."""
    if witness.objective_ms is None:
        return []
    plan = f"{other} has a plan of {format_ms(witness.objective_ms)}"
    if claim.status is Status.INFEASIBLE:
        return [f"{who} says INFEASIBLE, but {plan}"]
    if claim.bound_ms is not None and claim.bound_ms > witness.objective_ms * (1 + tolerance):
        return [f"{who} says that no plan is below {format_ms(claim.bound_ms)}, but {plan}"]
    return []


def _optima(a: str, first: SolveResult, b: str, second: SolveResult, tolerance: float) -> list[str]:
    """Two proven optima that differ."""
    if first.status is not Status.OPTIMAL or second.status is not Status.OPTIMAL:
        return []
    assert first.objective_ms is not None
    assert second.objective_ms is not None
    if math.isclose(first.objective_ms, second.objective_ms, rel_tol=tolerance, abs_tol=1e-12):
        return []
    return [
        f"{a} and {b} both say OPTIMAL, at {first.objective_ms!r} and {second.objective_ms!r} ms"
    ]
