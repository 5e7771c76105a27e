"""What a run took, from the files that its ranks wrote, beside what the plan predicts."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pipeplan.core.codec import PlanFile
from pipeplan.core.errors import PipeplanError

__all__ = ["MeasuredRun", "StageMeasure", "read_run"]


@dataclass(frozen=True, slots=True)
class StageMeasure:
    """Busy time of a stage's devices per micro-batch of the pipeline, in ms; None: not measured."""

    stage: int
    forward_ms: float | None
    backward_ms: float | None
    predicted_ms: float

    @property
    def compute_ms(self) -> float | None:
        """Forward and backward together, which is what `predicted_ms` predicts."""
        if self.forward_ms is None or self.backward_ms is None:
            return None
        return self.forward_ms + self.backward_ms


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A whole run. The first step warms up and is not in any time."""

    losses: tuple[float, ...]
    first_step: int
    stages: tuple[StageMeasure, ...]
    period_ms: float | None
    """Median over the steps of the mean time between two micro-batches that the last stage ends."""
    predicted_period_ms: float
    step_ms: float | None
    predicted_step_ms: float | None


def read_run(folder: Path, file: PlanFile, micro_batches: int) -> MeasuredRun:
    """Read one file a rank; raises PipeplanError where a rank of the plan left none."""
    ranks: dict[int, list[dict[str, Any]]] = {}
    for rank in sorted(file.plan.stage_of_rank):
        path = folder / f"rank_{rank}.json"
        try:
            ranks[rank] = json.loads(path.read_text())["steps"]
        except (OSError, ValueError, KeyError) as error:
            raise PipeplanError(f"rank {rank} left no record of its run: {error}") from None
    last = file.plan.stages[-1].ranks
    losses = tuple(entry["loss"] for entry in ranks[last[0]])
    timed = {rank: steps[1:] for rank, steps in ranks.items()}
    count = len(timed[last[0]])
    cost = file.evaluation.topology
    return MeasuredRun(
        losses=losses,
        first_step=ranks[last[0]][0]["step"] if losses else 0,
        stages=tuple(
            StageMeasure(
                s,
                _per_micro_batch([timed[r] for r in stage.ranks], "forward_s", micro_batches),
                _per_micro_batch([timed[r] for r in stage.ranks], "backward_s", micro_batches),
                cost.stages[s].compute_ms,
            )
            for s, stage in enumerate(file.plan.stages)
        ),
        period_ms=_period_ms([timed[r] for r in last], count),
        predicted_period_ms=cost.period_ms,
        step_ms=median(x["seconds"] * 1e3 for x in timed[last[0]]) if count else None,
        predicted_step_ms=cost.batch_ms,
    )


def _per_micro_batch(
    replicas: list[list[dict[str, Any]]], key: str, micro_batches: int
) -> float | None:
    """Seconds of all replicas over all micro-batches, shared by the replicas, in ms."""
    steps = len(replicas[0])
    if not steps:
        return None
    total = math.fsum(entry[key] for entries in replicas for entry in entries)
    return total / (steps * micro_batches) / len(replicas) * 1e3


def _period_ms(replicas: list[list[dict[str, Any]]], steps: int) -> float | None:
    periods = []
    for step in range(steps):
        ends = sorted(t for entries in replicas for t in entries[step]["finished"])
        if len(ends) > 1:
            periods.append((ends[-1] - ends[0]) / (len(ends) - 1) * 1e3)
    return median(periods) if periods else None
