"""The dp backend: exact over the ideals, for every scope and cost model."""

from typing import Final

from pipeplan.core.cost import evaluate
from pipeplan.core.errors import TooLargeError
from pipeplan.core.problem import Problem
from pipeplan.solver.backends.dp.joint_search import JointState, any_plan, search_joint
from pipeplan.solver.backends.dp.memory_floor import smallest_memory_bytes
from pipeplan.solver.backends.dp.nested import solve_nested
from pipeplan.solver.backends.dp.pairs import usable
from pipeplan.solver.bounds import floor_ms
from pipeplan.solver.clock import Clock, OutOfTimeError
from pipeplan.solver.explain import explain
from pipeplan.solver.ideals import MAX_IDEALS, IdealTable, enumerate_ideals
from pipeplan.solver.linear_dp import linear_plan
from pipeplan.solver.options import SolveOptions
from pipeplan.solver.outcome import Outcome, Progress
from pipeplan.solver.reduce import reduce_graph
from pipeplan.solver.result import Limit, Stats, Status

__all__ = ["solve_dp"]

_LISTING: Final = 0.5
"""Share of the time after which whoever is still listing ideals turns to a plan."""
_EXPLAIN_UP_TO: Final = 4096
"""Ideals beyond which the demands that conflict are not searched for."""
_HINT_FROM: Final = 2000
"""Ideals beyond which a plan along a line is worth its second: it saves most of the search."""


def solve_dp(
    problem: Problem,
    options: SolveOptions,
    progress: Progress | None = None,
    *,
    most_ideals: int = MAX_IDEALS,
    alone: bool = True,
) -> Outcome:
    """Solve by dynamic programming over ideals.

    Raises TooLargeError where the graph has more than `most_ideals` of them, and, where it is not
    `alone` and another backend can go on, where they could not be listed in time.
    """
    clock = Clock(options.time_limit_s)
    reduced = reduce_graph(problem)
    state = JointState()
    table: IdealTable | None = None
    limit: Limit | None = None

    def pause() -> None:
        clock.check()
        if not clock.used(_LISTING):
            return
        if not alone:
            raise TooLargeError("its cuts could not be listed in half of the time limit")
        if state.best is None:
            state.best = linear_plan(problem, reduced, clock)

    try:
        if problem.cost_model == "pipedream":
            return solve_nested(problem, None, clock)
        table = usable(problem, enumerate_ideals(reduced, limit=most_ideals, pause=pause))
        if table is not None and problem.scope == "nested":
            if state.best is None and options.time_limit_s is not None:
                # The tables hold no plan before they are full.
                state.best = linear_plan(problem, reduced, Clock(clock.share(4)))
            return solve_nested(problem, table, clock)
        if table is not None:
            if state.best is None and len(table) > _HINT_FROM:
                state.best = linear_plan(problem, reduced, clock)
            search_joint(problem, table, state, gap=options.gap, clock=clock, progress=progress)
    except OutOfTimeError:
        limit = Limit.TIME
    except KeyboardInterrupt:
        limit = Limit.INTERRUPT
    ideals = None if table is None else len(table)
    stats = Stats("dp", clock.seconds, ideals=ideals, notes=reduced.notes)
    if limit is None and (table is None or state.infeasible):
        return _infeasible(problem, table, stats, clock)
    bound = max(state.bound_ms, floor_ms(problem))
    if state.best is None:
        return Outcome(Status.NO_SOLUTION, stats, bound_ms=bound, limit=limit)
    # The search works on the period alone until it is done: price what it holds as it stands.
    objective = evaluate(problem, state.best).objective_ms
    proven = objective <= bound * (1 + 1e-9)
    return Outcome(
        Status.OPTIMAL if proven else Status.FEASIBLE,
        stats,
        plan=state.best,
        claimed_ms=objective,
        bound_ms=min(bound, objective),
        limit=None if proven else limit or Limit.GAP,
    )


def _infeasible(problem: Problem, table: IdealTable | None, stats: Stats, clock: Clock) -> Outcome:
    """Say what would do: the memory if that is what is missing, else which demands conflict."""

    def feasible(asked: Problem) -> bool | None:
        if table is not None and len(table) > _EXPLAIN_UP_TO:
            return None
        cuts = usable(asked, enumerate_ideals(reduce_graph(asked), pause=clock.check))
        return cuts is not None and any_plan(asked, cuts, clock)

    def least_memory(free: Problem) -> tuple[int | None, bool]:
        if table is None:
            return None, True
        return smallest_memory_bytes(free, table, clock.check), True

    try:
        explanation, smallest = explain(problem, feasible, least_memory, clock)
    except (OutOfTimeError, KeyboardInterrupt):
        explanation, smallest = "no plan exists; why was not found out in time", None
    return Outcome(
        Status.INFEASIBLE, stats, explanation=explanation, smallest_memory_bytes=smallest
    )
