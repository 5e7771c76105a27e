"""A plan as its simulation sees it: times of passes, ports of links, steps of all-reduces."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pipeplan.core.cost import evaluate
from pipeplan.core.memory import stage_memory
from pipeplan.core.plan import Plan
from pipeplan.core.problem import Problem
from pipeplan.core.schedule import in_flight
from pipeplan.core.topology import TopologyCost, full_sync_ms, shares, sync_widths

__all__ = ["Link", "Pipeline", "Port", "SyncStep"]


@dataclass(frozen=True, slots=True, order=True)
class Port:
    """One direction of a port; at half duplex `direction` is `both` and there is only one."""

    level: int
    child: int
    direction: str


@dataclass(frozen=True, slots=True)
class Link:
    """The way of a message: ports in order with the time each is occupied, and the latency."""

    hops: tuple[tuple[int, float], ...]
    latency_ms: float


@dataclass(frozen=True, slots=True)
class SyncStep:
    """One level of a hierarchical all-reduce: every port is occupied for `ring_ms`."""

    ports: tuple[int, ...]
    ring_ms: float
    latency_ms: float


@dataclass(frozen=True)
class Pipeline:
    """Everything about a plan that a simulation needs, in ms per micro-batch of one replica."""

    problem: Problem
    plan: Plan

    @cached_property
    def price(self) -> TopologyCost:
        """What core.cost says of the plan: the prediction."""
        return evaluate(self.problem, self.plan).topology

    @cached_property
    def forward_ms(self) -> tuple[float, ...]:
        """Forward pass of one micro-batch, by stage."""
        layers = self.problem.graph.layers
        return tuple(math.fsum(layers[v].forward_ms for v in x.layers) for x in self.plan.stages)

    @cached_property
    def backward_ms(self) -> tuple[float, ...]:
        """Backward pass of one micro-batch, by stage."""
        layers = self.problem.graph.layers
        return tuple(math.fsum(layers[v].backward_ms for v in x.layers) for x in self.plan.stages)

    @cached_property
    def limits(self) -> tuple[int, ...]:
        """Micro-batches that a replica may hold, by stage: the plan's in-flight counts."""
        return tuple(x.in_flight for x in stage_memory(self.problem, self.plan))

    @cached_property
    def endless_limits(self) -> tuple[int, ...]:
        """The same where a batch never ends (a short one caps them by what it deals to a rank)."""
        out: list[int] = []
        remaining = self.plan.devices
        for stage in self.plan.stages:
            out.append(in_flight("pipedream", remaining, stage.replicas, None))
            remaining -= stage.replicas
        return tuple(out)

    @cached_property
    def moved_bytes(self) -> tuple[float, ...]:
        """What one micro-batch sends over each cut, one way, compressed."""
        return tuple(x / self.problem.compression for x in self.price.cut_bytes)

    @cached_property
    def full_sync_ms(self) -> tuple[float, ...]:
        """One whole all-reduce, by stage."""
        cluster, graph = self.problem.cluster, self.problem.graph
        return tuple(
            full_sync_ms(cluster, sync_widths(cluster, x.ranks), graph.parameter_bytes(x.layers))
            for x in self.plan.stages
        )

    @cached_property
    def ports(self) -> tuple[Port, ...]:
        """Every port direction of a rank that holds a stage, outer groups included."""
        cluster = self.problem.cluster
        directions = ("both",) if cluster.duplex == "half" else ("in", "out")
        found = {
            (level, rank // cluster.group_sizes[level - 1])
            for rank in self.plan.stage_of_rank
            for level in range(1, len(cluster.levels) + 1)
        }
        return tuple(Port(*place, way) for place in sorted(found) for way in directions)

    @cached_property
    def _port_index(self) -> dict[Port, int]:
        return {port: i for i, port in enumerate(self.ports)}

    def _port(self, level: int, child: int, direction: str) -> int:
        half = self.problem.cluster.duplex == "half"
        return self._port_index[Port(level, child, "both" if half else direction)]

    def link(self, source: int, target: int, size_bytes: float) -> Link:
        """The ports that a message between two ranks passes: up to their common group and down.

        A port of a level is passed where the ranks are in different children of that level.
        """
        cluster = self.problem.cluster
        apart = [
            level
            for level in range(1, len(cluster.levels) + 1)
            if source // cluster.group_sizes[level - 1] != target // cluster.group_sizes[level - 1]
        ]
        ways: Sequence[tuple[int, int, str]] = [
            *((level, source // cluster.group_sizes[level - 1], "out") for level in apart),
            *((level, target // cluster.group_sizes[level - 1], "in") for level in reversed(apart)),
        ]
        hops = tuple(
            (
                self._port(*way),
                size_bytes / cluster.levels[way[0] - 1].bandwidth_bytes_per_s * 1e3,
            )
            for way in ways
            if size_bytes
        )
        return Link(hops, math.fsum(cluster.levels[level - 1].latency_ms for level in apart))

    @cached_property
    def sync_steps(self) -> tuple[tuple[SyncStep, ...], ...]:
        """The all-reduce of each stage by level, innermost first; empty where none is due."""
        cluster, graph = self.problem.cluster, self.problem.graph
        out: list[tuple[SyncStep, ...]] = []
        for stage in self.plan.stages:
            weights = graph.parameter_bytes(stage.layers)
            steps: list[SyncStep] = []
            for level, q in enumerate(sync_widths(cluster, stage.ranks), 1):
                if q == 1 or not weights:
                    continue
                latency = 2 * (q - 1) * cluster.levels[level - 1].latency_ms
                alone = tuple(q if x == level else 1 for x in range(1, len(cluster.levels) + 1))
                children = sorted(shares(cluster, level, stage.ranks))
                ports = {self._port(level, c, way) for c in children for way in ("in", "out")}
                ring = full_sync_ms(cluster, alone, weights) - latency
                steps.append(SyncStep(tuple(sorted(ports)), ring, latency))
            out.append(tuple(steps))
        return tuple(out)
