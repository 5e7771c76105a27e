"""How to look for a plan, from the command line; and the look itself, with its progress."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from pipeplan.cli.progress import reporting
from pipeplan.cli.signals import searching
from pipeplan.core.errors import ProblemError, shown
from pipeplan.core.problem import Problem
from pipeplan.core.units import parse_duration_s
from pipeplan.solver.options import BACKENDS, BackendName, SolveOptions
from pipeplan.solver.result import Limit, SolveResult

__all__ = ["Search", "backends_named", "find", "one_of_many"]


@dataclass(frozen=True, slots=True)
class Search:
    """Flags as typed; `options` makes sense of them."""

    time_limit: Annotated[
        str | None,
        typer.Option("--time-limit", metavar="TIME", help="Stop after this long: 60s, 2m, 1h."),
    ] = None
    workers: Annotated[int, typer.Option("--workers", metavar="N", help="Threads to use.")] = 2
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="Seed of the solvers.")] = 0
    gap: Annotated[
        float, typer.Option("--gap", metavar="G", help="Stop this close to the bound: 0.01 is 1 %.")
    ] = 0.0
    log: Annotated[bool, typer.Option("--log", help="The solver's own log, on stderr.")] = False

    def options(self) -> SolveOptions:
        """The options; raises PipeplanError where a figure has no meaning."""
        return SolveOptions(
            time_limit_s=None if self.time_limit is None else parse_duration_s(self.time_limit),
            workers=self.workers,
            seed=self.seed,
            gap=self.gap,
            log=self.log,
        )


def backends_named(text: str) -> tuple[BackendName, ...]:
    """The backends of --backends A,B; raises ProblemError for what is none, or named twice."""
    asked = [x.strip() for x in text.split(",") if x.strip()]
    for name in asked:
        if name not in BACKENDS:
            raise ProblemError(
                f"there is no backend {shown(name)}; choose from {', '.join(BACKENDS)}"
            )
    if len(set(asked)) != len(asked) or not asked:
        raise ProblemError(f"--backends {shown(text)}: name each backend once")
    return tuple(x for name in asked for x in BACKENDS if x == name)


def find(problem: Problem, backend: BackendName, search: Search) -> SolveResult:
    """Solve, showing progress on a terminal; Ctrl-C and SIGTERM end the search with its best plan.

    Raises what `pipeplan.solver.api.solve` raises.
    """
    from pipeplan.solver.api import solve

    options = search.options()
    with reporting(backend, quiet=search.log) as progress, searching():
        return solve(problem, backend, options, progress)


@contextmanager
def one_of_many(search: Search) -> Iterator[Callable[[Problem, BackendName], SolveResult]]:
    """Yield what solves the next question of a run of many, which Ctrl-C ends as a whole.

    A search by itself answers Ctrl-C with its best plan; here KeyboardInterrupt is raised, also
    where the search was just done, or lost the signal.
    """
    heard = False

    def hear(*_: object) -> None:
        nonlocal heard
        heard = True
        raise KeyboardInterrupt

    def solved(problem: Problem, backend: BackendName) -> SolveResult:
        result = find(problem, backend, search)
        if heard or result.limit is Limit.INTERRUPT:
            raise KeyboardInterrupt
        return result

    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler:  # Ignored, as behind nohup: so it stays.
        yield solved
        return
    signal.signal(signal.SIGINT, hear)
    try:
        yield solved
    finally:
        signal.signal(signal.SIGINT, usual)
