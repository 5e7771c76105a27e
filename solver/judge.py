"""No backend is believed: its plan is checked, its objective recomputed, its bound compared."""

import math

from pipeplan.core.check import violations
from pipeplan.core.cost import evaluate
from pipeplan.core.errors import BackendBugError
from pipeplan.core.problem import Problem
from pipeplan.solver.outcome import Outcome
from pipeplan.solver.result import SolveResult, Status

__all__ = ["judge"]


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
    broken = violations(problem, outcome.plan)
    if broken:
        raise BackendBugError(f"{name} returned a plan that is none: {'; '.join(broken[:5])}")
    objective = evaluate(problem, outcome.plan).objective_ms
    claimed = outcome.claimed_ms
    if claimed is None or not math.isclose(
        claimed, objective, rel_tol=outcome.tolerance, abs_tol=1e-12
    ):
        raise BackendBugError(
            f"{name} claims {claimed} ms for a plan that costs {objective} ms (tolerance "
            f"{outcome.tolerance:g})"
        )
    if bound is not None and bound > objective * slack + 1e-12:
        raise BackendBugError(
            f"{name} claims a bound of {bound} ms above its own plan's {objective} ms"
        )
    if outcome.status is Status.OPTIMAL and (bound is None or objective > bound * slack + 1e-12):
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
