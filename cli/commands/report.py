"""`pipeplan report`: one page about a plan, for people."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pipeplan.core.codec import PlanFile

__all__ = ["command"]


def command(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="A plan file, as `solve -o` writes it.")
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE.html", help="The page.")
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option("--png", metavar="FILE", help="The page as a picture; needs Chromium."),
    ] = None,
    dot: Annotated[
        Path | None, typer.Option("--dot", metavar="FILE", help="The layer graph for Graphviz.")
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            "--sweep",
            metavar="AXIS",
            help="Solve again along an axis and draw it: bandwidth=1..100GB/s:9; repeatable.",
        ),
    ] = None,
    time_limit: Annotated[
        str, typer.Option("--time-limit", metavar="TIME", help="Of each search of a sweep.")
    ] = "10s",
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
) -> None:
    """Write one self-contained HTML page about a plan.

    Which stage runs on which rank and why, what limits it, the layer graph, memory, a simulated
    timeline, and every input. Nothing is loaded from a network when it is opened.
    """
    from pipeplan.cli.errors import complain
    from pipeplan.cli.inputs import loaded_plan, writable
    from pipeplan.core.errors import PipeplanError
    from pipeplan.core.textfile import write_bytes, write_text
    from pipeplan.validation.report.dot import dot as dot_text
    from pipeplan.validation.report.raster import screenshot

    file = loaded_plan(plan)
    wanted = [path for path in (output, png, dot) if path is not None]
    if not wanted:
        raise PipeplanError("say what to write: -o report.html, --png report.png, --dot graph.dot")
    for path in wanted:
        writable(path, force=force)
    if output is not None or png is not None:
        page = _page(file, _drawings(file, sweep or [], time_limit))
        if output is not None:
            write_text(output, page, force=force)
        if png is not None:
            write_bytes(png, screenshot(page), force=force)
    if dot is not None:
        write_text(dot, dot_text(file), force=force)
    complain(f"wrote {', '.join(map(str, wanted))}")


def _drawings(file: "PlanFile", texts: list[str], time_limit: str) -> tuple[str, ...]:
    """The sweeps of the plan's question, each as SVG text."""
    from pipeplan.cli.search import Search, one_of_many
    from pipeplan.validation.sensitivity import current_value, parse_axis, sweep
    from pipeplan.validation.sensitivity_svg import sweep_svg

    problem = file.problem
    search = Search(time_limit, workers=file.provenance.workers, seed=file.provenance.seed)
    search.options()  # What is wrong with these is no answer.
    name = problem.graph.name or "the network"
    out = []
    axes = [parse_axis(text) for text in texts]
    with one_of_many(search) as solved:
        for axis in axes:
            found = sweep(problem, axis, lambda changed: solved(changed, "auto"))
            out.append(sweep_svg([found], name=name, now=[current_value(problem, axis.name)]))
    return tuple(out)


def _page(file: "PlanFile", drawings: tuple[str, ...]) -> str:
    from pipeplan.cli.render.verdict import (
        cluster_line,
        headline,
        proof_line,
        question_line,
        two_figures,
    )
    from pipeplan.validation.report.data import ReportText, page_data
    from pipeplan.validation.report.page import render_page
    from pipeplan.validation.simulation import simulate
    from pipeplan.validation.simulation.verdict import verdict

    result = simulate(file.problem, file.plan)
    both = two_figures(file)
    text = ReportText(
        cluster=cluster_line(file.problem.cluster),
        question=question_line(file.problem),
        headline=headline(file),
        proof=proof_line(file),
        simulation=tuple(verdict(result)),
        caveats=() if both is None else (both,),
    )
    return render_page(page_data(file, result, text), drawings)
