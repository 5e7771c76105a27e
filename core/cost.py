"""The cost specification: what a plan costs under its problem; backends are judged by it."""

from dataclasses import dataclass

from pipeplan.core.memory import StageMemory, stage_memory
from pipeplan.core.nested_cost import (
    PipedreamGraph,
    evaluate_nested,
    pipedream_data_parallel_ms,
)
from pipeplan.core.plan import Plan, Stage, one_stage_nested
from pipeplan.core.problem import Problem
from pipeplan.core.topology import TopologyCost, evaluate_topology

__all__ = ["Baselines", "Evaluation", "baseline_fits", "baselines", "evaluate"]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A plan's price, in ms and bytes.

    `objective_ms` is what is minimised: the period of the problem's cost model, or the batch time
    for a joint plan under a synchronous schedule. `topology` is always given, whatever the cost
    model, since it is the closest to what the hardware will do.
    """

    objective_ms: float
    period_ms: float
    topology: TopologyCost
    memory: tuple[StageMemory, ...]


@dataclass(frozen=True, slots=True)
class Baselines:
    """Objective of the two plans anyone could write down, in ms.

    `data_parallel_ms` is one stage on all devices. Both are given even where memory is too small.
    """

    one_device_ms: float
    data_parallel_ms: float


def evaluate(problem: Problem, plan: Plan) -> Evaluation:
    """Price a plan; it must partition the graph, but need not fit memory or the scope.

    A plan without level-wise structure (one that a person brings) is priced by `topology` alone,
    whatever the problem's cost model. Sums are exactly rounded (`math.fsum`) or of integers.
    """
    topology = evaluate_topology(problem, plan)
    if problem.scope == "joint":
        period = topology.period_ms
        objective = period if topology.batch_ms is None else topology.batch_ms
    else:
        period = objective = (
            topology.period_ms if plan.nested is None else evaluate_nested(problem, plan)
        )
    return Evaluation(objective, period, topology, stage_memory(problem, plan))


def baselines(problem: Problem) -> Baselines:
    """One device, and one stage on every device, under the problem's own cost model."""
    graph = problem.graph
    if problem.cost_model == "pipedream":
        kept = PipedreamGraph(graph).kept
        return Baselines(graph.compute_ms(kept), pipedream_data_parallel_ms(problem))
    everything = tuple(range(len(graph)))
    one = evaluate(problem, Plan((Stage(everything, (0,)),))).objective_ms
    if problem.cost_model == "levelwise":
        return Baselines(one, _levelwise_data_parallel_ms(problem))
    spread = Plan((Stage(everything, tuple(range(problem.cluster.devices))),))
    return Baselines(one, evaluate(problem, spread).objective_ms)


def baseline_fits(problem: Problem, devices: int) -> bool:
    """Whether all layers in one stage on that many devices fit the memory."""
    limit = problem.cluster.memory_bytes
    stage = Stage(tuple(range(len(problem.graph))), tuple(range(devices)))
    return limit is None or stage_memory(problem, Plan((stage,)))[0].peak_bytes <= limit


def _levelwise_data_parallel_ms(problem: Problem) -> float:
    """The nested plan that replicates everything at every level."""
    everything = tuple(range(len(problem.graph)))
    widths = tuple(level.children for level in problem.cluster.levels)
    return evaluate_nested(problem, one_stage_nested(problem.cluster, everything, widths))
