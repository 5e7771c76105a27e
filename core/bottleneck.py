"""What sets the period of a plan, in words."""

from dataclasses import dataclass

from pipeplan.core.cost import Evaluation
from pipeplan.core.nested_cost import LevelTime, limiting_stages
from pipeplan.core.plan import Plan
from pipeplan.core.problem import Problem
from pipeplan.core.units import format_ms, format_rate

__all__ = ["Bottleneck", "bottleneck", "level_limits"]


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
    """Name the busiest device or port under `topology`, and what it is busy with."""
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


def level_limits(problem: Problem, plan: Plan) -> list[str]:
    """What sets the period of a nested plan under its own cost model: a sentence a level, outermost
    first. Empty for a plan without levels."""
    if plan.nested is None:
        return []
    return [_level_limit(problem, found) for found in limiting_stages(problem, plan)]


def _level_limit(problem: Problem, found: LevelTime) -> str:
    what = {1: "GPU", 2: "server"}.get(found.level, f"level-{found.level} group")
    many, m = found.first < found.last, found.stage.replicas
    who = f"stages {found.first}-{found.last} take" if many else f"stage {found.first} takes"
    where = f"Level {found.level}, {what}s"
    if found.period_ms == found.transfer_ms > 0:
        rate = format_rate(problem.cluster.levels[found.level - 1].bandwidth_bytes_per_s)
        return (
            f"{where}: {who} {format_ms(found.transfer_ms)} for the activations and gradients at "
            f"an end, over {m} x {rate}."
        )
    inner = {2: "GPU", 3: "server"}.get(found.level, f"level-{found.level - 1} group")
    inside = "of compute" if found.level == 1 else f"on the {inner}s of one {what}"
    text = f"{where}: {who} {format_ms(found.inside_ms)} {inside}"
    if found.all_reduce_ms:
        text += f" + {format_ms(found.all_reduce_ms)} of all-reduce"
    return text + (f", shared by {m} {what}s: {format_ms(found.period_ms)}." if m > 1 else ".")
