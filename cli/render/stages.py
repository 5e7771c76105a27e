"""The merged table: every stage with its layers, ranks, times and memory, at any width."""

from collections.abc import Iterable
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from pipeplan.cli.render.terminal import plain
from pipeplan.cli.render.words import milliseconds, ranges
from pipeplan.core.codec import PlanFile
from pipeplan.core.units import format_bytes, plural

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
    limit: str


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
                sync=milliseconds(cost.full_sync_ms if problem.synchronous else cost.sync_ms),
                transfer=milliseconds(cost.transfer_ms),
                in_flight=str(memory.in_flight),
                memory=format_bytes(memory.peak_bytes),
                limit="" if limit is None else f"of {format_bytes(limit)}",
            )
        )
    return rows


class StageTable:
    """One table where the width allows, a block a stage where it does not."""

    def __init__(self, rows: list[StageRow]) -> None:
        self.rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for roomy in (True, False):
            columns = _columns(self.rows, roomy=roomy)
            gap = 2 if roomy else 1
            if sum(x.least for x in columns) + gap * (len(columns) - 1) <= options.max_width:
                yield _table(columns, roomy=roomy)
                return
        yield Group(*(_block(row) for row in self.rows))


@dataclass(frozen=True, slots=True)
class _Column:
    """One column: its heading, its cells, and the width below which it must not go."""

    heading: str
    cells: list[Text]
    least: int
    right: bool = False


def _columns(rows: list[StageRow], *, roomy: bool) -> list[_Column]:
    """Roomy: one line a heading, ids unbroken. Otherwise headings and memory take two lines."""

    def figures(wide: str, narrow: str, cells: Iterable[str]) -> _Column:
        heading = wide if roomy else narrow
        texts = [Text(cell) for cell in cells]
        return _Column(heading, texts, max(_longest(Text(heading)), *map(_longest, texts)), True)

    def lists(wide: str, narrow: str, cells: list[list[str]]) -> _Column:
        heading = wide if roomy else narrow
        pieces = max(len(piece) + 1 for cell in cells for piece in cell)
        texts = [Text(", ".join(cell)) for cell in cells]
        return _Column(heading, texts, max(_longest(Text(heading)), pieces))

    layers = [_layers(row) for row in rows]
    unbroken = max(max(map(_longest, layers)), 6)
    pieces = max(len(piece) + 1 for row in rows for piece in (*row.layers, f"({row.count})"))
    return [
        figures("stage", "stage", (str(x.number) for x in rows)),
        _Column("layers", layers, unbroken if roomy else max(min(unbroken, 12), pieces, 6)),
        figures("replicas", "rep-\nlicas", (str(x.replicas) for x in rows)),
        lists("ranks", "ranks", [x.ranks for x in rows]),
        lists("servers", "ser-\nvers", [x.servers for x in rows]),
        figures("compute ms", "comp.\nms", (x.compute for x in rows)),
        figures("sync ms", "sync\nms", (x.sync for x in rows)),
        figures("transfer ms", "trans-\nfer ms", (x.transfer for x in rows)),
        figures("in flight", "in\nflight", (x.in_flight for x in rows)),
        figures(
            f"memory {rows[0].limit}".strip(),
            f"memory\n{rows[0].limit}".strip(),
            (x.memory for x in rows),
        ),
    ]


def _table(columns: list[_Column], *, roomy: bool) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        padding=(0, 1, 0, 0) if roomy else (0, 0),
    )
    for column in columns:
        table.add_column(
            column.heading,
            justify="right" if column.right else "left",
            min_width=column.least,
            overflow="fold",
        )
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*cells)
    return table


def _longest(text: Text) -> int:
    """Width of the longest line."""
    return max(cell_len(line) for line in text.plain.split("\n"))


def _layers(row: StageRow) -> Text:
    """Indices, how many they are, and the ids at both ends."""
    text = Text(f"{', '.join(row.layers)} ({row.count})\n")
    text.append_text(plain(row.first, 60))
    if row.count > 1:
        text.append(" to ")
        text.append_text(plain(row.last, 60))
    return text


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
    grid.add_row("memory", f"{row.memory} {row.limit}".strip())
    return grid
