"""The servers drawn: which rank sits where, and which stage it runs."""

from collections.abc import Iterator
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from pipeplan.cli.render.words import ranges
from pipeplan.core.cluster import Cluster
from pipeplan.core.plan import Plan

__all__ = ["IDLE", "Servers"]

IDLE: Final = "-"
_MOST_SERVERS: Final = 32
_MOST_RANKS: Final = 512
"""Up to these many, ranks are drawn one by one; beyond, each server is one line of ranges."""


class Servers:
    """Two lines a server, ranks above their stages; wrapped where the width demands it."""

    def __init__(self, cluster: Cluster, plan: Plan) -> None:
        self.cluster = cluster
        self.plan = plan

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.cluster.servers > _MOST_SERVERS or self.cluster.devices > _MOST_RANKS:
            yield from self._ranges()
        else:
            yield from self._drawn(options.max_width)

    def _labels(self) -> Iterator[tuple[int, str, range]]:
        size = self.cluster.devices_per_server
        for server in range(self.cluster.servers):
            yield server, f"server {server}", range(server * size, (server + 1) * size)

    def _drawn(self, width: int) -> Iterator[Text]:
        stage_of = self.plan.stage_of_rank
        cell = max(len(str(self.cluster.devices - 1)), len(str(len(self.plan.stages) - 1))) + 1
        label = len(f"server {self.cluster.servers - 1}") + 2
        a_line = max(1, (width - label - len("stage ")) // cell)
        for server, name, ranks in self._labels():
            yield from self._group_heading(server)
            for start in range(0, len(ranks), a_line):
                part = ranks[start : start + a_line]
                shown = [str(stage_of.get(rank, IDLE)) for rank in part]
                head = name if start == 0 else ""
                yield Text(
                    f"{head:<{label}}rank  " + "".join(f"{rank:>{cell}}" for rank in part),
                    no_wrap=True,
                )
                yield Text(
                    f"{'':<{label}}stage " + "".join(f"{stage:>{cell}}" for stage in shown),
                    no_wrap=True,
                    style="bold",
                )

    def _ranges(self) -> Iterator[Text]:
        stage_of = self.plan.stage_of_rank
        for server, name, ranks in self._labels():
            yield from self._group_heading(server)
            members: dict[int | None, list[int]] = {}
            for rank in ranks:
                members.setdefault(stage_of.get(rank), []).append(rank)
            parts = [
                f"{'idle' if stage is None else f'stage {stage}'} on {', '.join(ranges(own))}"
                for stage, own in members.items()
            ]
            yield Text(f"{name}: {'; '.join(parts)}")

    def _group_heading(self, server: int) -> Iterator[Text]:
        """Name the groups of levels above the servers where a new one begins."""
        sizes = self.cluster.group_sizes
        first = server * self.cluster.devices_per_server
        for level in range(len(self.cluster.levels), 2, -1):
            size = sizes[level - 1]
            if first % size == 0:
                yield Text(f"group {first // size} of level {level}")
