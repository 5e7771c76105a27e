"""`pipeplan evaluate`: what a plan of one's own costs, and how far from the best it is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pipeplan.cli.parameters import expanded
from pipeplan.cli.question import QUESTION_VALUES, Question
from pipeplan.cli.search import Search
from pipeplan.cli.several import STAGE
from pipeplan.solver.options import BackendName

if TYPE_CHECKING:
    from pipeplan.core.codec import PlanFile
    from pipeplan.core.plan import Plan
    from pipeplan.core.problem import Problem
    from pipeplan.solver.result import SolveResult

__all__ = ["SEVERAL_VALUES", "command"]

SEVERAL_VALUES: Final = {**QUESTION_VALUES, "--stages": STAGE}


@expanded
def command(
    question: Question,
    search: Search,
    profile: Annotated[
        str | None,
        typer.Argument(metavar="PROFILE", help="A profile file, or a name of `pipeplan profiles`."),
    ] = None,
    stages: Annotated[
        str | None,
        typer.Option(
            "--stages",
            metavar="STAGE ...",
            help="LAYERS:REPLICAS or LAYERS@RANKS each: 0-24:15 25-39:1, 0-24@0-6,8-14 25-39@7,15.",
        ),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", metavar="PLAN", help="A plan file of pipeplan.")
    ] = None,
    rank_map: Annotated[
        Path | None,
        typer.Option(
            "--rank-map",
            metavar="FILE",
            help="PipeDream's hybrid_conf.json: ranks of the stages of --stages, or of the "
            "profile's stage_id.",
        ),
    ] = None,
    backend: Annotated[
        BackendName, typer.Option("--backend", help="Who searches for the optimum.")
    ] = "auto",
    optimum: Annotated[
        bool, typer.Option("--optimum/--no-optimum", help="Whether to compare with the best plan.")
    ] = True,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write the plan, if it is valid, as a plan file to simulate, generate or report.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the plan file.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ] = False,
) -> None:
    """Price a plan you bring, beside the best one.

    Example: pipeplan evaluate vgg16 -n 8 2 -b 4GiB/s 2GiB/s --stages 0-24:15 25-39:1

    A plan is a list of stages (layers by topological index or by id), a plan file, or PipeDream's
    rank map. With --plan and no PROFILE, its own question is asked. Exit code 1 if the plan breaks
    a limit or a constraint, 2 if it is no plan at all.
    """
    from pipeplan.cli.answer import given_file
    from pipeplan.cli.errors import EXIT_FALSE
    from pipeplan.cli.inputs import writable
    from pipeplan.cli.output import print_json
    from pipeplan.core.codec import plan_to_dict
    from pipeplan.core.jsontext import dump_json, write_text

    if output is not None:
        writable(output, force=force)
    problem, brought = _brought(question, profile, stages, plan, rank_map)
    file = given_file(problem, brought)
    broken = _broken(problem, brought)
    saved = None if broken else output
    if saved is not None:
        write_text(saved, dump_json(plan_to_dict(file)), force=force)
    best, missing = _optimum(problem, backend, search) if optimum else (None, "")
    if as_json:
        print_json(_document(file, broken, best, missing))
    else:
        _show(file, broken, best, missing, profile, saved)
    if broken:
        raise typer.Exit(EXIT_FALSE)


def _brought(
    question: Question,
    profile: str | None,
    stages: str | None,
    plan: Path | None,
    rank_map: Path | None,
) -> "tuple[Problem, Plan]":
    """The question and the plan; raises PipeplanError where there is none, or more than one."""
    from pipeplan.cli.brought import plan_for, plan_of_stages
    from pipeplan.cli.inputs import loaded, loaded_plan
    from pipeplan.core.errors import PlanError, ProblemError

    if plan is not None:
        if stages is not None or rank_map is not None:
            raise PlanError("--plan brings the whole plan: leave out --stages and --rank-map")
        file = loaded_plan(plan)
        if profile is None:
            if question != Question():
                raise ProblemError(
                    "--plan without PROFILE asks the plan's own question: name the PROFILE, or "
                    "leave out the flags about cluster and costs"
                )
            return file.problem, plan_for(file.problem, file)
        problem = loaded(profile, question)
        return problem, plan_for(problem, file)
    if profile is None:
        raise ProblemError("which PROFILE? Name a file, or one of the packaged profiles")
    problem = loaded(profile, question)
    return problem, plan_of_stages(problem, stages, rank_map)


def _optimum(
    problem: "Problem", backend: BackendName, search: Search
) -> "tuple[SolveResult | None, str]":
    """The best plan, or why nobody could look for it: the one brought is priced anyway."""
    from pipeplan.cli.search import find
    from pipeplan.core.errors import BackendUnavailableError, TooLargeError

    try:
        return find(problem, backend, search), ""
    except (BackendUnavailableError, TooLargeError) as error:
        return None, str(error)


def _broken(problem: "Problem", plan: "Plan") -> tuple[str, ...]:
    from pipeplan.core.check import violations

    return violations(problem, plan, scope=False)


def _show(
    file: "PlanFile",
    broken: tuple[str, ...],
    best: "SolveResult | None",
    missing: str,
    profile: str | None,
    saved: Path | None,
) -> None:
    from pipeplan.cli.next_steps import after_saving, solve_instead, typed
    from pipeplan.cli.render.brought import distance_lines, violation_lines
    from pipeplan.cli.render.plan import plan_page
    from pipeplan.cli.render.terminal import show

    notes = [*violation_lines(broken), *distance_lines(file, best)]
    if missing:
        notes.append(f"No best plan to compare with: {missing}")
    # Without the optimum, or with a question that stands in a plan file alone, there is nothing to
    # solve from this command line.
    steps = [] if saved is None else after_saving(saved, file.problem.graph.name, profile)
    if best is not None and "--plan" not in typed():
        steps += solve_instead(typed())
    show(*plan_page(file, steps, notes))


def _document(
    file: "PlanFile", broken: tuple[str, ...], best: "SolveResult | None", missing: str
) -> dict[str, Any]:
    from pipeplan.cli.render.brought import distance
    from pipeplan.core.codec import plan_to_dict

    return {
        "objective_ms": file.evaluation.objective_ms,
        "topology_period_ms": file.evaluation.topology.period_ms,
        "violations": list(broken),
        "optimum": None
        if best is None
        else {
            "status": best.status.value,
            "objective_ms": best.objective_ms,
            "bound_ms": best.bound_ms,
            "backend": best.stats.backend,
            "seconds": best.stats.seconds,
            "explanation": best.explanation or None,
        },
        "no_optimum": missing or None,
        "distance": None if best is None else distance(file, best),
        "plan": plan_to_dict(file),
    }
