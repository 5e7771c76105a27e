"""`pipeplan profiles`: what can be planned without any file of one's own."""

from dataclasses import asdict
from typing import Annotated

import typer

__all__ = ["command"]


def command(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of the table.")
    ] = False,
) -> None:
    """List the packaged profiles.

    Their names stand wherever a PROFILE is wanted: pipeplan solve vgg16 -n 8 2 -b 4GiB/s 2GiB/s
    """
    from pipeplan.cli.output import print_json
    from pipeplan.models.profiles import list_profiles

    found = list_profiles()
    if as_json:
        print_json([asdict(x) for x in found])
        return
    from pipeplan.cli.render.profiles import profiles_table
    from pipeplan.cli.render.terminal import show

    show(profiles_table(found))
