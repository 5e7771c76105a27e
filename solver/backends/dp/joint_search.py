"""Best joint plan: the least period (or batch time) for which a plan exists, by searching T.

Every found plan is priced by `core.cost`, which moves the upper end of the search; every T without
a plan moves the lower end. The search ends when no plan is strictly better than the best one.
"""

import math
from dataclasses import dataclass, field, replace

from pipeplan.core.check import block_sizes
from pipeplan.core.cost import Evaluation, evaluate
from pipeplan.core.errors import BackendBugError
from pipeplan.core.plan import Plan
from pipeplan.core.problem import Problem
from pipeplan.solver.backends.dp.joint import JointSearch, Target
from pipeplan.solver.backends.dp.pairs import Pairs
from pipeplan.solver.clock import Clock
from pipeplan.solver.first_plans import first_plans
from pipeplan.solver.geometry import Layout
from pipeplan.solver.ideals import IdealTable
from pipeplan.solver.outcome import Progress, ProgressEvent

__all__ = ["JointState", "any_plan", "search_joint"]

_STRICT = 1 - 1e-10
"""Relative step below a known plan at which a better one is looked for: above the rounding of sums
(about 1e-14), below any difference of interest."""


@dataclass(slots=True)
class JointState:
    """What is known so far; still valid when the search is stopped."""

    best: Plan | None = None
    best_ms: float = math.inf
    bound_ms: float = 0.0
    infeasible: bool = False
    notes: list[str] = field(default_factory=list)

    def meets(self, gap: float) -> bool:
        """Whether the best plan is within a relative gap of the bound."""
        return self.best is not None and self.best_ms - self.bound_ms <= gap * self.best_ms


class _Driver:
    def __init__(
        self, problem: Problem, table: IdealTable, clock: Clock, progress: Progress | None
    ) -> None:
        self.problem = problem
        self.progress = progress
        pairs = Pairs(problem, table)
        layouts = [Layout(problem, block) for block in block_sizes(problem)]
        if len(problem.cluster.levels) == 1:
            # On one level positions do not matter: copies of a pipeline are a pipeline of wider
            # stages with the same loads everywhere, which the whole cluster as one block contains.
            layouts = layouts[:1]
        self.searches = [JointSearch(problem, table, pairs, x, clock) for x in layouts]
        self.total_ms = problem.graph.total_compute_ms
        self.floor_ms = self.total_ms / problem.cluster.devices

    def find(self, target: Target) -> tuple[Plan, float] | None:
        """A plan that meets the target and its objective, by any block size.

        Raises BackendBugError where core.cost prices the plan beyond the target.
        """
        best: tuple[Plan, float] | None = None
        for search in self.searches:
            found = self.priced(search.find(target), target.period_ms)
            if found is None:
                continue
            candidate = (found[0], found[1].objective_ms)
            if best is None or _prefer(candidate, best):
                best = candidate
            if not target.fewest_stages:
                break
        return best

    def priced(self, plan: Plan | None, period_ms: float) -> tuple[Plan, Evaluation] | None:
        """The plan that a search says to have at most a period, with its price.

        Raises BackendBugError where core.cost says otherwise.
        """
        if plan is None:
            return None
        price = evaluate(self.problem, plan)
        if price.period_ms > period_ms * (1 + 1e-9):
            raise BackendBugError(
                f"dp: a plan said to have a period within {period_ms} ms has {price.period_ms} ms"
            )
        return plan, price

    def report(self, state: JointState) -> None:
        """Tell of a state whose bound is one of the objective."""
        if self.progress is not None:
            plan = state.best
            price = None if plan is None else evaluate(self.problem, plan).objective_ms
            self.progress(ProgressEvent(price, state.bound_ms or None, plan=plan))

    def report_period(self, state: JointState) -> None:
        """Tell of a state whose bound is one of the period."""
        bound = state.bound_ms
        if self.problem.synchronous:
            assert self.problem.micro_batches is not None
            bound = self.total_ms + (self.problem.micro_batches - 1) * bound
        self.report(replace(state, bound_ms=bound))


def _prefer(a: tuple[Plan, float], b: tuple[Plan, float]) -> bool:
    if not math.isclose(a[1], b[1], rel_tol=1e-12):
        return a[1] < b[1]
    return a[0].key() < b[0].key()


def search_joint(
    problem: Problem,
    table: IdealTable,
    state: JointState,
    *,
    gap: float,
    clock: Clock,
    progress: Progress | None,
) -> None:
    """Fill `state` with the best plan and bound; it holds what was found if the clock stops it.

    A plan in `state` to begin with is a hint.
    """
    driver = _Driver(problem, table, clock, progress)
    if state.best is not None and not problem.synchronous:
        state.best_ms = evaluate(problem, state.best).period_ms
    if problem.synchronous:
        _batch(driver, state, gap)
    else:
        _period(driver, state, gap, math.inf)
        if state.best is not None and state.best_ms <= state.bound_ms:
            finest = driver.find(Target(state.best_ms * (1 + 1e-12), fewest_stages=True))
            # A hint meets the target too, but its cuts need not be in a table that holds a sample.
            if finest is not None:
                state.best, state.best_ms = finest
                state.bound_ms = min(state.bound_ms, state.best_ms)


def any_plan(problem: Problem, table: IdealTable, clock: Clock) -> bool:
    """Whether there is a plan at all, at whatever period."""
    return _Driver(problem, table, clock, None).find(Target(math.inf)) is not None


def _period(driver: _Driver, state: JointState, gap: float, overhead_ms: float) -> None:
    """Least period: climb from the floor until a plan exists, then close in from both ends."""
    state.bound_ms = max(state.bound_ms, driver.floor_ms)
    # A plan that someone else found is likely the best: first ask whether any is better.
    strict = state.best is None
    _start(driver, state)
    step = 0.02
    while state.best is None:
        target = state.bound_ms * (1 + step) if state.bound_ms > 0 else 1e-9
        if step > 1e6:
            target = math.inf
        found = driver.find(Target(target, overhead_ms))
        if found is not None:
            state.best, state.best_ms = found[0], evaluate(driver.problem, found[0]).period_ms
        elif target == math.inf:
            state.infeasible = True
            return
        else:
            state.bound_ms = target
            step *= 2
        driver.report_period(state)
    hinted = not strict
    while not state.meets(gap) and state.bound_ms < state.best_ms:
        ratio = state.best_ms / state.bound_ms if state.bound_ms > 0 else math.inf
        strict = not strict if ratio < (1.01 if hinted else 1.002) else False
        hinted = False
        if strict:
            target = state.best_ms * _STRICT
        elif ratio < 1.5:
            # Nearer to the bound than to the plan: a period too short is told sooner.
            target = state.bound_ms + 0.4 * (state.best_ms - state.bound_ms)
        else:
            target = state.bound_ms * 1.15 if state.bound_ms > 0 else state.best_ms / 2
        found = driver.find(Target(min(target, state.best_ms * _STRICT), overhead_ms))
        if found is not None:
            state.best, state.best_ms = found[0], evaluate(driver.problem, found[0]).period_ms
        elif target >= state.best_ms * _STRICT or ratio * _STRICT <= 1:
            state.bound_ms = state.best_ms
        else:
            state.bound_ms = target
        driver.report_period(state)


def _start(driver: _Driver, state: JointState) -> None:
    """The plans anyone could write down as first upper ends."""
    for plan in first_plans(driver.problem):
        period = evaluate(driver.problem, plan).period_ms
        if period < state.best_ms:
            state.best, state.best_ms = plan, period


def _batch(driver: _Driver, state: JointState, gap: float) -> None:
    """Least batch time of a synchronous schedule.

    batch = total compute + (m - 1) * period + overhead, where the overhead (the first micro-batch's
    transfers and the longest all-reduce) can only rise as the period falls. Each block size is gone
    through on its own: what one of them finds says nothing of the plans of another.
    """
    problem = driver.problem
    assert problem.micro_batches is not None
    waits = problem.micro_batches - 1
    quickest = JointState()
    try:
        _period(driver, quickest, 0.0, math.inf)
    finally:  # Whatever stops it, what it found holds.
        state.bound_ms = driver.total_ms + waits * quickest.bound_ms
        if quickest.best is not None:
            state.best = quickest.best
            state.best_ms = evaluate(problem, quickest.best).objective_ms
    if quickest.best is None:
        state.infeasible = quickest.infeasible
        return
    least_ms = quickest.bound_ms
    for search in driver.searches:
        _least_overheads(driver, search, state, least_ms)
    state.bound_ms = state.best_ms


def _least_overheads(
    driver: _Driver, search: JointSearch, state: JointState, least_ms: float
) -> None:
    """Improve the best plan by those of one block size.

    From a period that no better plan can exceed, each search gives the least overhead at that
    period or below; the next looks strictly below the period of the plan found. No plan between the
    two is better.
    """
    problem = driver.problem
    assert problem.micro_batches is not None
    waits = problem.micro_batches - 1
    ceiling = math.inf
    while True:
        room = state.best_ms * _STRICT - driver.total_ms
        if waits:
            ceiling = min(ceiling, room / waits)
        if ceiling < least_ms * _STRICT or room < 0:
            break
        found = driver.priced(search.find(Target(ceiling, room - waits * least_ms)), ceiling)
        driver.report(state)
        if found is None:
            break
        plan, price = found
        objective = price.objective_ms
        if objective < state.best_ms:
            state.best, state.best_ms = plan, objective
        overhead = objective - driver.total_ms - waits * price.period_ms
        if driver.total_ms + waits * least_ms + overhead >= state.best_ms * _STRICT:
            break
        ceiling = price.period_ms * _STRICT
