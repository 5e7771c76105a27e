"""What crosses from stage to stage, and which stage reads each network input first."""

from collections.abc import Sequence

from pipeplan.core.graph import GraphInput, LayerGraph

__all__ = ["crossing_bytes", "first_read_inputs"]

Stages = Sequence[Sequence[int]]
"""Layer indices of each stage, in pipeline order; every layer in exactly one."""


def _stage_of(graph: LayerGraph, stages: Stages) -> list[int]:
    stage_of = [0] * len(graph)
    for s, layers in enumerate(stages):
        for v in layers:
            stage_of[v] = s
    return stage_of


def crossing_bytes(graph: LayerGraph, stages: Stages) -> tuple[int, ...]:
    """Bytes that cross after each stage but the last, one way, before compression.

    A tensor crosses every cut between its producer and the last of its consumers, once each
    (DESIGN 4.1): `graph.cut_bytes` of each prefix, in time linear in the graph.
    """
    stage_of = _stage_of(graph, stages)
    change = [0] * (len(stages) + 1)
    for v, consumers in enumerate(graph.consumers):
        if consumers:
            change[stage_of[v]] += graph.layers[v].output_bytes
            last = max(stage_of[v], max(stage_of[w] for w in consumers))
            change[last] -= graph.layers[v].output_bytes
    out: list[int] = []
    crossing = 0
    for step in change[: len(stages) - 1]:
        crossing += step
        out.append(crossing)
    return tuple(out)


def first_read_inputs(graph: LayerGraph, stages: Stages) -> tuple[tuple[GraphInput, ...], ...]:
    """For each stage, the network inputs that it is the first to read (DESIGN 6); an input that no
    layer reads belongs to none."""
    stage_of = _stage_of(graph, stages)
    out: list[list[GraphInput]] = [[] for _ in stages]
    for item in graph.inputs:
        if item.consumers:
            out[min(stage_of[graph.index[x]] for x in item.consumers)].append(item)
    return tuple(map(tuple, out))
