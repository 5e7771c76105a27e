"""A simulation on the terminal: verdict, how stages spend their time, the busiest ports."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pipeplan.cli.render.terminal import plain
from pipeplan.core.units import format_bytes, format_ms, plural
from pipeplan.validation.simulation import Simulation

__all__ = ["simulation_page"]

_PORTS = 6


def simulation_page(result: Simulation, verdict: Sequence[str]) -> Iterator[RenderableType]:
    """The whole page."""
    problem = result.pipeline.problem
    name = plain(problem.graph.name or "the network", 60).plain
    yield Text(f"{name}: schedule {problem.schedule}, simulated", style="bold")
    if result.batch_ms is not None and result.predicted_batch_ms is not None:
        count = plural(problem.micro_batches or 0, "micro-batch")
        yield Text(
            f"A batch of {count} takes "
            f"{format_ms(result.batch_ms)}, predicted {format_ms(result.predicted_batch_ms)}."
        )
    for line in verdict:
        yield Text(line)
    yield Text()
    over = "the batch" if result.batch_ms is not None else "the steady part"
    yield Text(f"How GPUs spend {over}, and the most that one of each stage held", style="bold")
    yield Padding(_Stages(result), (0, 0, 0, 2))
    if result.ports:
        yield Text()
        yield Text("The busiest ports", style="bold")
        yield Padding(_ports(result), (0, 0, 0, 2))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


_HEADINGS: Final = (
    ("stage", "stage"),
    ("GPUs", "GPUs"),
    ("forward", "for-\nward"),
    ("backward", "back-\nward"),
    ("all-reduce", "all-\nreduce"),
    ("bubble", "bubble"),
    ("in flight", "in\nflight"),
    ("versions", "ver-\nsions"),
    ("queued", "queued"),
    ("memory", "memory"),
)
"""Of the table of stages: where there is room, and where there is not."""
_ROOMY: Final = 96
"""Columns of a terminal from which there is room."""


class _Stages:
    """How the GPUs of each stage spend their time, and what they held."""

    def __init__(self, result: Simulation) -> None:
        self.result = result

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        roomy = options.max_width >= _ROOMY
        table = Table(box=None, pad_edge=False, padding=(0, 1) if roomy else (0, 1, 0, 0))
        for wide, narrow in _HEADINGS:
            table.add_column(wide if roomy else narrow, justify="right", no_wrap=True)
        for s, share in enumerate(self.result.stages):
            table.add_row(
                str(s),
                str(self.result.pipeline.plan.stages[s].replicas),
                *map(_percent, (share.forward, share.backward, share.sync, share.bubble)),
                str(share.peak_in_flight),
                str(share.peak_versions),
                str(share.peak_waiting),
                format_bytes(share.peak_bytes),
            )
        yield table


def _ports(result: Simulation) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("port")
    for name in ("busy", "transfers", "all-reduce"):
        table.add_column(name, justify="right")
    cluster = result.pipeline.problem.cluster
    busiest = sorted(result.ports, key=lambda x: (-x.busy, x.port))[:_PORTS]
    for share in busiest:
        way = "" if share.port.direction == "both" else f", {share.port.direction}"
        table.add_row(
            f"{cluster.port_name(share.port.level, share.port.child)}{way}",
            *map(_percent, (share.busy, share.transfer, share.sync)),
        )
    return table
