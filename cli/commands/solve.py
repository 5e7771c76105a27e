"""`pipeplan solve`: the best plan, and the proof that it is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pipeplan.cli.parameters import expanded
from pipeplan.cli.question import QUESTION_VALUES, Question
from pipeplan.cli.search import Search
from pipeplan.solver.options import BackendName

if TYPE_CHECKING:
    from pipeplan.core.codec import PlanFile
    from pipeplan.core.problem import Problem
    from pipeplan.solver.result import SolveResult

__all__ = ["SEVERAL_VALUES", "command"]

SEVERAL_VALUES: Final = QUESTION_VALUES


@expanded
def command(
    question: Question,
    search: Search,
    profile: Annotated[
        str | None,
        typer.Argument(metavar="PROFILE", help="A profile file, or a name of `pipeplan profiles`."),
    ] = None,
    profile_filename: Annotated[
        str | None,
        typer.Option("-f", "--profile_filename", metavar="PROFILE", help="PipeDream's spelling."),
    ] = None,
    backend: Annotated[BackendName, typer.Option("--backend", help="Who searches.")] = "auto",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="PLAN", help="Write the plan file.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ] = False,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            "--sweep",
            metavar="AXIS",
            help="Which plan is best where: bandwidth=1..100GB/s:20, bandwidth1=..., "
            "memory=8GB..80GB, devices=1..8; repeatable.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the sweeps as SVG.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
) -> None:
    """Find the best plan of a network on a cluster.

    Example: pipeplan solve vgg16 -n 8 2 -b 4GiB/s 2GiB/s --memory 16GB -o plan.json

    Exit codes: 0 a plan was found, 1 there is none (infeasible), 2 bad input, 3 no plan within the
    limit. Ctrl-C ends the search with the best plan so far and exit code 0, or 130 before there is
    one; a second Ctrl-C ends it at once.
    """
    from pipeplan.cli.answer import answer_to_dict, plan_file
    from pipeplan.cli.inputs import asked_profile, loaded, writable
    from pipeplan.cli.output import print_json
    from pipeplan.cli.search import find
    from pipeplan.core.codec import plan_to_dict
    from pipeplan.core.jsontext import dump_json, write_text

    path = asked_profile(profile, profile_filename)
    _check_sweep(sweep, output, plot)
    for target in (output, plot):
        if target is not None:
            writable(target, force=force)
    problem = loaded(path, question)
    if sweep:
        from pipeplan.cli.sweeping import run_sweeps

        run_sweeps(problem, sweep, backend, search, plot=plot, as_json=as_json, force=force)
        return
    result = find(problem, backend, search)
    file = plan_file(problem, result, search.options())
    if file is not None and output is not None:
        write_text(output, dump_json(plan_to_dict(file)), force=force)
    if as_json:
        print_json(answer_to_dict(problem, result, file, backend))
    elif file is not None:
        _show(file, path, output)
    elif not _interrupted(result):
        _explain(problem, result, backend, search)
    if file is None:
        raise typer.Exit(_why_none(result))


def _interrupted(result: "SolveResult") -> bool:
    from pipeplan.solver.result import Limit

    return result.limit is Limit.INTERRUPT


def _why_none(result: "SolveResult") -> int:
    """The exit code of an answer without a plan."""
    from pipeplan.cli.errors import EXIT_FALSE, EXIT_NO_PLAN, complain
    from pipeplan.cli.signals import exit_code
    from pipeplan.solver.result import Status

    if _interrupted(result):
        complain("interrupted before there was a plan")
        return exit_code()
    return EXIT_FALSE if result.status is Status.INFEASIBLE else EXIT_NO_PLAN


def _check_sweep(sweep: list[str] | None, output: Path | None, plot: Path | None) -> None:
    from pipeplan.core.errors import PipeplanError

    if sweep and output is not None:
        raise PipeplanError("--sweep answers with many plans and -o writes one: give one of them")
    if plot is not None and not sweep:
        raise PipeplanError("--plot draws what --sweep finds: give --sweep too")


def _show(file: "PlanFile", profile: str, output: Path | None) -> None:
    from pipeplan.cli.next_steps import after_saving, how_to_save, typed
    from pipeplan.cli.render.plan import plan_page
    from pipeplan.cli.render.terminal import show

    steps = (
        how_to_save(typed())
        if output is None
        else after_saving(output, file.problem.graph.name, profile)
    )
    show(*plan_page(file, steps))


def _explain(
    problem: "Problem", result: "SolveResult", backend: BackendName, search: Search
) -> None:
    from pipeplan.cli.remedies import advice
    from pipeplan.cli.render.no_plan import no_plan_page
    from pipeplan.cli.render.terminal import show

    found = advice(problem, result, backend, search)
    show(*no_plan_page(problem, result, found.lines, found.steps))
