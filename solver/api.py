"""One call for every backend: `solve`."""

from dataclasses import replace
from typing import Final

from pipeplan.core.cost import evaluate
from pipeplan.core.errors import ProblemError
from pipeplan.core.plan import Plan
from pipeplan.core.problem import Problem
from pipeplan.solver.clock import Clock
from pipeplan.solver.incumbent import Incumbent
from pipeplan.solver.judge import judge
from pipeplan.solver.options import BackendName, SolveOptions
from pipeplan.solver.outcome import Outcome, Progress, ProgressEvent
from pipeplan.solver.result import SolveResult

__all__ = ["solve"]

_FEW_IDEALS: Final = 30_000
_SAMPLE_S: Final = 60.0
"""What a search for a better first plan may take where no limit is set."""


def solve(
    problem: Problem,
    backend: BackendName = "auto",
    options: SolveOptions | None = None,
    progress: Progress | None = None,
) -> SolveResult:
    """Find the best plan and what is proven of it.

    `auto` uses the dp where the graph has few enough ideals for it, else cpsat, started from the
    best plan along a line. Raises BackendBugError where a backend's claim does not hold,
    TooLargeError where a backend's stated limit is reached, BackendUnavailableError where it cannot
    run here. KeyboardInterrupt (Ctrl-C) ends the search: the result is the best plan so far with
    limit INTERRUPT, or status NO_SOLUTION before there is one.
    """
    watch = Clock(None)
    best = Incumbent(problem, progress)
    try:
        best.start()
        outcome = best.completed(_outcome(problem, backend, options or SolveOptions(), best.note))
        return judge(problem, outcome, known_ms=best.objective_ms)
    except (KeyboardInterrupt, ImportError) as end:
        if not _interrupted(end):
            raise
        # A backend answers for itself where it can; this is for everything around and between.
        return judge(problem, best.stopped(backend, watch.seconds))


def _interrupted(end: BaseException) -> bool:
    """Whether Ctrl-C is behind it: an extension module that it hits while it is loaded makes an
    ImportError of it."""
    cause: BaseException | None = end
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def _outcome(
    problem: Problem, backend: BackendName, options: SolveOptions, progress: Progress
) -> Outcome:
    # Each backend is imported where it is chosen: ortools alone takes most of a second.
    if backend == "exhaustive":
        from pipeplan.solver.backends.exhaustive import solve_exhaustive

        return solve_exhaustive(problem, options, progress)
    if backend == "cpsat":
        from pipeplan.solver.backends.cpsat.backend import solve_cpsat

        return solve_cpsat(problem, options, progress)
    if backend == "milp":
        from pipeplan.solver.backends.milp.backend import solve_milp

        return solve_milp(problem, options, progress)
    from pipeplan.solver.backends.dp.backend import solve_dp
    from pipeplan.solver.ideals import MAX_IDEALS

    if backend == "dp":
        return solve_dp(problem, options, progress)
    watch = Clock(options.time_limit_s)
    # From some tens of thousands of ideals on, a sample of them, the relaxation and a small model
    # are sooner done. Of memory and batches the relaxation knows less: there the dp goes on.
    plain = problem.scope == "joint" and not problem.synchronous
    few = plain and problem.cluster.memory_bytes is None
    most = _FEW_IDEALS if few else MAX_IDEALS
    try:
        return solve_dp(problem, options, progress, most_ideals=most, alone=False)
    except ProblemError as refusal:
        # Too many ideals to list, or a demand that the dp does not know.
        return _beyond_dp(problem, options, progress, watch, refusal)


def _beyond_dp(
    problem: Problem,
    options: SolveOptions,
    progress: Progress,
    watch: Clock,
    refusal: ProblemError,
) -> Outcome:
    from pipeplan.solver.backends.cpsat.backend import solve_cpsat
    from pipeplan.solver.backends.dp.sample import improved_plan
    from pipeplan.solver.cells import Crossing
    from pipeplan.solver.linear_dp import linear_plan
    from pipeplan.solver.reduce import reduce_graph

    def tell(plan: Plan) -> None:
        progress(ProgressEvent(evaluate(problem, plan).objective_ms, None, plan=plan))

    reduced = reduce_graph(problem)
    crossing: Crossing | None = None
    hint = linear_plan(problem, reduced, watch, tell)
    if hint is not None and problem.scope == "joint":
        left = watch.share(2)
        limit_s = _SAMPLE_S if left is None else left
        hint, crossing = improved_plan(problem, reduced, hint, limit_s)
        tell(hint)
    left = watch.share(1)
    if left is not None:
        options = replace(options, time_limit_s=max(left, 0.1))
    try:
        outcome = solve_cpsat(problem, options, progress, hint=hint, crossing=crossing)
    except ProblemError:
        # Neither knows the problem: the first refusal says why, and what to ask instead.
        raise refusal from None
    notes = (*outcome.stats.notes, f"dp: {refusal}")
    return replace(outcome, stats=replace(outcome.stats, seconds=watch.seconds, notes=notes))
