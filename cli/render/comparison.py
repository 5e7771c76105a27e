"""The table of `compare`: one row a backend."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pipeplan.cli.render.terminal import plain
from pipeplan.cli.render.words import milliseconds, percent
from pipeplan.core.codec import gap
from pipeplan.core.units import plural
from pipeplan.validation.crosscheck import Claim, Verdict

__all__ = ["Figures", "claim_figures", "comparison"]


def comparison(title: str, claims: Sequence[Claim], verdict: Verdict) -> Iterator[RenderableType]:
    """What each backend said of one profile, and whether they agree."""
    yield Text(plain(title).plain, style="bold")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=0)
    table.add_column("backend", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for name in ("objective ms", "bound ms", "gap", "seconds", "vari-\nables", "con-\nstraints"):
        table.add_column(name, justify="right", overflow="fold")
    for claim in claims:
        table.add_row(*_row(claim))
    yield table
    for claim in claims:
        if claim.error:
            yield plain(f"{claim.backend}: {claim.error}")
        elif claim.result is not None and claim.result.explanation:
            yield plain(f"{claim.backend}: {claim.result.explanation}")
    if not verdict.agree:
        for text in verdict.disagreements:
            yield Text(f"DISAGREEMENT: {text}", style="bold")
    elif verdict.answered > 1:
        yield Text(f"{plural(verdict.answered, 'backend')} agree.")
    else:
        yield Text("Nothing to compare: fewer than two backends answered.")


@dataclass(frozen=True, slots=True)
class Figures:
    """A claim as the cells of a table; - where there is nothing to say."""

    status: str
    objective_ms: str
    bound_ms: str
    gap: str
    seconds: str


def claim_figures(claim: Claim) -> Figures:
    """The cells of a claim; what stopped a search stands behind its status."""
    result = claim.result
    if result is None:
        return Figures("error", "-", "-", "-", "-")
    objective, bound = result.objective_ms, result.bound_ms
    far = None if objective is None else gap(objective, bound)
    return Figures(
        status=result.status.value + ("" if result.limit is None else f" ({result.limit.value})"),
        objective_ms="-" if objective is None else f"{objective:.6f}",
        bound_ms="-" if bound is None else f"{bound:.6f}",
        gap="-" if far is None else percent(far),
        seconds=milliseconds(result.stats.seconds),
    )


def _row(claim: Claim) -> list[str]:
    figures = claim_figures(claim)
    stats = None if claim.result is None else claim.result.stats
    return [
        claim.backend,
        figures.status.replace(" ", "\n"),
        figures.objective_ms,
        figures.bound_ms,
        figures.gap,
        figures.seconds,
        "-" if stats is None or stats.variables is None else str(stats.variables),
        "-" if stats is None or stats.constraints is None else str(stats.constraints),
    ]
