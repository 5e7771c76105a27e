"""A comparison in Markdown, line by line: a row can be printed before the next is known."""

from collections.abc import Sequence
from dataclasses import astuple

from pipeplan.cli.render.comparison import claim_figures
from pipeplan.cli.render.suite import (
    disagreements,
    errors,
    performance_lines,
    performance_title,
    summary,
)
from pipeplan.cli.render.terminal import plain
from pipeplan.validation.comparison import Row, profiles

__all__ = ["table_head", "table_row", "table_tail"]

_FIGURES = ("status", "ms", "bound ms", "gap", "s")


def table_head(backends: Sequence[str]) -> list[str]:
    """The head: profile, cluster, whether backends agree, and five columns a backend."""
    columns = [f"{backend} {figure}" for backend in backends for figure in _FIGURES]
    right = [":---" if figure == "status" else "---:" for _ in backends for figure in _FIGURES]
    return [_line(["profile", "cluster", "agree", *columns]), _line([":---"] * 3 + right)]


def table_row(row: Row) -> str:
    """One instance."""
    agree = ("yes" if row.compared else "-") if row.verdict.agree else "**NO**"
    cells = [cell for claim in row.claims for cell in astuple(claim_figures(claim))]
    return _line([_text(row.instance.profile), _text(row.instance.cluster), agree, *cells])


def table_tail(backends: Sequence[str], found: Sequence[Row], asked: int) -> list[str]:
    """What follows the table: the verdict, contradictions, errors and the performance profile."""
    lines = ["", summary(found, asked)]
    notes = [f"**DISAGREEMENT**: {text}" for text in map(_text, disagreements(found))]
    notes += map(_text, errors(found))
    if notes:
        lines += ["", *(f"- {note}" for note in notes)]
    if len(backends) > 1 and found:
        performance = profiles(backends, found)
        lines += ["", f"{performance_title(performance)}:", ""]
        lines += [_line(["factor", *backends]), _line([":---"] + ["---:"] * len(backends))]
        lines += map(_line, performance_lines(performance))
    return lines


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    """Someone else's text as one line that is no markup."""
    return "".join(f"\\{x}" if x in "\\|*_`<>[]" else x for x in plain(text).plain)
