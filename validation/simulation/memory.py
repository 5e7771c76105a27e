"""What a rank held over time, from the log of a run."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipeplan.core.memory import stage_memory
from pipeplan.validation.simulation.engine import BACKWARD, FORWARD, Run
from pipeplan.validation.simulation.pipeline import Pipeline

__all__ = ["Holding", "Peak", "holdings", "memory_peaks"]

_FINISH: Final = 0
_UPDATE: Final = 1
_BEGIN: Final = 2


@dataclass(frozen=True, slots=True)
class Holding:
    """A rank's memory from `time_ms` on: micro-batches held, older versions kept, bytes in all."""

    time_ms: float
    in_flight: int
    versions: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that a rank held of each, not necessarily at one time."""

    rank: int
    in_flight: int
    versions: int
    total_bytes: int


def memory_peaks(pipeline: Pipeline, run: Run) -> Mapping[int, Peak]:
    """The peaks of every rank that was dealt a micro-batch."""
    prices = _prices(pipeline)
    out: dict[int, Peak] = {}
    for rank, changes in _changes(pipeline, run).items():
        price = prices[pipeline.plan.stage_of_rank[rank]]
        held = older = total = 0
        for _, now_held, now_older in _states(changes):
            held = max(held, now_held)
            older = max(older, now_older)
            total = max(total, price.total(now_held, now_older))
        out[rank] = Peak(rank, held, older, total)
    return out


def holdings(pipeline: Pipeline, run: Run, rank: int) -> tuple[Holding, ...]:
    """One rank's memory at every change, in order of time.

    The price of a micro-batch, a version and the constant part are those of `core.memory`; how many
    there are is what the run did. An update is applied when the next forward pass wants the newest
    weights; from then on the older version is kept until the last micro-batch that began under it
    has finished.
    """
    price = _prices(pipeline)[pipeline.plan.stage_of_rank[rank]]
    series: list[Holding] = []
    for time_ms, held, older in _states(_changes(pipeline, run).get(rank, [])):
        now = Holding(time_ms, held, older, price.total(held, older))
        if series and series[-1].time_ms == time_ms:
            series[-1] = now
        else:
            series.append(now)
    return tuple(series)


@dataclass(frozen=True, slots=True)
class _Price:
    constant_bytes: int
    version_bytes: int
    each_bytes: int
    once_bytes: int

    def total(self, held: int, older: int) -> int:
        busy = held * self.each_bytes + self.once_bytes if held else 0
        return self.constant_bytes + older * self.version_bytes + busy


def _prices(pipeline: Pipeline) -> list[_Price]:
    problem = pipeline.problem
    graph = problem.graph
    out: list[_Price] = []
    for stage, base in zip(pipeline.plan.stages, stage_memory(problem, pipeline.plan), strict=True):
        kept = sum(graph.layers[v].kept_bytes for v in stage.layers)
        # With recompute only the inputs are kept for each, and one full set while any is held.
        each = (base.activation_bytes - kept) // base.in_flight if problem.recompute else kept
        once = kept if problem.recompute else 0
        out.append(_Price(base.weight_bytes, graph.parameter_bytes(stage.layers), each, once))
    return out


def _changes(pipeline: Pipeline, run: Run) -> dict[int, list[tuple[float, int, int]]]:
    """(time, kind, micro-batch) of every change, by rank.

    Of what happens at one moment, releases come first: that is the order of one device.
    """
    log = run.operations
    rank, kind = np.asarray(log.rank), np.asarray(log.kind)
    passes = np.flatnonzero(kind <= BACKWARD)
    begins = kind[passes] == FORWARD
    times = np.where(begins, np.asarray(log.start_ms)[passes], np.asarray(log.end_ms)[passes])
    out: dict[int, list[tuple[float, int, int]]] = {}
    for r, time_ms, begin, m in zip(
        rank[passes].tolist(),
        times.tolist(),
        begins.tolist(),
        np.asarray(log.micro_batch)[passes].tolist(),
        strict=True,
    ):
        out.setdefault(r, []).append((time_ms, _BEGIN if begin else _FINISH, m))
    if not pipeline.problem.synchronous:
        for r, time_ms in run.updates:
            out[r].append((time_ms, _UPDATE, -1))
    for changes in out.values():
        changes.sort()
    return dict(sorted(out.items()))


def _states(changes: list[tuple[float, int, int]]) -> Iterator[tuple[float, int, int]]:
    """(time, micro-batches held, older versions kept) after every change."""
    begun_under: dict[int, int] = {}
    users: Counter[int] = Counter()
    version = due = 0
    for time_ms, kind, micro_batch in changes:
        if kind == _UPDATE:
            due += 1
            continue
        if kind == _BEGIN:
            version = due
            begun_under[micro_batch] = version
            users[version] += 1
        else:
            under = begun_under.pop(micro_batch)
            users[under] -= 1
            if not users[under]:
                del users[under]
        yield time_ms, len(begun_under), len(users) - (version in users)
