"""The table of `compare`: one row a backend."""

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pipeplan.cli.render.terminal import plain
from pipeplan.cli.render.words import milliseconds, percent, plural
from pipeplan.core.codec import gap
from pipeplan.validation.crosscheck import Claim, Verdict

__all__ = ["comparison"]


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


def _row(claim: Claim) -> list[str]:
    result = claim.result
    if result is None:
        return [claim.backend, "error", *["-"] * 6]
    objective, bound = result.objective_ms, result.bound_ms
    far = None if objective is None else gap(objective, bound)
    stats = result.stats
    status = result.status.value + ("" if result.limit is None else f"\n({result.limit.value})")
    return [
        claim.backend,
        status,
        "-" if objective is None else f"{objective:.6f}",
        "-" if bound is None else f"{bound:.6f}",
        "-" if far is None else percent(far),
        milliseconds(stats.seconds),
        "-" if stats.variables is None else str(stats.variables),
        "-" if stats.constraints is None else str(stats.constraints),
    ]
