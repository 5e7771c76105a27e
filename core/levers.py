"""What would make a plan faster, and what would not: the same plan priced with one thing changed.

Every figure is `core.cost` under `topology`, for the plan as it is: with the thing really changed,
another plan may be better still.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from pipeplan.core.cluster import MAX_BYTES_PER_S, Cluster
from pipeplan.core.cost import evaluate
from pipeplan.core.graph import LayerGraph
from pipeplan.core.plan import Plan, Stage
from pipeplan.core.problem import Constraints, Problem
from pipeplan.core.units import format_rate

__all__ = ["Lever", "levers", "on_topology"]

_MOST_TRIED: Final = 8
"""Places for one more replica that are priced, busiest stages first: each costs an evaluation."""


@dataclass(frozen=True, slots=True)
class Lever:
    """A change in words, and the objective in ms that the plan would then have."""

    text: str
    objective_ms: float


def on_topology(problem: Problem) -> Problem:
    """The same question priced by `topology`, free of constraints: for pricing alone."""
    return replace(
        problem,
        scope="joint",
        cost_model="topology",
        use_fewer_machines=False,
        constraints=Constraints(),
    )


def levers(problem: Problem, plan: Plan) -> tuple[Lever, ...]:
    """Each change that can be made to this question, best first."""
    asked = on_topology(problem)
    bare = Plan(plan.stages)
    found = [Lever(text, evaluate(changed, bare).objective_ms) for text, changed in _changes(asked)]
    spread = _one_more_replica(asked, bare)
    if spread is not None:
        found.append(spread)
    return tuple(sorted(found, key=lambda lever: lever.objective_ms))


def _changes(problem: Problem) -> Iterator[tuple[str, Problem]]:
    cluster, graph = problem.cluster, problem.graph
    for number, level in enumerate(cluster.levels, 1):
        rate = 2 * level.bandwidth_bytes_per_s
        if level.children > 1 and rate <= MAX_BYTES_PER_S:
            faster = replace(level, bandwidth_bytes_per_s=rate)
            levels = (*cluster.levels[: number - 1], faster, *cluster.levels[number:])
            yield (
                f"{_ports(number)} twice as fast ({_named(cluster, number, rate)})",
                replace(problem, cluster=replace(cluster, levels=levels)),
            )
    if cluster.duplex == "half":
        yield (
            "ports that send and receive at once (full duplex)",
            replace(problem, cluster=replace(cluster, duplex="full")),
        )
    yield "GPUs twice as fast", replace(problem, graph=_scaled(graph, 0.5))
    if not problem.overlap_sync and not problem.synchronous:
        yield "all-reduce while computing (--overlap-sync)", replace(problem, overlap_sync=True)
    if graph.total_parameter_bytes:
        yield (
            "no all-reduce at all (weights never synchronised)",
            replace(problem, graph=_unsynchronised(graph)),
        )


def _ports(level: int) -> str:
    return {1: "GPUs' ports", 2: "servers' ports"}.get(level, "groups' ports")


def _named(cluster: Cluster, level: int, rate: float) -> str:
    at = format_rate(rate)
    return f"level {level}, {at}" if len(cluster.levels) > 1 else at


def _scaled(graph: LayerGraph, factor: float) -> LayerGraph:
    layers = tuple(
        replace(x, forward_ms=x.forward_ms * factor, backward_ms=x.backward_ms * factor)
        for x in graph.layers
    )
    return replace(graph, layers=layers)


def _unsynchronised(graph: LayerGraph) -> LayerGraph:
    return replace(graph, layers=tuple(replace(x, parameter_bytes=0) for x in graph.layers))


def _one_more_replica(problem: Problem, plan: Plan) -> Lever | None:
    """The best use of one idle rank: busiest stages first, one server of each make-up."""
    idle = _idle_ranks(problem.cluster, plan)
    cost = evaluate(problem, plan).topology
    busiest = sorted(range(len(plan.stages)), key=lambda s: -cost.stages[s].compute_ms)
    best: Lever | None = None
    for s, rank in [(s, rank) for s in busiest for rank in idle][:_MOST_TRIED]:
        stage = plan.stages[s]
        grown = Stage(stage.layers, tuple(sorted((*stage.ranks, rank))))
        tried = Plan((*plan.stages[:s], grown, *plan.stages[s + 1 :]))
        objective = evaluate(problem, tried).objective_ms
        if best is None or objective < best.objective_ms:
            best = Lever(f"one more replica of stage {s}, on idle rank {rank}", objective)
    return best


def _idle_ranks(cluster: Cluster, plan: Plan) -> list[int]:
    """The first idle rank of one server of each make-up: servers that run the same are alike."""
    stage_of = plan.stage_of_rank
    size = cluster.devices_per_server
    found: dict[tuple[int | None, ...], int] = {}
    for server in range(cluster.servers):
        ranks = range(server * size, (server + 1) * size)
        first = next((rank for rank in ranks if rank not in stage_of), None)
        if first is not None:
            found.setdefault(tuple(stage_of.get(rank) for rank in ranks), first)
    return list(found.values())
