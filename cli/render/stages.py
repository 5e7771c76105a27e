"""The merged table: every stage with its layers, ranks, times and memory, at any width."""

from collections.abc import Iterable
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from pipeplan.cli.render.terminal import plain
from pipeplan.cli.render.words import milliseconds, plural, ranges
from pipeplan.core.codec import PlanFile
from pipeplan.core.units import format_bytes

__all__ = ["StageRow", "StageTable", "stage_rows"]


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage as shown; lists are of pieces that must not be broken."""

    number: int
    layers: list[str]
    count: int
    first: str
    last: str
    replicas: int
    ranks: list[str]
    servers: list[str]
    compute: str
    sync: str
    transfer: str
    in_flight: str
    memory: str


def stage_rows(file: PlanFile) -> list[StageRow]:
    """The rows of a plan's table."""
    problem, plan, price = file.problem, file.plan, file.evaluation
    graph, cluster = problem.graph, problem.cluster
    limit = cluster.memory_bytes
    rows = []
    for s, (stage, cost, memory) in enumerate(
        zip(plan.stages, price.topology.stages, price.memory, strict=True)
    ):
        rows.append(
            StageRow(
                number=s,
                layers=ranges(stage.layers),
                count=len(stage.layers),
                first=graph.layers[stage.layers[0]].id,
                last=graph.layers[stage.layers[-1]].id,
                replicas=stage.replicas,
                ranks=ranges(stage.ranks),
                servers=ranges(sorted({cluster.server_of(rank) for rank in stage.ranks})),
                compute=milliseconds(cost.compute_ms),
                sync=milliseconds(cost.sync_ms),
                transfer=milliseconds(cost.transfer_ms),
                in_flight=str(memory.in_flight),
                memory=format_bytes(memory.peak_bytes)
                + ("" if limit is None else f" of {format_bytes(limit)}"),
            )
        )
    return rows


class StageTable:
    """One table where the width allows, a block a stage where it does not."""

    def __init__(self, rows: list[StageRow]) -> None:
        self.rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for roomy in (True, False):
            table = _table(self.rows, roomy=roomy)
            if Measurement.get(console, options.update(max_width=10_000), table).minimum <= (
                options.max_width
            ):
                yield table
                return
        yield Group(*(_block(row) for row in self.rows))


def _table(rows: list[StageRow], *, roomy: bool) -> Table:
    """Roomy: one line a heading and wide gaps. Otherwise headings and memory take two lines."""
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        padding=(0, 1) if roomy else (0, 0),
        collapse_padding=True,
    )
    table.add_column("stage", justify="right", no_wrap=True)
    table.add_column("layers", overflow="fold", min_width=_widest(x.layers for x in rows))
    table.add_column("replicas" if roomy else "rep-\nlicas", justify="right", no_wrap=True)
    table.add_column("ranks", min_width=_widest(x.ranks for x in rows))
    table.add_column(
        "servers" if roomy else "ser-\nvers", min_width=_widest(x.servers for x in rows)
    )
    for name, short in (
        ("compute ms", "comp.\nms"),
        ("sync ms", "sync\nms"),
        ("transfer ms", "trans-\nfer ms"),
        ("in flight", "in\nflight"),
    ):
        table.add_column(name if roomy else short, justify="right", no_wrap=True)
    table.add_column("memory", no_wrap=True)
    for row in rows:
        table.add_row(
            str(row.number),
            _layers(row),
            str(row.replicas),
            ", ".join(row.ranks),
            ", ".join(row.servers),
            row.compute,
            row.sync,
            row.transfer,
            row.in_flight,
            row.memory if roomy else row.memory.replace(" of ", "\nof "),
        )
    return table


def _layers(row: StageRow) -> Text:
    """Indices, how many they are, and the ids at both ends."""
    text = Text(f"{', '.join(row.layers)} ({row.count})\n")
    text.append_text(plain(row.first, 60))
    if row.count > 1:
        text.append(" to ")
        text.append_text(plain(row.last, 60))
    return text


def _widest(lists: Iterable[list[str]]) -> int:
    """Width under which no piece of any list, with its comma, is broken."""
    return max((len(piece) + 1 for pieces in lists for piece in pieces), default=1)


def _block(row: StageRow) -> RenderableType:
    """One stage in a terminal too narrow for a table."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text("stage", style="bold"), Text(str(row.number), style="bold"))
    grid.add_row("layers", _layers(row))
    grid.add_row("ranks", f"{', '.join(row.ranks)} ({plural(row.replicas, 'replica')})")
    grid.add_row("servers", ", ".join(row.servers))
    grid.add_row("ms", f"compute {row.compute}, sync {row.sync}, transfer {row.transfer}")
    grid.add_row("in flight", row.in_flight)
    grid.add_row("memory", row.memory)
    return grid
