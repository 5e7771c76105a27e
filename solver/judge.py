"""No backend is believed: its plan is checked, its objective recomputed, its bound compared."""

from typing import Final

from pipeplan.core.check import violations
from pipeplan.core.cost import evaluate
from pipeplan.core.errors import BackendBugError
from pipeplan.core.plan import Plan
from pipeplan.core.problem import Problem
from pipeplan.solver.outcome import Outcome
from pipeplan.solver.result import SolveResult, Status

__all__ = ["judge", "true_price_ms"]

_SMALL: Final = 1e-12
"""Difference in ms that is none."""


def true_price_ms(
    problem: Problem,
    name: str,
    plan: Plan,
    claimed_ms: float | None,
    tolerance: float,
    *,
    at_most: bool = False,
) -> float:
    """The price of a backend's plan by `core.cost`, in ms.

    Raises BackendBugError where the plan is none, or where the backend's own figure is off by more
    than the relative tolerance; with `at_most` the figure is a bound from above, and may be larger.
    """
    broken = violations(problem, plan)
    if broken:
        raise BackendBugError(f"{name} returned a plan that is none: {'; '.join(broken[:5])}")
    price = evaluate(problem, plan).objective_ms
    if (
        claimed_ms is None
        or claimed_ms < price * (1 - tolerance) - _SMALL
        or (not at_most and claimed_ms > price * (1 + tolerance) + _SMALL)
    ):
        raise BackendBugError(
            f"{name} claims {claimed_ms} ms for a plan that costs {price} ms (tolerance "
            f"{tolerance:g})"
        )
    return price


def judge(problem: Problem, outcome: Outcome, *, known_ms: float | None = None) -> SolveResult:
    """Turn a claim into a result, or raise BackendBugError saying what is wrong with it.

    `known_ms` is the objective of a checked plan found by someone else: a claim that contradicts it
    (INFEASIBLE, or a bound above it) is an error of the backend.
    """
    name = outcome.stats.backend
    bound = outcome.bound_ms
    slack = 1 + outcome.tolerance
    if (outcome.plan is not None) != (outcome.status in (Status.OPTIMAL, Status.FEASIBLE)):
        raise BackendBugError(f"{name} says {outcome.status.value} but its plan says otherwise")
    if outcome.status is Status.INFEASIBLE and known_ms is not None:
        raise BackendBugError(
            f"{name} says the problem is infeasible, but a plan of {known_ms} ms is known"
        )
    if bound is not None and known_ms is not None and bound > known_ms * slack:
        raise BackendBugError(
            f"{name} claims that no plan is below {bound} ms, but one of {known_ms} ms is known"
        )
    if outcome.plan is None:
        return SolveResult(
            status=outcome.status,
            stats=outcome.stats,
            bound_ms=bound,
            limit=outcome.limit,
            explanation=outcome.explanation,
            smallest_memory_bytes=outcome.smallest_memory_bytes,
        )
    objective = true_price_ms(problem, name, outcome.plan, outcome.claimed_ms, outcome.tolerance)
    if bound is not None and bound > objective * slack + _SMALL:
        raise BackendBugError(
            f"{name} claims a bound of {bound} ms above its own plan's {objective} ms"
        )
    if outcome.status is Status.OPTIMAL and (bound is None or objective > bound * slack + _SMALL):
        raise BackendBugError(
            f"{name} says OPTIMAL at {objective} ms, but its bound is {bound} ms (tolerance "
            f"{outcome.tolerance:g})"
        )
    return SolveResult(
        status=outcome.status,
        stats=outcome.stats,
        plan=outcome.plan,
        objective_ms=objective,
        bound_ms=None if bound is None else min(bound, objective),
        limit=outcome.limit,
        explanation=outcome.explanation,
        smallest_memory_bytes=outcome.smallest_memory_bytes,
    )
