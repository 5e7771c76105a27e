"""Tables that a command writes into a page, between two marks that name the command."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pipeplan.core.errors import PlanError
from pipeplan.core.textfile import read_text, write_text

__all__ = ["replace_table", "table_lines"]

_END: Final = "<!-- end of table -->"


def replace_table(path: Path, command: str, lines: Sequence[str]) -> None:
    """Put these lines where a page holds the table of a command, and leave the rest as it is.

    Raises PlanError where the page holds no such table.
    """
    before, _, after = _parted(path, command)
    write_text(path, "\n".join([before, *lines, _END]) + after, force=True)


def table_lines(path: Path, command: str) -> list[str]:
    """The lines that a page holds as the table of a command; raises PlanError without one."""
    return _parted(path, command)[1].strip("\n").splitlines()


def _parted(path: Path, command: str) -> tuple[str, str, str]:
    """The page up to the mark that begins the table, the table, and what follows its end."""
    begin = f"<!-- table: {command} -->"
    before, began, rest = read_text(path, PlanError).partition(begin)
    table, ended, after = rest.partition(_END)
    if not began or not ended:
        raise PlanError(f"there is no table between {begin} and {_END}", path=path)
    return before + began, table, after
