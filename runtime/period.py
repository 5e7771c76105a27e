"""The steady period of one step, from the logs of its ranks."""

from collections.abc import Mapping, Sequence

from pipeplan.core.plan import Plan
from pipeplan.runtime.schedule import Pass, SyncSchedule
from pipeplan.runtime.steplog import PassLine, StepLog

__all__ = ["spacing_s", "steady_period_s"]


def steady_period_s(
    plan: Plan, logs: Mapping[int, StepLog], schedule: SyncSchedule, cycle: int
) -> float | None:
    """Seconds per micro-batch while the pipeline is full; None where the step is too short for it.

    `logs` are those of all ranks of the plan, `cycle` the micro-batches after which the routing
    repeats itself. Under `1f1b`: what lies between two micro-batches that the first stage completes
    while it is still being fed. Under `gpipe`, which has two phases: between two forward passes
    that the last stage ends, plus between two backward passes that the first stage ends; it is what
    one more micro-batch takes.
    """
    first, last = (
        [line for rank in stage.ranks for line in logs[rank].passes]
        for stage in (plan.stages[0], plan.stages[-1])
    )
    back = _ends(first, "B")
    if schedule == "gpipe":
        forward_s, backward_s = spacing_s(_ends(last, "F"), cycle), spacing_s(back, cycle)
        return None if forward_s is None or backward_s is None else forward_s + backward_s
    fed_until_s = max((x.began_s for x in first if x.kind == "F"), default=0.0)
    return spacing_s([end for end in back if end <= fed_until_s], cycle)


def spacing_s(ends_s: Sequence[float], cycle: int) -> float | None:
    """Mean distance of moments over the later half, in whole cycles; over one cycle at least."""
    ordered = sorted(ends_s)
    span = max(len(ordered) // 2 // cycle, 1) * cycle
    if span >= len(ordered):
        return None
    return (ordered[-1] - ordered[-1 - span]) / span


def _ends(lines: Sequence[PassLine], kind: Pass) -> list[float]:
    return [x.ended_s for x in lines if x.kind == kind]
