"""The table of `compare --suite`: a row an instance, a column a backend; and what it amounts to."""

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pipeplan.cli.render.comparison import claim_figures
from pipeplan.cli.render.terminal import plain
from pipeplan.cli.render.words import percent
from pipeplan.core.units import plural
from pipeplan.validation.comparison import Row, profiles
from pipeplan.validation.crosscheck import Claim
from pipeplan.validation.performance import SHORTEST_S, Performance

__all__ = [
    "disagreements",
    "errors",
    "performance_lines",
    "performance_title",
    "suite_page",
    "summary",
]


def suite_page(
    backends: Sequence[str], found: Sequence[Row], asked: int
) -> Iterator[RenderableType]:
    """What every backend said of every instance; `asked` counts instances, finished or not."""
    if found:
        yield _claims(backends, found)
        yield Text()
    yield Text(summary(found, asked))
    for text in disagreements(found):
        yield Text(f"DISAGREEMENT: {plain(text).plain}", style="bold")
    for text in errors(found):
        yield plain(text)
    if len(backends) > 1 and found:
        performance = profiles(backends, found)
        yield Text()
        yield Text(performance_title(performance), style="bold")
        yield _performance(performance)


def _claims(backends: Sequence[str], found: Sequence[Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("profile\ncluster", overflow="fold")
    for backend in backends:
        table.add_column(backend, overflow="fold")
    for row in found:
        where = row.instance
        name = f"{plain(where.profile, 40).plain}\n{where.cluster}"
        table.add_row(
            name if row.verdict.agree else f"{name}\nDISAGREEMENT",
            *(_cell(claim) for claim in row.claims),
            style="" if row.verdict.agree else "bold",
            end_section=True,
        )
    return table


def _cell(claim: Claim) -> str:
    """Status and seconds; the objective; and where that is not proven, the bound and the gap."""
    if claim.result is None:
        return "error"
    figures = claim_figures(claim)
    lines = [f"{figures.status}, {figures.seconds} s"]
    if figures.objective_ms != "-":
        lines.append(f"{figures.objective_ms} ms")
    if claim.result.status.value in ("FEASIBLE", "NO_SOLUTION") and figures.bound_ms != "-":
        gap = "" if figures.gap == "-" else f", gap {figures.gap}"
        lines.append(f"bound {figures.bound_ms}{gap}")
    return "\n".join(lines)


def summary(found: Sequence[Row], asked: int) -> str:
    """How many instances were finished, and on how many the backends agree."""
    wrong = sum(not row.verdict.agree for row in found)
    agree = sum(row.verdict.agree and row.compared for row in found)
    return (
        f"{len(found)} of {plural(asked, 'instance')}: backends agree on {agree}, contradict each "
        f"other on {wrong}; on {len(found) - agree - wrong} fewer than two answered."
    )


def disagreements(found: Sequence[Row]) -> list[str]:
    """Every contradiction with its instance."""
    return [
        f"{row.instance.profile} on {row.instance.cluster}: {text}"
        for row in found
        for text in row.verdict.disagreements
    ]


def errors(found: Sequence[Row]) -> list[str]:
    """Why backends gave no answer, once for all instances of a profile that share the reason."""
    where: dict[tuple[str, str, str], int] = {}
    for row in found:
        for claim in row.claims:
            if claim.error and not claim.faulty:
                key = (row.instance.profile, claim.backend, claim.error)
                where[key] = where.get(key, 0) + 1
    return [
        f"{profile}, {backend}{f' ({count} times)' if count > 1 else ''}: {text}"
        for (profile, backend, text), count in where.items()
    ]


def performance_title(performance: Performance) -> str:
    """What the lines of a performance profile are."""
    return (
        f"Share of {plural(performance.instances, 'instance')} proved within a factor of the "
        f"fastest proof's seconds, anything below {SHORTEST_S:g} s counted as that"
    )


def performance_lines(performance: Performance) -> list[list[str]]:
    """A line a factor, then the geometric means: first cell what it is, then a cell a backend."""
    curves = performance.curves
    lines = [
        [str(factor), *(percent(curve.shares[i]) for curve in curves)]
        for i, factor in enumerate(performance.factors)
    ]
    lines.append(["proved", *(str(curve.proved) for curve in curves)])
    lines.append(["mean ratio, own proofs", *(_ratio(x.mean_ratio) for x in curves)])
    lines.append(
        [
            f"mean ratio, the {performance.common} proved by all",
            *(_ratio(x.mean_ratio_common) for x in curves),
        ]
    )
    return lines


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _performance(performance: Performance) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("factor")
    for curve in performance.curves:
        table.add_column(curve.backend, justify="right")
    for line in performance_lines(performance):
        table.add_row(*line)
    return table
