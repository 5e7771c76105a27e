"""Bounds on the objective that need no search."""

from typing import Final

from pipeplan.core.nested_cost import PipedreamGraph
from pipeplan.core.problem import Problem

__all__ = ["floor_ms", "longest_ms"]

_ROUNDING: Final = 1e-9
"""Relative room left for the rounding of sums."""


def floor_ms(problem: Problem) -> float:
    """A bound that holds for every plan: the work of all devices shared evenly; without replicas
    also the largest layer. Batches add the way of the first micro-batch through all stages."""
    graph = problem.graph
    if problem.cost_model == "pipedream":
        layers = sorted(PipedreamGraph(graph).kept)
    else:
        layers = list(range(len(graph)))
    total = graph.compute_ms(layers)
    period = total / problem.cluster.devices
    if problem.constraints.straight:
        period = max(period, *(graph.layers[v].compute_ms for v in layers))
    if problem.scope == "joint" and problem.micro_batches is not None:
        period = total + (problem.micro_batches - 1) * period
    return period * (1 - _ROUNDING)


def longest_ms(problem: Problem) -> float:
    """More than any period without all-reduce: everything on one device and through every port."""
    cluster = problem.cluster
    moved = sum(layer.output_bytes for layer in problem.graph.layers) * cluster.devices
    slowest = min(level.bandwidth_bytes_per_s for level in cluster.levels)
    return problem.graph.total_compute_ms + 4 * moved / problem.compression / slowest * 1e3
