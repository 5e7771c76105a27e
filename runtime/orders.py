"""Which of several courses a batch takes: the one that the profile's times make the shortest."""

from collections.abc import Iterator, Mapping, Sequence

from pipeplan.runtime.schedule import Event, SyncSchedule, Ticks, timeline

__all__ = ["Orders", "batch_ticks", "orders"]

Orders = dict[int, tuple[Event, ...]]
"""The events of each rank, in its own order."""


def orders(
    paths: Sequence[tuple[int, ...]],
    held: Mapping[int, int],
    schedule: SyncSchedule,
    ticks: Ticks,
) -> Orders:
    """The order that each rank keeps to; the arguments are those of `timeline`.

    A fixed order waits where passes take other times than it was made for, and no rule is best for
    all times where both a forward and a backward pass could run. So courses by the times and by
    times that are alike in all stages are tried, both with the backward pass first and alternating.
    """
    alike: Ticks = [{"F": 1, "B": 2}] * len(ticks)
    # Under gpipe there is never a choice between the two.
    rules = (False,) if schedule == "gpipe" else (False, True)
    courses = [
        _by_rank(timeline(paths, held, schedule, times, alternate=alternate))
        for times in (alike, ticks)
        for alternate in rules
    ]
    return min(courses, key=lambda course: batch_ticks(paths, course, ticks))


def batch_ticks(
    paths: Sequence[tuple[int, ...]], events: Mapping[int, Sequence[Event]], ticks: Ticks
) -> int:
    """When the last pass ends, if every rank keeps to its order and messages take no time."""
    position = {(m, rank): s for m, path in enumerate(paths) for s, rank in enumerate(path)}
    ended: dict[tuple[int, Event], int] = {}
    free_at = dict.fromkeys(events, 0)
    following = {rank: iter(order) for rank, order in events.items()}
    # A rank stands at an event until what the event reads is there; whoever makes that wakes it.
    waiting: dict[tuple[int, Event], tuple[int, Event]] = {}
    runnable = [(rank, next(order)) for rank, order in following.items()]
    while runnable:
        rank, event = runnable.pop()
        path, s = paths[event.micro_batch], position[event.micro_batch, rank]
        before = s - 1 if event.kind == "F" else s + 1
        source = (path[before], event) if 0 <= before < len(path) else None
        if source is not None and source not in ended:
            waiting[source] = rank, event
            continue
        began = max(free_at[rank], 0 if source is None else ended[source])
        ended[rank, event] = free_at[rank] = began + ticks[s][event.kind]
        then = next(following[rank], None)
        if then is not None:
            runnable.append((rank, then))
        if (rank, event) in waiting:
            runnable.append(waiting.pop((rank, event)))
    return max(free_at.values())


def _by_rank(course: Iterator[tuple[int, int, Event]]) -> Orders:
    out: dict[int, list[Event]] = {}
    for _, rank, event in course:
        out.setdefault(rank, []).append(event)
    return {rank: tuple(events) for rank, events in sorted(out.items())}
