"""`pipeplan verify`: do the generated stages compute what the original does?"""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["command"]


def command(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A package that `generate` wrote.")
    ],
    dtype: Annotated[
        str, typer.Option("--dtype", help="float64 (differences to 1e-10) or float32 (to 1e-4).")
    ] = "float64",
    seed: Annotated[int, typer.Option("--seed", help="Of weights and inputs.")] = 0,
    each: Annotated[
        bool, typer.Option("--each", help="One line for every parameter, not only the worst.")
    ] = False,
) -> None:
    """Check that the stages chained equal the original model.

    Results, loss, the gradient of every parameter and the buffers, in training and in evaluation
    mode, in one process on the CPU. Runs the package's code and the model's factory. Exit code 1
    where something differs.
    """
    from pipeplan.core.units import plural
    from pipeplan.runtime.equivalence import verify
    from pipeplan.runtime.package import load_package

    package = load_package(directory)
    verdict = verify(package, dtype=dtype, seed=seed)
    typer.echo(f"{plural(package.stages, 'stage')} in {dtype} against {verdict.original}")
    typer.echo(f"{'mode':5}  {'what':8}  {'count':>5}  {'max abs':>9}  {'max rel':>9}  worst")
    for mode in ("train", "eval"):
        for kind in ("output", "loss", "gradient", "buffer"):
            found = [x for x in verdict.differences if (x.mode, x.kind) == (mode, kind)]
            if not found:
                continue
            shown = found if each else [max(found, key=lambda x: x.max_rel)]
            for item in shown:
                count = "" if each else str(len(found))
                where = "" if item.stage is None else f" (stage {item.stage})"
                typer.echo(
                    f"{mode:5}  {kind:8}  {count:>5}  {item.max_abs:9.2e}  {item.max_rel:9.2e}  "
                    f"{item.name}{where}"
                )
    if not verdict.holds:
        typer.echo(f"NOT equal: {len(verdict.failures)} beyond {verdict.tolerance:g} relative")
        raise typer.Exit(1)
    typer.echo(f"equal: nothing differs by more than {verdict.tolerance:g} relative")
