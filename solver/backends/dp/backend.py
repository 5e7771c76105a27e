"""The dp backend: exact over the ideals, for every scope and cost model."""

from typing import Final

from pipeplan.core.cost import evaluate
from pipeplan.core.problem import Problem
from pipeplan.core.units import format_bytes
from pipeplan.solver.backends.dp.clock import Clock, OutOfTimeError
from pipeplan.solver.backends.dp.joint_search import JointState, search_joint
from pipeplan.solver.backends.dp.memory_floor import smallest_memory_bytes
from pipeplan.solver.backends.dp.nested import solve_nested
from pipeplan.solver.backends.dp.pairs import usable
from pipeplan.solver.ideals import IdealTable, enumerate_ideals
from pipeplan.solver.linear_dp import linear_plan
from pipeplan.solver.options import SolveOptions
from pipeplan.solver.outcome import Outcome, Progress
from pipeplan.solver.reduce import reduce_graph
from pipeplan.solver.result import Limit, Stats, Status

__all__ = ["solve_dp"]


_HINT_FROM: Final = 2000
"""Ideals beyond which a plan along a line is worth its second: it saves most of the search."""


def solve_dp(problem: Problem, options: SolveOptions, progress: Progress | None = None) -> Outcome:
    """Solve by dynamic programming over ideals.

    Raises TooLargeError where the graph has more ideals than `solver.ideals.MAX_IDEALS`.
    """
    clock = Clock(options.time_limit_s)
    if problem.cost_model == "pipedream":
        return solve_nested(problem, None, clock)
    reduced = reduce_graph(problem)
    table = usable(problem, enumerate_ideals(reduced))
    if table is None:
        return Outcome(
            Status.INFEASIBLE,
            Stats("dp", clock.seconds, notes=reduced.notes),
            explanation="a forced cut separates layers that must stay together, or contradicts "
            "another cut",
        )
    if problem.scope == "nested":
        return solve_nested(problem, table, clock)
    state = JointState(best=linear_plan(problem, reduced) if len(table) > _HINT_FROM else None)
    limit: Limit | None = None
    try:
        search_joint(problem, table, state, gap=options.gap, clock=clock, progress=progress)
    except OutOfTimeError:
        limit = Limit.TIME
    except KeyboardInterrupt:
        limit = Limit.INTERRUPT
    stats = Stats("dp", clock.seconds, ideals=len(table), notes=reduced.notes)
    if state.infeasible:
        return _infeasible(problem, table, stats)
    if state.best is None:
        return Outcome(Status.NO_SOLUTION, stats, bound_ms=state.bound_ms, limit=limit)
    # The search works on the period alone until it is done: price what it holds as it stands.
    objective = evaluate(problem, state.best).objective_ms
    proven = limit is None and objective <= state.bound_ms * (1 + 1e-9)
    return Outcome(
        Status.OPTIMAL if proven else Status.FEASIBLE,
        stats,
        plan=state.best,
        claimed_ms=objective,
        bound_ms=state.bound_ms,
        limit=None if proven else limit or Limit.GAP,
    )


def _infeasible(problem: Problem, table: IdealTable, stats: Stats) -> Outcome:
    """Say what would do: the memory if that is what is missing."""
    limit = problem.cluster.memory_bytes
    smallest = None if limit is None else smallest_memory_bytes(problem, table)
    if limit is None:
        explanation = "the demands on stages, cuts and layers contradict each other"
    elif smallest is None:
        explanation = f"no plan fits {format_bytes(limit)} ({limit} bytes) a device"
    elif smallest <= limit:
        explanation = "the demands on stages, cuts and layers contradict each other"
    else:
        explanation = (
            f"no plan fits {format_bytes(limit)} ({limit} bytes) a device; the smallest memory that "
            f"would do is {format_bytes(smallest)} ({smallest} bytes) a device"
        )
    return Outcome(
        Status.INFEASIBLE, stats, explanation=explanation, smallest_memory_bytes=smallest
    )
