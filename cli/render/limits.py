"""What limits a plan, and what would move it."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pipeplan.cli.render.words import percent
from pipeplan.core.bottleneck import bottleneck, level_limits
from pipeplan.core.codec import PlanFile
from pipeplan.core.cost import evaluate
from pipeplan.core.levers import levers, on_topology
from pipeplan.core.units import format_ms

__all__ = ["limits"]

_SAME = 1e-9


def limits(file: PlanFile) -> RenderableType:
    """The bottleneck in words, and the same plan priced with one thing changed at a time."""
    problem, plan = file.problem, file.plan
    now = evaluate(on_topology(problem), plan).objective_ms
    by = "" if plan.nested is None else " by topology"
    what = "batch" if problem.synchronous else "micro-batch"
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for lever in levers(problem, plan):
        change = lever.objective_ms / now - 1 if now else 0.0
        said = (
            "no change"
            if abs(change) < _SAME
            else f"{'+' if change > 0 else '-'}{percent(abs(change))}"
        )
        table.add_row(lever.text, format_ms(lever.objective_ms), said)
    return Group(
        *_bottleneck(file),
        Text(f"This same plan, now {format_ms(now)} a {what}{by}, would take with"),
        Padding(table, (0, 0, 0, 2)),
    )


def _bottleneck(file: PlanFile) -> Iterator[RenderableType]:
    """The busiest GPU or port; before it, of a nested plan, what is slowest level by level."""
    problem, plan, price = file.problem, file.plan, file.evaluation
    busiest = f"{bottleneck(problem, plan, price).text}."
    by_level = level_limits(problem, plan)
    if not by_level:
        yield Text(f"Bottleneck: {busiest}")
        return
    yield Text(f"By {problem.cost_model}, {format_ms(price.period_ms)}:")
    yield from (Padding(Text(line), (0, 0, 0, 2)) for line in by_level)
    yield Text(f"By topology, {format_ms(price.topology.period_ms)}:")
    yield Padding(Text(busiest[0].upper() + busiest[1:]), (0, 0, 0, 2))
