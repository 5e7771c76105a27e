"""The command line: which commands there are, and the entry point `main`.

To add a command, write `cli/commands/<name>.py` with a function `command` (its parameters, declared
the Typer way, are the command line; its docstring is the help) and add its name and summary to
`COMMANDS`. Import nothing heavy at the top of such a module: its `--help` must stay fast. It may
also hold `SEVERAL_VALUES`, see `pipeplan.cli.several`. Errors need no handling there:
`pipeplan.cli.errors.guarded` turns them into one message and an exit code.
"""

from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from pipeplan import __version__
from pipeplan.cli.errors import complain, guarded, refused
from pipeplan.cli.output import open_streams, tolerant_stdout
from pipeplan.cli.several import gather, torn_quantity
from pipeplan.cli.signals import exit_code, leave, take_over

__all__ = ["COMMANDS", "app", "main"]

COMMANDS: Final = {
    "solve": "Find the best plan of a network on a cluster.",
    "show": "Show a plan: stages, ranks, servers, what limits it.",
    "evaluate": "Price a plan you bring, beside the best one.",
    "compare": "Solve with several backends; they must agree.",
    "profile": "Profile a PyTorch model, or estimate it for a device.",
    "generate": "Write stage modules, rank map and launch files.",
    "verify": "Check that the stages chained equal the original model.",
    "run": "Start torchrun here with all ranks of the plan, and train.",
    "simulate": "Run a plan as discrete events: period, bubbles, memory, timeline.",
    "report": "Write one self-contained HTML page about a plan.",
    "regress": "Compare with recorded answers; exit code 1 where one differs.",
    "profiles": "List the packaged profiles.",
}
"""Commands in the order in which `--help` lists them, each with its summary: the first line of the
docstring of `pipeplan.cli.commands.<name>.command`."""


class _Command(TyperCommand):
    """A command whose flags may take several values: `-n 8 2`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        module = import_module(f"pipeplan.cli.commands.{self.name}")
        torn = torn_quantity(args)
        if torn is not None:
            ctx.fail(torn)
        return super().parse_args(ctx, gather(args, getattr(module, "SEVERAL_VALUES", {})))


class _Commands(TyperGroup):
    """The commands of `COMMANDS`, each imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands from the table, so that `pipeplan --help` imports none of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; Ctrl-C while it is still being imported ends it as later ones do."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            complain("interrupted")
            raise typer.Exit(exit_code()) from None

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"pipeplan.cli.commands.{cmd_name}")
        holder = typer.Typer(add_completion=False, rich_markup_mode=None)
        holder.command(cmd_name, cls=_Command)(guarded(module.command))
        return get_command(holder)


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    no_args_is_help=True,
    # Plain help: rich takes longer to import than everything else here together.
    rich_markup_mode=None,
    # What gets past `guarded` is an exception of the framework itself.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pipeplan {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Which layers of a network go on which GPU, and how many copies of each: exactly.

    Start with: pipeplan solve vgg16 -n 8 2 -b 4GiB/s 2GiB/s
    """


def main() -> None:
    """Run the command line and exit with its code."""
    open_streams()
    tolerant_stdout()
    take_over()
    try:
        app(prog_name="pipeplan")
    except OSError as error:  # Of the help or the framework's own messages: `guarded` has the rest.
        leave(refused(error))
    except SystemExit as done:
        leave(done.code)
