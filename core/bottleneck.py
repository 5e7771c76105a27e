"""The busiest resource of a plan under `topology`, in words."""

from dataclasses import dataclass

from pipeplan.core.cost import Evaluation
from pipeplan.core.plan import Plan
from pipeplan.core.problem import Problem
from pipeplan.core.units import format_ms, format_rate

__all__ = ["Bottleneck", "bottleneck"]


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """`kind` is `device` or `port`; `stage` names a device's stage, `level` and `child` a port."""

    kind: str
    stage: int | None
    level: int | None
    child: int | None
    busy_ms: float
    text: str


def bottleneck(problem: Problem, plan: Plan, evaluation: Evaluation) -> Bottleneck:
    """Name what sets the period, and what it is busy with."""
    cost = evaluation.topology
    if cost.bottleneck_stage is not None:
        s = cost.bottleneck_stage
        times = cost.stages[s]
        counted = times.sync_ms > 0 and not problem.overlap_sync
        busy = f"{format_ms(times.compute_ms)} of compute"
        if counted:
            busy += f" + {format_ms(times.sync_ms)} of all-reduce"
        who = (
            f"the GPU of stage {s} (rank {plan.stages[s].ranks[0]})"
            if plan.stages[s].replicas == 1
            else f"each of the {plan.stages[s].replicas} GPUs of stage {s}"
        )
        return Bottleneck("device", s, None, None, cost.period_ms, f"{who}: {busy} per micro-batch")
    assert cost.bottleneck_port is not None
    level, child = cost.bottleneck_port
    port = next(p for p in cost.ports if (p.level, p.child) == (level, child))
    rate = format_rate(problem.cluster.levels[level - 1].bandwidth_bytes_per_s)
    text = (
        f"the {problem.cluster.port_name(level, child)} ({rate}): {format_ms(port.sync_ms)} of "
        f"all-reduce + {format_ms(port.transfer_ms)} of activations and gradients per micro-batch"
    )
    return Bottleneck("port", None, level, child, cost.period_ms, text)
