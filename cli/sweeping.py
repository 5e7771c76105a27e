"""`solve --sweep`: the question asked again along an axis, as a table, JSON and a drawing."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pipeplan.cli.output import print_json
from pipeplan.cli.render.terminal import plain, show
from pipeplan.cli.search import Search, one_of_many
from pipeplan.core.problem import Problem
from pipeplan.core.textfile import write_text
from pipeplan.core.units import format_ms
from pipeplan.solver.options import BackendName
from pipeplan.validation.sensitivity import (
    Stretch,
    Sweep,
    current_value,
    parse_axis,
    plan_words,
    show_value,
    sweep,
)
from pipeplan.validation.sensitivity_svg import sweep_svg

__all__ = ["run_sweeps"]

_FORM: Final = "layers:replicas of each stage"
_PLAN: Final = f"best plan ({_FORM})"


def run_sweeps(
    problem: Problem,
    texts: Sequence[str],
    backend: BackendName,
    search: Search,
    *,
    plot: Path | None,
    as_json: bool,
    force: bool,
) -> None:
    """Sweep every axis on its own, print what was found, and draw it.

    Raises PipeplanError for axes that are none, and what the backend raises; KeyboardInterrupt
    where Ctrl-C ended one of the searches.
    """
    axes = [parse_axis(text) for text in texts]
    search.options()  # What is wrong with these is no answer.
    with one_of_many(search) as solved:
        found = [sweep(problem, axis, lambda changed: solved(changed, backend)) for axis in axes]
    now = [current_value(problem, axis.name) for axis in axes]
    if plot is not None:
        drawing = sweep_svg(found, name=problem.graph.name or "the network", now=now)
        write_text(plot, drawing, force=force)
    if as_json:
        print_json({"sweeps": [_document(x, here) for x, here in zip(found, now, strict=True)]})
        return
    for one, here in zip(found, now, strict=True):
        show(*_page(problem, one, here))


def _page(problem: Problem, found: Sweep, now: float | None) -> Iterator[RenderableType]:
    name, axis = plain(problem.graph.name or "the network", 60).plain, found.axis.name
    yield Text(f"{name}: the best plan by {axis}", style="bold")
    if now is not None:
        here = found.around(now)
        if here is not None and here.plan is not None:
            yield Text(f"Now {show_value(axis, now)}: {_tolerance(found, now)}")
    yield Padding(_Stretches(found, now), (0, 0, 0, 2))
    yield Text()


class _Stretches:
    """One row a stretch of the axis that one plan is best on; the plans below, where they do not
    fit beside it."""

    def __init__(self, found: Sweep, now: float | None) -> None:
        self.found = found
        self.now = now

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unbound = options.update_width(10**6)
        beside = self._table([self._words(x) for x in self.found.stretches], _PLAN)
        if Measurement.get(console, unbound, beside).maximum <= options.max_width:
            yield beside
            return
        numbers = [
            self._words(x) if x.plan is None else str(x.plan + 1) for x in self.found.stretches
        ]
        yield self._table(numbers, "plan")
        yield Text()
        yield Text(f"Plans ({_FORM}):")
        for number, plan in enumerate(self.found.plans, 1):
            yield Text(f"{number}: {plan_words(plan)}")

    def _words(self, stretch: Stretch) -> str:
        if stretch.plan is not None:
            return plan_words(self.found.plans[stretch.plan])
        return next(x.status.value for x in self.found.points if x.value == stretch.low)

    def _table(self, plans: Sequence[str], heading: str) -> Table:
        table = Table(box=None, pad_edge=False)
        for column in ("from", "to", "objective", "bound"):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column(heading, no_wrap=True)
        axis = self.found.axis.name
        by_value = {point.value: point for point in self.found.points}
        for stretch, plan in zip(self.found.stretches, plans, strict=True):
            ends = (by_value[stretch.low], by_value[stretch.high])
            here = self.now is not None and stretch.low <= self.now <= stretch.high
            table.add_row(
                show_value(axis, stretch.low),
                show_value(axis, stretch.high),
                _between([x.objective_ms for x in ends]),
                _between([x.bound_ms for x in ends]),
                plan + (" <- now" if here else ""),
            )
        return table


def _between(times: Sequence[float | None]) -> str:
    """The times at both ends of a stretch, once where they are the same."""
    shown = list(dict.fromkeys("-" if x is None else format_ms(x) for x in times))
    return " to ".join([*(x.removesuffix(" ms") for x in shown[:-1]), shown[-1]])


def _tolerance(found: Sweep, now: float) -> str:
    here = found.around(now)
    assert here is not None
    axis = found.axis.name
    low = ("at or below " if here.open_low else "") + show_value(axis, here.low)
    high = show_value(axis, here.high) + (" or more" if here.open_high else "")
    return f"the same plan from {low} to {high}."


def _document(found: Sweep, now: float | None) -> dict[str, Any]:
    return {
        "axis": found.axis.name,
        "now": now,
        "points": [
            {
                "value": x.value,
                "status": x.status.value,
                "objective_ms": x.objective_ms,
                "bound_ms": x.bound_ms,
                "plan": x.plan,
            }
            for x in found.points
        ],
        "plans": [
            [{"layers": list(s.layers), "ranks": list(s.ranks)} for s in plan.stages]
            for plan in found.plans
        ],
        "changes": [
            {"low": x.low, "high": x.high, "before": x.before, "after": x.after}
            for x in found.changes
        ],
        "stretches": [
            {
                "plan": x.plan,
                "low": x.low,
                "high": x.high,
                "open_low": x.open_low,
                "open_high": x.open_high,
            }
            for x in found.stretches
        ],
    }
