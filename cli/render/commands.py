"""Commands to copy: continued with a backslash where the terminal ends, never cut off."""

import shlex

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

__all__ = ["Command", "wrapped"]

_INDENT = "  "
_FURTHER = "    "


class Command:
    """A command line that stays one when it is copied, whatever the width."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in wrapped(self.text, options.max_width):
            yield Text(line, no_wrap=True, overflow="ignore")


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width`, unless one argument alone is longer."""
    lines: list[str] = []
    line = _INDENT
    for word in map(shlex.quote, shlex.split(text)):
        fits = len(line) + len(word) + len(" \\") <= width
        if line.strip() and not fits:
            lines.append(f"{line}\\")
            line = _FURTHER
        line += f"{word} "
    return [*lines, line.rstrip()]
