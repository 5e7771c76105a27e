"""What would help where memory is too small: the searches behind the advice."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pipeplan.cli.next_steps import more_memory, typed, with_recompute
from pipeplan.cli.search import Search, find
from pipeplan.core.errors import BackendUnavailableError, TooLargeError
from pipeplan.core.problem import Problem
from pipeplan.core.units import format_bytes, format_ms
from pipeplan.solver.options import BackendName
from pipeplan.solver.result import SolveResult, Status

__all__ = ["Advice", "advice"]

_AT_MOST_S: Final = 10.0
"""What each further search may take: the answer itself is there already."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Sentences, and commands to type next."""

    lines: Sequence[str]
    steps: Sequence[str]


def advice(problem: Problem, result: SolveResult, backend: BackendName, search: Search) -> Advice:
    """What a plan takes with the smallest memory that would do, and whether recomputing would do.

    Both are found by searching again, at most 10 s each; empty where memory is not what is missing.
    """
    limit = problem.cluster.memory_bytes
    if result.status is not Status.INFEASIBLE or limit is None:
        return Advice((), ())
    lines: list[str] = []
    steps: list[str] = []
    smallest = result.smallest_memory_bytes
    if smallest is not None:
        enough = replace(problem, cluster=replace(problem.cluster, memory_bytes=smallest))
        found = _again(enough, backend, search)
        if found is not None and found.plan is not None:
            lines.append(f"With {format_bytes(smallest)} {_best(problem, found)}.")
        steps += more_memory(typed(), smallest)
    # Cost model pipedream restates a program that does not recompute.
    if not problem.recompute and problem.cost_model != "pipedream":
        found = _again(replace(problem, recompute=True), backend, search)
        if found is not None and found.plan is not None:
            lines.append(
                f"With --recompute {format_bytes(limit)} would do: {_best(problem, found)}, "
                "the second forward pass not counted."
            )
            steps += with_recompute(typed())
        elif found is not None and found.smallest_memory_bytes is not None:
            less = found.smallest_memory_bytes
            if smallest is None or less < smallest:
                lines.append(
                    f"--recompute does not make it fit either: with it {format_bytes(less)} would "
                    "do."
                )
    return Advice(lines, steps)


def _again(problem: Problem, backend: BackendName, search: Search) -> SolveResult | None:
    """Search again for a short while; None where the backend cannot."""
    given = search.options().time_limit_s
    seconds = _AT_MOST_S if given is None else min(_AT_MOST_S, given)
    try:
        return find(problem, backend, replace(search, time_limit=f"{seconds!r}s"))
    except (BackendUnavailableError, TooLargeError):
        return None


def _best(problem: Problem, found: SolveResult) -> str:
    known = "the best plan" if found.status is Status.OPTIMAL else "a plan"
    what = "batch" if problem.synchronous and problem.scope == "joint" else "micro-batch"
    return f"{known} takes {format_ms(found.objective_ms or 0.0)} a {what}"
