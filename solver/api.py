"""One call for every backend: `solve`."""

from pipeplan.core.problem import Problem
from pipeplan.solver.judge import judge
from pipeplan.solver.options import BackendName, SolveOptions
from pipeplan.solver.outcome import Progress
from pipeplan.solver.result import SolveResult

__all__ = ["solve"]


def solve(
    problem: Problem,
    backend: BackendName = "auto",
    options: SolveOptions | None = None,
    progress: Progress | None = None,
) -> SolveResult:
    """Find the best plan and what is proven of it.

    Raises BackendBugError where a backend's claim does not hold, TooLargeError where a backend's
    stated limit is reached, BackendUnavailableError where it cannot run here. Ctrl-C ends the
    search and returns the best plan so far.
    """
    chosen = options or SolveOptions()
    if backend == "exhaustive":
        from pipeplan.solver.backends.exhaustive import solve_exhaustive

        return judge(problem, solve_exhaustive(problem))
    from pipeplan.solver.backends.dp.backend import solve_dp

    return judge(problem, solve_dp(problem, chosen, progress))
