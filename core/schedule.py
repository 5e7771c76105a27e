"""Named schedules, and how many micro-batches a replica holds at once under each."""

from typing import Final, Literal, get_args

__all__ = ["SCHEDULES", "Schedule", "in_flight", "is_synchronous"]

Schedule = Literal["pipedream", "1f1b", "gpipe"]
SCHEDULES: Final[tuple[Schedule, ...]] = get_args(Schedule)


def is_synchronous(schedule: Schedule) -> bool:
    """Whether the pipeline is flushed, and gradients are all-reduced, once a batch."""
    return schedule != "pipedream"


def in_flight(
    schedule: Schedule, ranks_from_here: int, replicas: int, micro_batches: int | None
) -> int:
    """Micro-batches begun and not finished at one replica, the one being computed included.

    `ranks_from_here` is the number of ranks of this stage and all later ones, `replicas` of this
    stage alone. `pipedream`: ceil(ranks_from_here / replicas), the warm-up of 1F1B plus one.
    `1f1b`: the same, but a batch of m deals at most ceil(m / replicas) to a replica. `gpipe` holds
    them all: ceil(m / replicas).
    """
    ahead = -(-ranks_from_here // replicas)
    if schedule == "pipedream":
        return ahead
    assert micro_batches is not None  # Problem demands it of synchronous schedules
    dealt = -(-micro_batches // replicas)
    return min(ahead, dealt) if schedule == "1f1b" else dealt
