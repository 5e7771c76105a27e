"""The event loop: every rank a resource that is never idle while it may do something.

A free rank takes, in this order: its share of an all-reduce that is due, the oldest backward pass
that it has the gradient for, the oldest forward pass that it has the input for and room to keep
(1F1B without its fixed order, which would wait where it need not). A free port likewise takes
gradients before activations, and of each the oldest micro-batch first. Under gpipe a rank runs all
its forward passes before its first backward pass.
"""

import gc
import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from pipeplan.core.errors import PipeplanError
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


@dataclass(slots=True)
class Operations:
    """What ranks did, in order of completion: rank, kind, micro-batch (of a SYNC: round), times."""

    rank: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    micro_batch: list[int] = field(default_factory=list)
    start_ms: list[float] = field(default_factory=list)
    end_ms: list[float] = field(default_factory=list)


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


class _Collective:
    """One all-reduce of one stage."""

    __slots__ = ("arrived", "begun", "expected", "pending", "round", "stage", "step")

    def __init__(self, stage: int, number: int, expected: int) -> None:
        self.stage = stage
        self.round = number
        self.expected = expected
        self.arrived: list[int] = []
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
        stage_of = pipeline.plan.stage_of_rank
        size = max(stage_of) + 1
        slow = dict(options.stragglers)
        self.stage = [stage_of.get(rank, -1) for rank in range(size)]
        self.passes = tuple(
            [
                times[stage_of[rank]] * slow.get(rank, 1.0) if rank in stage_of else 0.0
                for rank in range(size)
            ]
            for times in (pipeline.forward_ms, pipeline.backward_ms)
        )
        self.factors = _factors(options, len(paths), self.last + 1)
        self.total = [0] * size
        for path in paths:
            for rank in path:
                self.total[rank] += 1
        # Under gpipe every rank keeps all that it is dealt; dealing may exceed the even share.
        self.limit = self.total if gpipe else [limits[s] if s >= 0 else 0 for s in self.stage]
        self.steps: tuple[tuple[SyncStep, ...], ...] = pipeline.sync_steps
        self.forwards: list[list[int]] = [[] for _ in range(size)]
        self.backwards: list[list[int]] = [[] for _ in range(size)]
        self.syncs: list[list[_Collective]] = [[] for _ in range(size)]
        self.busy = [False] * size
        self.held = [0] * size
        self.forwarded = [0] * size
        self.done = [0] * size
        self.waiting_peak = [0] * len(pipeline.plan.stages)
        self.links: dict[tuple[int, int, int], Link] = {}
        self.collectives: dict[tuple[int, int], _Collective] = {}
        self.outstanding = [0] * len(pipeline.plan.stages)
        self.due = [0] * len(pipeline.plan.stages)
        # A replica that is always fed must not leave a slow peer behind for good. Later stages are
        # fed in turn, and a limit there could make a replica wait for what it holds up itself.
        self.lead = [
            self.limit[rank] + 2 if s == 0 and self.steps[0] and sync == "round" else len(paths) + 1
            for rank, s in enumerate(self.stage)
        ]
        self.operations = Operations()
        self.updates: list[tuple[int, float]] = []
        self.end_ms = 0.0

    def run(self) -> Run:
        for m, path in enumerate(self.paths):
            self.forwards[path[0]].append(m)  # ascending, hence a heap
        for rank in self.pipeline.plan.stages[0].ranks:
            self.dispatch(0.0, rank)
        self.events.run()
        if self.done != self.total:
            stuck = min(r for r, n in enumerate(self.total) if self.done[r] < n)
            raise PipeplanError(
                f"the ranks wait for each other for ever: rank {stuck} (stage {self.stage[stuck]}) "
                f"stops after {self.done[stuck]} of {self.total[stuck]} micro-batches, because a "
                "replica that waits for its peers holds up what they wait for; more micro-batches "
                "in flight would do"
            )
        return Run(
            micro_batches=len(self.paths),
            operations=self.operations,
            ports=self.network.busy,
            updates=tuple(self.updates),
            end_ms=max(self.end_ms, *self.operations.end_ms),
            waiting_peak=tuple(self.waiting_peak),
        )

    def dispatch(self, time_ms: float, rank: int) -> None:
        """Give a rank its next piece of work, if it is free and there is any it may do."""
        if self.busy[rank]:
            return
        if self.syncs[rank]:
            self.begin_sync(time_ms, rank, self.syncs[rank].pop(0))
            return
        backwards = self.backwards[rank]
        if (
            backwards
            and self.outstanding[self.stage[rank]] < _OUTSTANDING
            and self.done[rank] - self.due[self.stage[rank]] < self.lead[rank]
            and not (self.gpipe and self.forwarded[rank] < self.total[rank])
        ):
            self.begin(time_ms, rank, BACKWARD, heapq.heappop(backwards))
        elif self.forwards[rank] and self.held[rank] < self.limit[rank]:
            self.held[rank] += 1
            self.begin(time_ms, rank, FORWARD, heapq.heappop(self.forwards[rank]))

    def dispatch_later(self, time_ms: float, rank: int, _: None) -> None:
        self.dispatch(time_ms, rank)

    def begin(self, time_ms: float, rank: int, kind: int, micro_batch: int) -> None:
        self.busy[rank] = True
        duration = self.passes[kind][rank]
        if self.factors is not None:
            duration *= float(self.factors[micro_batch, self.stage[rank], kind])
        handler = self.forward_ends if kind == FORWARD else self.backward_ends
        self.note(rank, kind, micro_batch, time_ms, time_ms + duration)
        self.events.at(time_ms + duration, handler, rank, micro_batch)

    def note(self, rank: int, kind: int, which: int, start_ms: float, end_ms: float) -> None:
        log = self.operations
        log.rank.append(rank)
        log.kind.append(kind)
        log.micro_batch.append(which)
        log.start_ms.append(start_ms)
        log.end_ms.append(end_ms)

    def forward_ends(self, time_ms: float, rank: int, micro_batch: int) -> None:
        self.busy[rank] = False
        self.forwarded[rank] += 1
        stage = self.stage[rank]
        if stage == self.last:
            heapq.heappush(self.backwards[rank], micro_batch)
        else:
            target = self.paths[micro_batch][stage + 1]
            link = self.link(rank, target, stage)
            self.network.send(
                time_ms,
                link,
                self.input_arrives,
                target,
                micro_batch,
                tag=2 * micro_batch,
                rank=micro_batch + len(self.paths),
            )
        self.dispatch(time_ms, rank)

    def backward_ends(self, time_ms: float, rank: int, micro_batch: int) -> None:
        self.busy[rank] = False
        self.held[rank] -= 1
        stage = self.stage[rank]
        if stage > 0:
            target = self.paths[micro_batch][stage - 1]
            link = self.link(rank, target, stage - 1)
            self.network.send(
                time_ms,
                link,
                self.gradient_arrives,
                target,
                micro_batch,
                tag=2 * micro_batch + 1,
                rank=micro_batch,
            )
        number = self.done[rank]
        self.done[rank] += 1
        if self.sync == "round" or (self.sync == "end" and self.done[rank] == self.total[rank]):
            self.join(time_ms, rank, number if self.sync == "round" else 0)
            # Peers that finish at this very moment are heard first: the all-reduce may be due.
            self.events.at(time_ms, self.dispatch_later, rank, None)
        else:
            self.dispatch(time_ms, rank)

    def input_arrives(self, time_ms: float, rank: int, micro_batch: int) -> None:
        waiting = self.forwards[rank]
        heapq.heappush(waiting, micro_batch)
        self.dispatch(time_ms, rank)
        stage = self.stage[rank]
        if len(waiting) > self.waiting_peak[stage]:
            self.waiting_peak[stage] = len(waiting)

    def gradient_arrives(self, time_ms: float, rank: int, micro_batch: int) -> None:
        heapq.heappush(self.backwards[rank], micro_batch)
        self.dispatch(time_ms, rank)

    def link(self, source: int, target: int, cut: int) -> Link:
        key = (source, target, cut)
        found = self.links.get(key)
        if found is None:
            found = self.pipeline.link(source, target, self.pipeline.moved_bytes[cut])
            self.links[key] = found
        return found

    def join(self, time_ms: float, rank: int, number: int) -> None:
        """A replica has the gradients of a round; the last one to get them makes it due for all."""
        stage = self.stage[rank]
        if not self.steps[stage]:
            self.updates.append((rank, time_ms))
            return
        collective = self.collectives.get((stage, number))
        if collective is None:
            # The last rounds of a run may not concern every replica.
            peers = self.pipeline.plan.stages[stage].ranks
            expected = (
                sum(1 for x in peers if self.total[x] > number)
                if self.sync == "round"
                else sum(1 for x in peers if self.total[x])
            )
            collective = self.collectives[stage, number] = _Collective(stage, number, expected)
        collective.arrived.append(rank)
        if self.barrier:
            self.busy[rank] = True  # until all are there
        if len(collective.arrived) < collective.expected:
            return
        self.outstanding[stage] += 1
        self.due[stage] += 1
        if self.overlap:
            self.next_step(time_ms, collective, None)
        for peer in sorted(collective.arrived):
            if self.barrier:
                self.busy[peer] = False
            if not self.overlap:
                self.syncs[peer].append(collective)
        for peer in sorted(collective.arrived):
            self.dispatch(time_ms, peer)

    def begin_sync(self, time_ms: float, rank: int, collective: _Collective) -> None:
        """The rank gives its time to an all-reduce; traffic begins when the last one does so."""
        self.busy[rank] = True
        end_ms = time_ms + self.pipeline.full_sync_ms[collective.stage]
        self.note(rank, SYNC, collective.round, time_ms, end_ms)
        self.events.at(end_ms, self.sync_ends, rank, collective)
        collective.begun += 1
        if collective.begun == collective.expected:
            self.next_step(time_ms, collective, None)

    def sync_ends(self, time_ms: float, rank: int, _: _Collective) -> None:
        self.busy[rank] = False
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
        for rank in sorted(collective.arrived):
            self.updates.append((rank, time_ms))
            self.dispatch(time_ms, rank)
