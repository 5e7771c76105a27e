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
        page = _page(file)
        if output is not None:
            write_text(output, page, force=force)
        if png is not None:
            write_bytes(png, screenshot(page), force=force)
    if dot is not None:
        write_text(dot, dot_text(file), force=force)
    complain(f"wrote {', '.join(map(str, wanted))}")


def _page(file: "PlanFile") -> str:
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
    return render_page(page_data(file, result, text))
