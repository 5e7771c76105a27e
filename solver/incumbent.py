"""The best plan so far, whoever found it: what is left when a search is stopped anywhere."""

import math
from dataclasses import replace
from typing import Final

from pipeplan.core.cost import evaluate
from pipeplan.core.plan import Plan
from pipeplan.core.problem import Problem
from pipeplan.solver.bounds import floor_ms
from pipeplan.solver.first_plans import first_plans
from pipeplan.solver.outcome import Outcome, Progress, ProgressEvent
from pipeplan.solver.result import Limit, Stats, Status

__all__ = ["Incumbent"]

_SAME: Final = 1e-9
"""Relative difference below which two prices are one."""


class Incumbent:
    """Listens to the progress of a problem's backends, keeps the best plan and the best proven
    bound, and passes everything on.

    A KeyboardInterrupt may come between any two steps: what is kept is exchanged in one.
    """

    def __init__(self, problem: Problem, listener: Progress | None) -> None:
        self._problem = problem
        self._listener = listener
        self._best: tuple[float, Plan] | None = None
        self._bound_ms = 0.0

    @property
    def objective_ms(self) -> float | None:
        """Price of the best plan, None where there is none yet."""
        return None if self._best is None else self._best[0]

    def start(self) -> None:
        """Begin with the plans that need no search."""
        for plan in first_plans(self._problem):
            price = evaluate(self._problem, plan).objective_ms
            if self._best is None or price < self._best[0]:
                self.note(ProgressEvent(price, None, plan=plan))

    def note(self, event: ProgressEvent) -> None:
        """Hear of a search's progress."""
        if event.plan is not None:
            price = math.inf if event.incumbent_ms is None else event.incumbent_ms
            if self._best is None or price < self._best[0]:
                self._best = price, event.plan
            self._bound_ms = max(self._bound_ms, event.bound_ms or 0.0)
        if self._listener is not None:
            self._listener(event)

    def stopped(self, backend: str, seconds: float) -> Outcome:
        """The outcome of a search that Ctrl-C ended before it could say anything itself."""
        nothing = Outcome(Status.NO_SOLUTION, Stats(backend, seconds), limit=Limit.INTERRUPT)
        return self.completed(nothing)

    def completed(self, outcome: Outcome) -> Outcome:
        """The outcome; where a limit left it without a plan, or with a worse one than is known,
        with the one that is known."""
        if outcome.status not in (Status.FEASIBLE, Status.NO_SOLUTION):
            return outcome
        bound = max(floor_ms(self._problem), self._bound_ms, outcome.bound_ms or 0.0)
        outcome = replace(outcome, bound_ms=bound)
        if self._best is None:
            return outcome
        price, plan = self._best
        if outcome.plan is not None and (outcome.claimed_ms or 0.0) <= price * (1 + _SAME):
            return outcome
        proven = price <= bound * (1 + _SAME)
        return replace(
            outcome,
            status=Status.OPTIMAL if proven else Status.FEASIBLE,
            plan=plan,
            claimed_ms=price,
            bound_ms=min(bound, price) if proven else bound,
            limit=None if proven else outcome.limit,
            explanation="",
        )
