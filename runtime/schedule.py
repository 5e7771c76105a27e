"""The order in which each rank runs forward and backward passes: pure, and the same everywhere.

Four ranks in a row under `1f1b`, each in its own order:

    rank 0   F0 F1 F2 F3 B0 F4 B1 F5 B2 ...
    rank 1   F0 F1 F2 B0 F3 B1 F4 B2 ...
    rank 2   F0 F1 B0 F2 B1 F3 B2 ...
    rank 3   F0 B0 F1 B1 F2 B2 ...

With replicas, and so with micro-batches that fan out and in, there is no closed form. The order is
that of a simulation: a rank takes its micro-batches in their order, and runs what there is to run,
a forward pass only while it holds fewer micro-batches than it may. The orders of all ranks are
those of one simulated course, so they cannot deadlock. Which course, `runtime.orders` chooses.
"""

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pipeplan.core.plan import Plan
from pipeplan.core.problem import Problem
from pipeplan.core.schedule import in_flight

__all__ = ["Event", "Pass", "SyncSchedule", "Ticks", "limits", "ticks_of", "timeline"]

Pass = Literal["F", "B"]
SyncSchedule = Literal["1f1b", "gpipe"]

Ticks = Sequence[Mapping[Pass, int]]
"""How long the passes of each stage take, in whole numbers: every rank finds the same orders."""


class Event(NamedTuple):
    """One pass of one micro-batch."""

    kind: Pass
    micro_batch: int


def limits(plan: Plan, schedule: SyncSchedule, paths: Sequence[tuple[int, ...]]) -> dict[int, int]:
    """Micro-batches that each rank may hold at once (DESIGN 4.3), at least one.

    `gpipe` holds all that are dealt to a rank, and a batch that is no whole round of the routing
    may deal one rank more than its even share.
    """
    out: dict[int, int] = {}
    remaining = plan.devices
    dealt = Counter(rank for path in paths for rank in path)
    for stage in plan.stages:
        held = max(1, in_flight(schedule, remaining, stage.replicas, len(paths)))
        for rank in stage.ranks:
            out[rank] = max(held, dealt[rank]) if schedule == "gpipe" else held
        remaining -= stage.replicas
    return out


def ticks_of(problem: Problem, plan: Plan) -> Ticks:
    """The profile's times of each stage in nanoseconds, at least one."""
    out: list[Mapping[Pass, int]] = []
    for stage in plan.stages:
        layers = [problem.graph.layers[v] for v in stage.layers]
        forward_ms = math.fsum(x.forward_ms for x in layers)
        backward_ms = math.fsum(x.backward_ms for x in layers)
        if problem.recompute:
            backward_ms += forward_ms
        out.append({"F": max(1, round(forward_ms * 1e6)), "B": max(1, round(backward_ms * 1e6))})
    return out


@dataclass
class _Rank:
    """What a rank has to do, has done, and could do now."""

    held: int
    todo: list[int] = field(default_factory=list)
    """Its micro-batches, in their order."""
    begun: int = 0
    finished: int = 0
    inputs: set[int] = field(default_factory=set)
    """Micro-batches whose input is there."""
    gradients: list[int] = field(default_factory=list)
    """A heap of those whose output's gradient is there."""
    last: Pass = "F"
    free_at: int = 0

    def choose(self, schedule: SyncSchedule, *, alternate: bool) -> Event | None:
        """What it runs next, which is noted; None while it has to wait."""
        forward = (
            self.begun < len(self.todo)
            and self.begun - self.finished < self.held
            and self.todo[self.begun] in self.inputs
        )
        backward = self.gradients and (schedule == "1f1b" or self.begun == len(self.todo))
        if backward and not (forward and alternate and self.last == "B"):
            self.last = "B"
            return Event("B", heapq.heappop(self.gradients))
        if not forward:
            return None
        self.last = "F"
        self.begun += 1
        return Event("F", self.todo[self.begun - 1])


def timeline(
    paths: Sequence[tuple[int, ...]],
    held: Mapping[int, int],
    schedule: SyncSchedule,
    ticks: Ticks,
    *,
    alternate: bool = False,
) -> Iterator[tuple[int, int, Event]]:
    """(tick, rank, event) of one batch, in the order in which passes begin.

    `paths` are the ranks of each micro-batch, first stage first; `held` bounds the micro-batches
    that a rank holds at once. `gpipe` runs no backward pass on a rank before its last forward.
    Under `1f1b` a rank that could run either runs the backward pass; if they `alternate`, the
    forward pass where its last one was a backward pass.
    """
    ranks: dict[int, _Rank] = {}
    for m, path in enumerate(paths):
        for rank in path:
            ranks.setdefault(rank, _Rank(held[rank])).todo.append(m)
        ranks[path[0]].inputs.add(m)
    position = {(m, rank): s for m, path in enumerate(paths) for s, rank in enumerate(path)}
    finishing: list[tuple[int, int, Event]] = []
    tick = 0
    # Ranks for which something has changed; the others have found nothing to run before.
    changed = set(ranks)
    while changed:
        for rank in sorted(changed):
            state = ranks[rank]
            if state.free_at > tick:
                continue
            event = state.choose(schedule, alternate=alternate)
            if event is None:
                continue
            state.free_at = tick + ticks[position[event.micro_batch, rank]][event.kind]
            heapq.heappush(finishing, (state.free_at, rank, event))
            yield tick, rank, event
        changed = set()
        tick = finishing[0][0] if finishing else tick
        while finishing and finishing[0][0] == tick:
            _, rank, (kind, m) = heapq.heappop(finishing)
            path, s = paths[m], position[m, rank]
            changed.add(rank)
            if kind == "B":
                ranks[rank].finished += 1
                if s:
                    heapq.heappush(ranks[path[s - 1]].gradients, m)
                    changed.add(path[s - 1])
            elif s + 1 < len(path):
                ranks[path[s + 1]].inputs.add(m)
                changed.add(path[s + 1])
            else:
                heapq.heappush(ranks[rank].gradients, m)
