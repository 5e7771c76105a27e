"""What a run took, from the files that its ranks wrote, beside what the plan predicts."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from pipeplan.core.codec import PlanFile
from pipeplan.core.errors import PipeplanError
from pipeplan.core.plan import Plan, Stage
from pipeplan.core.problem import Problem
from pipeplan.core.routing import micro_batch_paths, routing_cycle
from pipeplan.core.topology import TopologyCost, evaluate_topology, path_level, path_ms
from pipeplan.runtime.period import steady_period_s
from pipeplan.runtime.schedule import Pass, SyncSchedule
from pipeplan.runtime.steplog import StepLog

__all__ = ["CutMeasure", "MeasuredRun", "StageMeasure", "as_run", "read_run"]


@dataclass(frozen=True, slots=True)
class StageMeasure:
    """Where the time of a stage's ranks went, in ms per micro-batch of the pipeline: what a rank
    spent on a step, divided by the micro-batches of the step, mean over replicas and steps.

    Measured figures are None for a run of one step, which only warms up.
    """

    stage: int
    forward_ms: float | None
    backward_ms: float | None
    wait_ms: float | None
    """Free, and waiting for an activation or a gradient."""
    send_ms: float | None
    """Kept from the next pass by handing over messages."""
    sync_ms: float | None
    """All-reduce of gradients and buffers, the wait for the other replicas included."""
    update_ms: float | None
    """The optimizer's step, of which nothing is predicted."""
    predicted_forward_ms: float
    predicted_backward_ms: float
    predicted_wait_ms: float
    """What the predicted step leaves a rank without a pass or an all-reduce."""
    predicted_sync_ms: float

    @property
    def compute_ms(self) -> float | None:
        """Forward and backward together."""
        if self.forward_ms is None or self.backward_ms is None:
            return None
        return self.forward_ms + self.backward_ms

    @property
    def predicted_compute_ms(self) -> float:
        """Forward and backward together."""
        return self.predicted_forward_ms + self.predicted_backward_ms


@dataclass(frozen=True, slots=True)
class CutMeasure:
    """One message over the cut after a stage, in ms: from the end of the pass that made it to the
    beginning of the pass that reads it, median over those whose receiver was waiting before.

    None where none was. `predicted_ms` is that of either direction.
    """

    stage: int
    activation_ms: float | None
    gradient_ms: float | None
    predicted_ms: float


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A whole run. The first step warms up and is not in any time."""

    problem: Problem
    """The question that was run (see `as_run`)."""
    losses: tuple[float, ...]
    first_step: int
    stages: tuple[StageMeasure, ...]
    cuts: tuple[CutMeasure, ...]
    periods_ms: tuple[float, ...]
    """Steady time per micro-batch of each step; none where a step is too short to have a steady
    part (see `steady_period_s`)."""
    predicted_period_ms: float
    step_ms: float | None
    """A whole step with all-reduce and update, median over the steps."""
    predicted_step_ms: float

    @property
    def period_ms(self) -> float | None:
        """Median over the steps."""
        return median(self.periods_ms) if self.periods_ms else None


def as_run(problem: Problem, schedule: SyncSchedule, micro_batches: int) -> Problem:
    """The question that a run answers, whatever the plan was made for: the runtime is synchronous,
    and compresses nothing."""
    return Problem(
        problem.graph,
        problem.cluster,
        schedule=schedule,
        micro_batches=micro_batches,
        recompute=problem.recompute,
        weight_copies=problem.weight_copies,
    )


def read_run(folder: Path, file: PlanFile) -> MeasuredRun:
    """Read one file a rank; raises PipeplanError where a rank of the plan left none."""
    plan = file.plan
    documents = {rank: _document(folder, rank) for rank in sorted(plan.stage_of_rank)}
    ranks: dict[int, list[dict[str, Any]]] = {k: x["steps"] for k, x in documents.items()}
    said = documents[plan.stages[-1].ranks[0]]
    schedule: SyncSchedule = said["schedule"]
    problem = as_run(file.problem, schedule, said["micro_batches"])
    last = ranks[plan.stages[-1].ranks[0]]
    timed = {rank: steps[1:] for rank, steps in ranks.items()}
    logs = {rank: [StepLog.of(x) for x in steps] for rank, steps in timed.items()}
    cost = evaluate_topology(problem, plan)
    assert cost.batch_ms is not None  # synchronous
    cycle = routing_cycle(problem.cluster, plan)
    periods_s = [
        steady_period_s(plan, {rank: x[step] for rank, x in logs.items()}, schedule, cycle)
        for step in range(len(last) - 1)
    ]
    return MeasuredRun(
        problem=problem,
        losses=tuple(entry["loss"] for entry in last),
        first_step=last[0]["step"] if last else 0,
        stages=tuple(
            _stage(
                s,
                [x for rank in stage.ranks for x in timed[rank]],
                [x for rank in stage.ranks for x in logs[rank]],
                problem,
                stage,
                cost,
            )
            for s, stage in enumerate(plan.stages)
        ),
        cuts=_cuts(plan, logs, problem, cost),
        periods_ms=tuple(x * 1e3 for x in periods_s if x is not None),
        predicted_period_ms=cost.period_ms,
        step_ms=_median_ms(x["seconds"] for x in last[1:]),
        predicted_step_ms=cost.batch_ms,
    )


def _document(folder: Path, rank: int) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / f"rank_{rank}.json").read_text())
    except (OSError, ValueError) as error:
        raise PipeplanError(f"rank {rank} left no record of its run: {error}") from None
    return found


def _stage(
    s: int,
    entries: list[dict[str, Any]],
    logs: list[StepLog],
    problem: Problem,
    stage: Stage,
    cost: TopologyCost,
) -> StageMeasure:
    """Figures of one stage; `entries` and `logs` are those of all its replicas and steps."""
    assert problem.micro_batches is not None
    assert cost.batch_ms is not None
    m = problem.micro_batches

    def each(seconds: Sequence[float]) -> float | None:
        return math.fsum(seconds) / len(seconds) / m * 1e3 if seconds else None

    layers = [problem.graph.layers[v] for v in stage.layers]
    times = cost.stages[s]
    sync_ms = times.full_sync_ms / m
    return StageMeasure(
        stage=s,
        forward_ms=each([x.forward_s for x in logs]),
        backward_ms=each([x.backward_s for x in logs]),
        wait_ms=each([x.wait_s for x in logs]),
        send_ms=each([x.send_s for x in logs]),
        sync_ms=each([x["sync_s"] for x in entries]),
        update_ms=each([x["update_s"] for x in entries]),
        predicted_forward_ms=math.fsum(x.forward_ms for x in layers) / stage.replicas,
        predicted_backward_ms=math.fsum(x.backward_ms for x in layers) / stage.replicas,
        predicted_wait_ms=max(0.0, cost.batch_ms / m - times.compute_ms - sync_ms),
        predicted_sync_ms=sync_ms,
    )


def _cuts(
    plan: Plan, logs: Mapping[int, Sequence[StepLog]], problem: Problem, cost: TopologyCost
) -> tuple[CutMeasure, ...]:
    assert problem.micro_batches is not None
    paths = micro_batch_paths(problem.cluster, plan, problem.micro_batches)
    steps = min(map(len, logs.values()))
    taken_s: dict[tuple[Pass, int], list[float]] = {}
    for step in range(steps):
        lines = {(rank, x.kind, x.micro_batch): x for rank in logs for x in logs[rank][step].passes}
        for m, path in enumerate(paths):
            for s, (a, b) in enumerate(pairwise(path)):
                ways: tuple[tuple[Pass, int, int], ...] = (("F", a, b), ("B", b, a))
                for kind, sender, receiver in ways:
                    made, read = lines[sender, kind, m], lines[receiver, kind, m]
                    if read.free_s <= made.ended_s:
                        taken_s.setdefault((kind, s), []).append(read.began_s - made.ended_s)
    return tuple(
        CutMeasure(
            s,
            _median_ms(taken_s.get(("F", s), ())),
            _median_ms(taken_s.get(("B", s), ())),
            path_ms(problem, path_level(problem.cluster, x.ranks, y.ranks), size) / 2,
        )
        for s, ((x, y), size) in enumerate(zip(pairwise(plan.stages), cost.cut_bytes, strict=True))
    )


def _median_ms(seconds: Iterable[float]) -> float | None:
    found = list(seconds)
    return median(found) * 1e3 if found else None
