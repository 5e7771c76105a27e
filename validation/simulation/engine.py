"""The event loop: every rank a resource that is never idle while it may do something.

A free rank takes, in this order: its share of an all-reduce that is due, the oldest backward pass
that it has the gradient for, the oldest forward pass that it has the input for and room to keep
(1F1B without its fixed order, which would wait where it need not). A free port likewise takes
gradients before activations, and of each the oldest micro-batch first. Under gpipe a rank runs all
its forward passes before its first backward pass.
"""

import gc
from array import array
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from operator import attrgetter
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from pipeplan.core.errors import PipeplanError
from pipeplan.core.units import plural
from pipeplan.validation.simulation.network import Events, Network, PortBusy
from pipeplan.validation.simulation.options import SimulationOptions
from pipeplan.validation.simulation.pipeline import Link, Pipeline, SyncStep

__all__ = ["BACKWARD", "FORWARD", "SYNC", "Operations", "Run", "SyncWhen", "execute"]

FORWARD: Final = 0
BACKWARD: Final = 1
SYNC: Final = 2

SyncWhen = Literal["round", "end", "never"]
"""After every micro-batch of each replica, once when all are done, or not at all."""

_OUTSTANDING: Final = 3
"""All-reduces of a stage that may be under way before its ranks begin no further backward pass.

One being served, one waiting for the port and one for the skew of the replicas keep a port busy
without a gap; without any limit the gradients of a slow network would pile up for ever.
"""


@dataclass(frozen=True, slots=True)
class Operations:
    """What ranks did, as it began: rank, kind, micro-batch (of a SYNC: its round), start, end."""

    rank: "array[int]"
    kind: "array[int]"
    micro_batch: "array[int]"
    start_ms: "array[float]"
    end_ms: "array[float]"


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a number of micro-batches, empty pipeline to empty pipeline."""

    micro_batches: int
    operations: Operations
    ports: PortBusy
    updates: tuple[tuple[int, float], ...]
    """(rank, time) of every weight update, in order of time."""
    end_ms: float
    waiting_peak: tuple[int, ...]
    """By stage: the most inputs that one rank had received and not begun."""


def execute(
    pipeline: Pipeline,
    paths: Sequence[tuple[int, ...]],
    limits: Sequence[int],
    options: SimulationOptions,
    *,
    gpipe: bool,
    sync: SyncWhen,
    record_ports: bool = False,
) -> Run:
    """Run one micro-batch along each of `paths` (the rank of every stage) and return what happened.

    `limits` are the micro-batches that a rank may hold, by stage (gpipe has none).
    Raises PipeplanError where ranks come to wait for each other for ever.
    """
    engine = _Engine(pipeline, paths, limits, options, gpipe, sync, record_ports)
    # Millions of events and no cycles among them: collecting garbage would double the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return engine.run()
    finally:
        if collecting:
            gc.enable()


def _factors(options: SimulationOptions, count: int, stages: int) -> NDArray[np.float64] | None:
    """Slow-down of every pass, independent of the order in which they come to run."""
    if not options.jitter:
        return None
    sigma2 = np.log1p(options.jitter**2)
    draw = np.random.default_rng(options.seed).standard_normal((count, stages, 2))
    return np.asarray(np.exp(np.sqrt(sigma2) * draw - sigma2 / 2), dtype=np.float64)


class _Rank:
    """What one rank is doing and has to do: micro-batches that wait come as heaps."""

    __slots__ = (
        "backwards",
        "busy",
        "done",
        "forwarded",
        "forwards",
        "held",
        "lead",
        "limit",
        "number",
        "passes_ms",
        "peers",
        "stage",
        "syncs",
        "total",
    )

    def __init__(self, number: int, stage: int, passes_ms: tuple[float, float]) -> None:
        self.number = number
        self.stage = stage
        self.passes_ms = passes_ms
        """Forward and backward pass."""
        self.peers: dict[int, tuple[_Rank, Link]] = {}
        """By number: the ranks of the stages before and behind that it has sent to."""
        self.forwards: list[int] = []
        self.backwards: list[int] = []
        self.syncs: deque[_Collective] = deque()
        self.busy = False
        self.total = 0
        self.held = 0
        self.limit = 0
        self.lead = 0
        self.forwarded = 0
        self.done = 0


class _Collective:
    """One all-reduce of one stage."""

    __slots__ = ("arrived", "begun", "expected", "pending", "round", "stage", "step")

    def __init__(self, stage: int, number: int, expected: int) -> None:
        self.stage = stage
        self.round = number
        self.expected = expected
        self.arrived: list[_Rank] = []
        self.begun = 0
        self.step = -1
        self.pending = 0


class _Engine:
    def __init__(
        self,
        pipeline: Pipeline,
        paths: Sequence[tuple[int, ...]],
        limits: Sequence[int],
        options: SimulationOptions,
        gpipe: bool,
        sync: SyncWhen,
        record_ports: bool,
    ) -> None:
        self.pipeline = pipeline
        self.paths = paths
        self.gpipe = gpipe
        self.sync = sync
        self.overlap = pipeline.problem.overlap_sync
        self.barrier = options.barrier and sync == "round" and not self.overlap
        self.events = Events()
        self.network = Network(self.events, len(pipeline.ports), record=record_ports)
        self.last = len(pipeline.plan.stages) - 1
        self.factors = _factors(options, len(paths), self.last + 1)
        self.steps: tuple[tuple[SyncStep, ...], ...] = pipeline.sync_steps
        self.stages = self.make_ranks(limits, dict(options.stragglers))
        self.ranks = {x.number: x for stage in self.stages for x in stage}
        self.waiting_peak = [0] * len(self.stages)
        self.collectives: dict[tuple[int, int], _Collective] = {}
        self.outstanding = [0] * len(self.stages)
        self.due = [0] * len(self.stages)
        self.log: list[Any] = []
        self.updates: list[tuple[int, float]] = []
        self.end_ms = 0.0

    def make_ranks(self, limits: Sequence[int], slow: dict[int, float]) -> list[list[_Rank]]:
        """The ranks of every stage, with what they will be dealt."""
        dealt = [Counter(path[s] for path in self.paths) for s in range(self.last + 1)]
        out: list[list[_Rank]] = []
        for s, stage in enumerate(self.pipeline.plan.stages):
            times = self.pipeline.forward_ms[s], self.pipeline.backward_ms[s]
            paced = s == 0 and self.steps[0] and self.sync == "round"
            ranks: list[_Rank] = []
            for number in stage.ranks:
                factor = slow.get(number, 1.0)
                rank = _Rank(number, s, (times[FORWARD] * factor, times[BACKWARD] * factor))
                rank.total = dealt[s][number]
                # Under gpipe a rank keeps all that it is dealt; that may exceed the even share.
                rank.limit = rank.total if self.gpipe else limits[s]
                # A replica that is always fed must not leave a slow peer behind for good. Later
                # stages are fed in turn, and a limit there could make a replica wait for what it
                # holds up itself.
                rank.lead = rank.limit + 2 if paced else len(self.paths) + 1
                ranks.append(rank)
            out.append(ranks)
        return out

    def run(self) -> Run:
        for m, path in enumerate(self.paths):
            self.ranks[path[0]].forwards.append(m)  # ascending, hence a heap
        for rank in self.stages[0]:
            self.dispatch(0.0, rank)
        self.events.run()
        stuck = min((x.number for x in self.ranks.values() if x.done < x.total), default=None)
        if stuck is not None:
            rank = self.ranks[stuck]
            raise PipeplanError(
                f"the ranks wait for each other for ever: rank {stuck} (stage {rank.stage}) "
                f"stops after {rank.done} of {plural(rank.total, 'micro-batch')}, because a "
                "replica that waits for its peers holds up what they wait for; more micro-batches "
                "in flight would do"
            )
        columns = [self.log[i::5] for i in range(5)]
        return Run(
            micro_batches=len(self.paths),
            operations=Operations(
                *(array("q", x) for x in columns[:3]), *(array("d", x) for x in columns[3:])
            ),
            ports=self.network.busy(),
            updates=tuple(self.updates),
            end_ms=max(self.end_ms, max(columns[4])),
            waiting_peak=tuple(self.waiting_peak),
        )

    def dispatch(self, time_ms: float, rank: _Rank, _: None = None) -> None:
        """Give a rank its next piece of work, if it is free and there is any it may do."""
        if rank.busy:
            return
        if rank.syncs:
            self.begin_sync(time_ms, rank, rank.syncs.popleft())
            return
        if (
            rank.backwards
            and self.outstanding[rank.stage] < _OUTSTANDING
            and rank.done - self.due[rank.stage] < rank.lead
            and not (self.gpipe and rank.forwarded < rank.total)
        ):
            micro_batch = heappop(rank.backwards)
            kind: Literal[0, 1] = BACKWARD
        elif rank.forwards and rank.held < rank.limit:
            rank.held += 1
            micro_batch = heappop(rank.forwards)
            kind = FORWARD
        else:
            return
        rank.busy = True
        duration = rank.passes_ms[kind]
        if self.factors is not None:
            duration *= float(self.factors[micro_batch, rank.stage, kind])
        end_ms = time_ms + duration
        self.log += (rank.number, kind, micro_batch, time_ms, end_ms)
        handler = self.backward_ends if kind else self.forward_ends
        self.events.at(end_ms, handler, rank, micro_batch)

    def forward_ends(self, time_ms: float, rank: _Rank, micro_batch: int) -> None:
        rank.busy = False
        rank.forwarded += 1
        if rank.stage == self.last:
            heappush(rank.backwards, micro_batch)
        else:
            number = self.paths[micro_batch][rank.stage + 1]
            target, link = rank.peers.get(number) or self.meet(rank, number, rank.stage)
            self.network.send(
                time_ms,
                link,
                self.input_arrives,
                target,
                micro_batch,
                2 * micro_batch,
                micro_batch + len(self.paths),
            )
        self.dispatch(time_ms, rank)

    def backward_ends(self, time_ms: float, rank: _Rank, micro_batch: int) -> None:
        rank.busy = False
        rank.held -= 1
        if rank.stage > 0:
            number = self.paths[micro_batch][rank.stage - 1]
            target, link = rank.peers.get(number) or self.meet(rank, number, rank.stage - 1)
            self.network.send(
                time_ms,
                link,
                self.gradient_arrives,
                target,
                micro_batch,
                2 * micro_batch + 1,
                micro_batch,
            )
        number = rank.done
        rank.done += 1
        if self.sync == "round" or (self.sync == "end" and rank.done == rank.total):
            self.join(time_ms, rank, number if self.sync == "round" else 0)
            # Peers that finish at this very moment are heard first: the all-reduce may be due.
            self.events.at(time_ms, self.dispatch, rank, None)
        else:
            self.dispatch(time_ms, rank)

    def input_arrives(self, time_ms: float, rank: _Rank, micro_batch: int) -> None:
        heappush(rank.forwards, micro_batch)
        self.dispatch(time_ms, rank)
        if len(rank.forwards) > self.waiting_peak[rank.stage]:
            self.waiting_peak[rank.stage] = len(rank.forwards)

    def gradient_arrives(self, time_ms: float, rank: _Rank, micro_batch: int) -> None:
        heappush(rank.backwards, micro_batch)
        self.dispatch(time_ms, rank)

    def meet(self, rank: _Rank, number: int, cut: int) -> tuple[_Rank, Link]:
        """A rank that another sends to for the first time, and the way there."""
        link = self.pipeline.link(rank.number, number, self.pipeline.moved_bytes[cut])
        rank.peers[number] = self.ranks[number], link
        return rank.peers[number]

    def join(self, time_ms: float, rank: _Rank, number: int) -> None:
        """A replica has the gradients of a round; the last one to get them makes it due for all."""
        stage = rank.stage
        if not self.steps[stage]:
            self.updates.append((rank.number, time_ms))
            return
        collective = self.collectives.get((stage, number))
        if collective is None:
            # The last rounds of a run may not concern every replica.
            expected = (
                sum(1 for x in self.stages[stage] if x.total > number)
                if self.sync == "round"
                else sum(1 for x in self.stages[stage] if x.total)
            )
            collective = self.collectives[stage, number] = _Collective(stage, number, expected)
        collective.arrived.append(rank)
        if self.barrier:
            rank.busy = True  # until all are there
        if len(collective.arrived) < collective.expected:
            return
        collective.arrived.sort(key=attrgetter("number"))
        self.outstanding[stage] += 1
        self.due[stage] += 1
        if self.overlap:
            self.next_step(time_ms, collective, None)
        for peer in collective.arrived:
            if self.barrier:
                peer.busy = False
            if not self.overlap:
                peer.syncs.append(collective)
        for peer in collective.arrived:
            self.dispatch(time_ms, peer)

    def begin_sync(self, time_ms: float, rank: _Rank, collective: _Collective) -> None:
        """The rank gives its time to an all-reduce; traffic begins when the last one does so."""
        rank.busy = True
        end_ms = time_ms + self.pipeline.full_sync_ms[collective.stage]
        self.log += (rank.number, SYNC, collective.round, time_ms, end_ms)
        self.events.at(end_ms, self.sync_ends, rank, None)
        collective.begun += 1
        if collective.begun == collective.expected:
            self.next_step(time_ms, collective, None)

    def sync_ends(self, time_ms: float, rank: _Rank, _: None) -> None:
        rank.busy = False
        self.dispatch(time_ms, rank)

    def next_step(self, time_ms: float, collective: _Collective, _: None) -> None:
        collective.step += 1
        steps = self.steps[collective.stage]
        if collective.step == len(steps):
            self.all_reduced(time_ms, collective)
            return
        step = steps[collective.step]
        collective.pending = len(step.ports)
        tag = -1 - collective.stage
        for port in step.ports:
            self.network.send_bulk(
                time_ms, port, step.ring_ms, self.port_done, collective, step.latency_ms, tag=tag
            )

    def port_done(self, time_ms: float, collective: _Collective, latency_ms: float) -> None:
        collective.pending -= 1
        if not collective.pending:
            self.events.at(time_ms + latency_ms, self.next_step, collective, None)

    def all_reduced(self, time_ms: float, collective: _Collective) -> None:
        self.end_ms = max(self.end_ms, time_ms)
        self.outstanding[collective.stage] -= 1
        del self.collectives[collective.stage, collective.round]
        for rank in collective.arrived:
            self.updates.append((rank.number, time_ms))
            self.dispatch(time_ms, rank)
