"""A simulation on the terminal: verdict, how stages spend their time, the busiest ports."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
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
    yield Padding(_stages(result), (0, 0, 0, 2))
    if result.ports:
        yield Text()
        yield Text("The busiest ports", style="bold")
        yield Padding(_ports(result), (0, 0, 0, 2))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _stages(result: Simulation) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("stage", "GPUs", "forward", "backward", "all-reduce", "bubble"):
        table.add_column(name, justify="right")
    for name in ("in flight", "versions", "queued", "memory"):
        table.add_column(name, justify="right")
    for s, share in enumerate(result.stages):
        table.add_row(
            str(s),
            str(result.pipeline.plan.stages[s].replicas),
            *map(_percent, (share.forward, share.backward, share.sync, share.bubble)),
            str(share.peak_in_flight),
            str(share.peak_versions),
            str(share.peak_waiting),
            format_bytes(share.peak_bytes),
        )
    return table


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
