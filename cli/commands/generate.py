"""`pipeplan generate`: from a plan to stage modules, rank maps and what starts them."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["command"]


def command(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="[PROFILE] PLAN",
            help="The profile that was planned (a plan holds its profile, so it may be left out), "
            "and the plan file that `solve -o` wrote.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="The folder to write.")
    ],
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Replace a package that was generated before; other files in it stay."
        ),
    ] = False,
) -> None:
    """Write stage modules, rank map and launch files.

    The folder is written whole or not at all. Text of a profile never becomes code: a layer that
    is not understood is an error with its line.
    """
    import shlex

    from pipeplan.cli.inputs import loaded_graph, loaded_plan
    from pipeplan.codegen.layer_error import LayerError, located
    from pipeplan.codegen.package import build_package, write_package
    from pipeplan.core.errors import ProblemError, SourceError
    from pipeplan.core.textfile import read_text
    from pipeplan.core.units import plural

    if len(files) > 2:
        raise ProblemError(f"{len(files)} files are given; generate takes [PROFILE] PLAN")
    plan = Path(files[-1])
    file = loaded_plan(plan)
    graph = loaded_graph(files[0]) if len(files) == 2 else None
    try:
        package = build_package(file, graph)
    except LayerError as error:
        source = Path(files[0])
        if not source.is_file():
            raise
        raise located(error, source, read_text(source, SourceError)) from None
    write_package(package, output, force=force)
    for note in package.notes:
        typer.echo(f"note: {note}")
    where = shlex.quote(str(output))
    stages = len(file.plan.stages)
    typer.echo(f"{output}: {plural(stages, 'stage')}, {plural(len(package.files), 'file')}. Next:")
    typer.echo(f"  pipeplan verify {where}")
    typer.echo(f"  pipeplan run {where} --steps 10")
