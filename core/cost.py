"""The cost specification: what a plan costs under its problem. Every backend's claim is judged here."""

from dataclasses import dataclass

from pipeplan.core.memory import StageMemory, stage_memory
from pipeplan.core.nested_cost import evaluate_nested, pipedream_data_parallel_ms
from pipeplan.core.plan import Plan, Stage
from pipeplan.core.problem import Problem
from pipeplan.core.topology import TopologyCost, evaluate_topology

__all__ = ["Baselines", "Evaluation", "baselines", "evaluate"]


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
    """Objective of the two plans anyone could write down, in ms; None where the plan is none.

    `data_parallel_ms` is one stage on all devices; it is shown even where it does not fit memory.
    """

    one_device_ms: float
    data_parallel_ms: float


def evaluate(problem: Problem, plan: Plan) -> Evaluation:
    """Price a plan; it must partition the graph, but need not fit memory or the scope.

    A plan without level-wise structure (one that a person brings) is priced by `topology` alone,
    whatever the problem's cost model. Sums are exactly rounded (`math.fsum`) or of integers.
    """
    topology = evaluate_topology(problem, plan)
    if problem.scope == "nested" and plan.nested is not None:
        period = objective = evaluate_nested(problem, plan)
    else:
        period = topology.period_ms
        objective = period if topology.batch_ms is None else topology.batch_ms
    return Evaluation(objective, period, topology, stage_memory(problem, plan))


def baselines(problem: Problem) -> Baselines:
    """One device, and one stage on every device, under the problem's own cost model."""
    everything = tuple(range(len(problem.graph)))
    one = Plan((Stage(everything, (0,)),))
    spread = Plan((Stage(everything, tuple(range(problem.cluster.devices))),))
    if problem.cost_model == "pipedream":
        data_parallel = pipedream_data_parallel_ms(problem)
    elif problem.cost_model == "levelwise":
        data_parallel = _levelwise_data_parallel_ms(problem)
    else:
        data_parallel = evaluate(problem, spread).objective_ms
    return Baselines(evaluate(problem, one).objective_ms, data_parallel)


def _levelwise_data_parallel_ms(problem: Problem) -> float:
    """The nested plan that replicates everything at every level."""
    from pipeplan.core.plan import NestedStage, nested_plan

    everything = tuple(range(len(problem.graph)))
    stages: tuple[NestedStage, ...] = ()
    for level in problem.cluster.levels:
        stages = (NestedStage(everything, level.children, stages),)
    return evaluate_nested(problem, nested_plan(problem.cluster, stages))
