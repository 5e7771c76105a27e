"""Where text meets the terminal: width, colour, and text that others wrote."""

import os
import sys
from typing import IO

from rich.console import Console, RenderableType
from rich.text import Text

__all__ = ["console", "plain", "show"]


def console(file: IO[str] | None = None, *, width: int | None = None) -> Console:
    """A console that writes no colour codes to anything but a terminal.

    Markup, emoji codes and highlighting are off: text from profiles is printed, never interpreted.
    Piped output is as wide as COLUMNS says, or 100 characters.
    """
    out = Console(
        file=file if file is not None else sys.stdout,
        width=width,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=False,
    )
    if width is None and not out.is_terminal and "COLUMNS" not in os.environ:
        out.width = 100
    return out


def show(*parts: RenderableType) -> None:
    """Print to stdout; without the blanks that fill a terminal's lines where it is none."""
    out = console()
    if out.is_terminal:
        for part in parts:
            out.print(part, crop=False)
        return
    with out.capture() as captured:
        for part in parts:
            out.print(part, crop=False)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def plain(text: str, limit: int | None = None) -> Text:
    """Someone else's text as one printable line, cut to `limit` characters."""
    clean = "".join(x if x.isprintable() else "?" for x in text)
    if limit is not None and len(clean) > limit:
        clean = clean[: limit - 3] + "..."
    return Text(clean)
