"""The clusters and questions that references and the fidelity table are made of."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from pipeplan.core.cluster import Cluster
from pipeplan.core.graph import LayerGraph
from pipeplan.core.problem import Problem
from pipeplan.core.schedule import SCHEDULES, Schedule, is_synchronous
from pipeplan.core.units import format_bytes, format_rate

__all__ = [
    "CLUSTERS",
    "MICRO_BATCHES",
    "NamedCluster",
    "named",
    "reference_problems",
    "scheduled_problems",
]

MICRO_BATCHES: Final = 32
"""Micro-batches a batch of the synchronous questions."""


@dataclass(frozen=True, slots=True)
class NamedCluster:
    """A cluster with the name that tables give it."""

    name: str
    cluster: Cluster


def named(cluster: Cluster, name: str | None = None) -> NamedCluster:
    """A cluster under a short name: 8,2 at 10 GB/s and 1.25 GB/s, or `name`, and what it limits."""
    if name is None:
        children = ",".join(str(level.children) for level in cluster.levels)
        rates = [format_rate(level.bandwidth_bytes_per_s) for level in cluster.levels]
        name = f"{children} at {' and '.join(rates)}"
    if cluster.memory_bytes is not None:
        name += f", {format_bytes(cluster.memory_bytes)} a GPU"
    if cluster.duplex == "half":
        name += ", half duplex"
    return NamedCluster(name, cluster)


CLUSTERS: Final = (
    NamedCluster("4 GPUs, 10 GB/s", Cluster.of((4,), (10e9,))),
    NamedCluster("2x8, 4 and 2 GiB/s", Cluster.of((8, 2), (4 * 2.0**30, 2 * 2.0**30))),
    NamedCluster("4x4, 10 and 1.25 GB/s", Cluster.of((4, 4), (10e9, 1.25e9))),
    NamedCluster("8x8, 300 and 25 GB/s", Cluster.of((8, 8), (300e9, 25e9))),
)
"""One server; the question of the README; a slow network; a fast one with 64 GPUs."""


def scheduled_problems(graph: LayerGraph) -> Iterator[tuple[NamedCluster, Schedule, Problem]]:
    """The joint question on every cluster under every schedule."""
    for named in CLUSTERS:
        for schedule in SCHEDULES:
            batch = MICRO_BATCHES if is_synchronous(schedule) else None
            yield (
                named,
                schedule,
                Problem(graph, named.cluster, schedule=schedule, micro_batches=batch),
            )


def reference_problems(graph: LayerGraph) -> Iterator[Problem]:
    """What is recorded of a profile: scopes, cost models, schedules, and memory that is short."""
    small, question, slow = (x.cluster for x in CLUSTERS[:3])
    yield Problem(graph, small)
    yield Problem(graph, question)
    yield Problem(graph, small, schedule="1f1b", micro_batches=MICRO_BATCHES)
    yield Problem(graph, question, scope="nested", cost_model="levelwise")
    yield Problem(
        graph, question, scope="nested", cost_model="pipedream", activation_compression_ratio=1.0
    )
    yield Problem(graph, slow, scope="nested", cost_model="levelwise")
    # Four devices that together hold half again what the model with its optimizer takes: few plans
    # fit, or none, which is an answer to be kept as well.
    kept = sum(layer.kept_bytes for layer in graph.layers)
    short = (3 * (4 * graph.total_parameter_bytes + kept)) // 8
    yield Problem(graph, replace(small, memory_bytes=max(1, short)))
