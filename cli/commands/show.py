"""`pipeplan show`: a plan file for reading."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["command"]


def command(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="A plan file, as `solve -o` writes it.")
    ],
) -> None:
    """Show a plan: stages, ranks, servers, what limits it.

    The plan file holds its whole question, so nothing else is needed. It is priced again on
    reading: a file whose figures are not those of its own plan is refused. What was proven of the
    plan is the file's record: solve repeats it, reading does not.
    """
    from pipeplan.cli.inputs import loaded_plan
    from pipeplan.cli.next_steps import after_saving
    from pipeplan.cli.render.plan import plan_page
    from pipeplan.cli.render.terminal import show

    file = loaded_plan(plan)
    show(*plan_page(file, after_saving(plan, file.problem.graph.name)))
