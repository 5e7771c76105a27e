"""What a rank held over time, from the log of a run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

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
    series = _series(_changes(pipeline, run))
    if not len(series.rank):
        return {}
    # By rank and number of older versions the most micro-batches held with them, -1 for none: the
    # price grows with what is held.
    most = np.full((series.rank.max() + 1, series.older.max() + 1), -1, dtype=np.int64)
    np.maximum.at(most, (series.rank, series.older), series.held)
    prices = _prices(pipeline)
    out: dict[int, Peak] = {}
    for rank in np.flatnonzero(most.max(axis=1) >= 0).tolist():
        price = prices[pipeline.plan.stage_of_rank[rank]]
        met = [(held, older) for older, held in enumerate(most[rank].tolist()) if held >= 0]
        held, older = max(x[0] for x in met), met[-1][1]
        out[rank] = Peak(rank, held, older, max(price.total(*x) for x in met))
    return out


def holdings(pipeline: Pipeline, run: Run, ranks: Sequence[int]) -> list[tuple[Holding, ...]]:
    """The memory of each of `ranks` at every change, in order of time.

    The price of a micro-batch, a version and the constant part are those of `core.memory`; how many
    there are is what the run did. An update is applied when the next forward pass wants the newest
    weights; from then on the older version is kept until the last micro-batch that began under it
    has finished.
    """
    series = _series(_changes(pipeline, run))
    prices = _prices(pipeline)
    out: list[tuple[Holding, ...]] = []
    for rank in ranks:
        price = prices[pipeline.plan.stage_of_rank[rank]]
        own = slice(*np.searchsorted(series.rank, (rank, rank + 1)))
        times, held, older = (x[own].tolist() for x in (series.time_ms, series.held, series.older))
        # Of several changes at one time the last counts.
        last = {time_ms: (h, o) for time_ms, h, o in zip(times, held, older, strict=True)}
        out.append(tuple(Holding(t, h, o, price.total(h, o)) for t, (h, o) in last.items()))
    return out


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


@dataclass(frozen=True, slots=True)
class _Changes:
    """Rank, time, kind and micro-batch of everything that changes what a rank holds."""

    rank: NDArray[np.int64]
    time_ms: NDArray[np.float64]
    kind: NDArray[np.int64]
    micro_batch: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Series:
    """After every begin and finish, by rank and time: micro-batches held, older versions kept."""

    rank: NDArray[np.int64]
    time_ms: NDArray[np.float64]
    held: NDArray[np.int64]
    older: NDArray[np.int64]


def _changes(pipeline: Pipeline, run: Run) -> _Changes:
    """All changes of a run, by rank and time.

    Of what happens to a rank at one moment, finishing comes first, then the update, then beginning:
    that is the order of one device.
    """
    log = run.operations
    passes = np.flatnonzero(np.asarray(log.kind) <= BACKWARD)
    begins = np.asarray(log.kind)[passes] == FORWARD
    start_ms, end_ms = np.asarray(log.start_ms)[passes], np.asarray(log.end_ms)[passes]
    updates = () if pipeline.problem.synchronous else run.updates
    rank = np.append(np.asarray(log.rank)[passes], _integers(r for r, _ in updates))
    time_ms = np.append(np.where(begins, start_ms, end_ms), [t for _, t in updates])
    kind = np.append(np.where(begins, _BEGIN, _FINISH), _integers(_UPDATE for _ in updates))
    micro_batch = np.append(np.asarray(log.micro_batch)[passes], _integers(-1 for _ in updates))
    order = np.lexsort((micro_batch, kind, time_ms, rank))
    return _Changes(rank[order], time_ms[order], kind[order], micro_batch[order])


def _integers(values: Iterable[int]) -> NDArray[np.int64]:
    return np.fromiter(values, dtype=np.int64)


def _series(changes: _Changes) -> _Series:
    begins = np.flatnonzero(changes.kind == _BEGIN)
    ends = np.flatnonzero(changes.kind == _FINISH)
    # Every rank ends with nothing, so that running counts need no restart between ranks.
    held = np.zeros(len(changes.rank), dtype=np.int64)
    held[begins] = 1
    held[ends] = -1
    np.cumsum(held, out=held)
    older = np.cumsum(_version_changes(changes, begins, ends))
    shown = changes.kind != _UPDATE
    return _Series(changes.rank[shown], changes.time_ms[shown], held[shown], older[shown])


def _version_changes(
    changes: _Changes, begins: NDArray[np.intp], ends: NDArray[np.intp]
) -> NDArray[np.int64]:
    """+1 where a version becomes an older one that is still in use, -1 where its use ends.

    A version is in use from the first micro-batch that begins under it to the last of these that
    finishes; it is older from the moment that one begins under a later version.
    """
    out = np.zeros(len(changes.rank), dtype=np.int64)
    if not len(begins):
        return out
    rank, micro_batch = changes.rank, changes.micro_batch
    finish = np.empty(len(begins), dtype=np.int64)
    finish[np.lexsort((micro_batch[begins], rank[begins]))] = ends[
        np.lexsort((micro_batch[ends], rank[ends]))
    ]
    user, version = rank[begins], np.cumsum(changes.kind == _UPDATE)[begins]
    first = np.flatnonzero((np.diff(version, prepend=-1) != 0) | (np.diff(user, prepend=-1) != 0))
    last_finish = np.maximum.reduceat(finish, first)[:-1]
    overtaken = begins[first[1:]]
    older = (user[first[1:]] == user[first[:-1]]) & (overtaken < last_finish)
    out[overtaken[older]] += 1  # no two are overtaken, or out of use, at once
    out[last_finish[older]] -= 1
    return out
