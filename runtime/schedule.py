"""The order in which each rank runs forward and backward passes: pure, and the same everywhere.

Four ranks in a row under `1f1b`, each in its own order:

    rank 0   F0 F1 F2 F3 B0 F4 B1 F5 B2 ...
    rank 1   F0 F1 F2 B0 F3 B1 F4 B2 ...
    rank 2   F0 F1 B0 F2 B1 F3 B2 ...
    rank 3   F0 B0 F1 B1 F2 B2 ...

With replicas, and so with micro-batches that fan out and in, there is no closed form. The order is
that of a simulation: a rank takes its micro-batches in their order, runs a backward pass as
soon as there is one to run, and otherwise a forward pass unless it holds as many micro-batches as
it may. The orders of all ranks are those of one simulated course, so they cannot deadlock.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from pipeplan.core.plan import Plan
from pipeplan.core.schedule import in_flight

__all__ = ["Event", "Pass", "SyncSchedule", "limits", "orders", "timeline"]

Pass = Literal["F", "B"]
SyncSchedule = Literal["1f1b", "gpipe"]

_TICKS: Final[Mapping[Pass, int]] = {"F": 1, "B": 2}


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


def timeline(
    paths: Sequence[tuple[int, ...]], held: Mapping[int, int], schedule: SyncSchedule
) -> Iterator[tuple[int, int, Event]]:
    """(tick, rank, event) of one batch, in the order in which passes begin.

    `paths` are the ranks of each micro-batch, first stage first; `held` bounds the micro-batches
    that a rank holds at once. `gpipe` runs no backward pass on a rank before its last forward.
    """
    todo: dict[int, list[int]] = {}
    for m, path in enumerate(paths):
        for rank in path:
            todo.setdefault(rank, []).append(m)
    next_forward = dict.fromkeys(todo, 0)
    holding = dict.fromkeys(todo, 0)
    # Micro-batches whose input (forward) or output gradient (backward) is there, by rank.
    ready_forward: dict[int, set[int]] = {rank: set() for rank in todo}
    ready_backward: dict[int, list[int]] = {rank: [] for rank in todo}
    for m, path in enumerate(paths):
        ready_forward[path[0]].add(m)
    position = {(m, rank): s for m, path in enumerate(paths) for s, rank in enumerate(path)}
    free_at = dict.fromkeys(todo, 0)
    finishing: list[tuple[int, int, Event]] = []
    wake: list[tuple[int, int]] = [(0, rank) for rank in sorted(todo)]
    heapq.heapify(wake)
    while wake:
        tick = wake[0][0]
        while finishing and finishing[0][0] <= tick:
            _, rank, (kind, m) = heapq.heappop(finishing)
            path, s = paths[m], position[m, rank]
            if kind == "F" and s + 1 < len(path):
                ready_forward[path[s + 1]].add(m)
            elif kind == "F":
                heapq.heappush(ready_backward[rank], m)
            else:
                holding[rank] -= 1
                if s:
                    heapq.heappush(ready_backward[path[s - 1]], m)
        woken = set()
        while wake and wake[0][0] == tick:
            woken.add(heapq.heappop(wake)[1])
        # What has just finished may free any rank, not only those that were to wake.
        for rank in sorted(todo) if woken else ():
            if free_at[rank] > tick:
                continue
            event = _choose(
                rank, todo, next_forward, ready_forward, ready_backward, holding, held, schedule
            )
            if event is None:
                continue
            if event.kind == "F":
                next_forward[rank] += 1
                holding[rank] += 1
            done = tick + _TICKS[event.kind]
            free_at[rank] = done
            heapq.heappush(finishing, (done, rank, event))
            heapq.heappush(wake, (done, rank))
            yield tick, rank, event


def _choose(
    rank: int,
    todo: Mapping[int, list[int]],
    next_forward: Mapping[int, int],
    ready_forward: Mapping[int, set[int]],
    ready_backward: Mapping[int, list[int]],
    holding: Mapping[int, int],
    held: Mapping[int, int],
    schedule: SyncSchedule,
) -> Event | None:
    """What a free rank runs next; None while it has to wait."""
    at = next_forward[rank]
    forwards_left = at < len(todo[rank])
    if ready_backward[rank] and (schedule == "1f1b" or not forwards_left):
        return Event("B", heapq.heappop(ready_backward[rank]))
    if forwards_left and holding[rank] < held[rank] and todo[rank][at] in ready_forward[rank]:
        return Event("F", todo[rank][at])
    return None


def orders(
    paths: Sequence[tuple[int, ...]], held: Mapping[int, int], schedule: SyncSchedule
) -> dict[int, tuple[Event, ...]]:
    """The events of each rank, in its own order."""
    out: dict[int, list[Event]] = {}
    for _, rank, event in timeline(paths, held, schedule):
        out.setdefault(rank, []).append(event)
    return {rank: tuple(events) for rank, events in sorted(out.items())}
