"""Orders of passes, written out."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeplan.core.cluster import Cluster
from pipeplan.core.plan import joint_plan
from pipeplan.core.routing import micro_batch_paths
from pipeplan.runtime.orders import batch_ticks, orders
from pipeplan.runtime.schedule import Event, Pass, SyncSchedule, Ticks, limits, timeline


def alike(stages: int) -> Ticks:
    """Stages that take the same time, with backward passes of twice the forward passes' length."""
    return [{"F": 1, "B": 2}] * stages


def dealt(
    replicas: list[int], micro_batches: int, schedule: SyncSchedule
) -> tuple[list[tuple[int, ...]], dict[int, int]]:
    """The ranks of each micro-batch, and how many each rank may hold."""
    cluster = Cluster.of([sum(replicas)], [1e9])
    plan = joint_plan(cluster, tuple(((i,), r) for i, r in enumerate(replicas)))
    paths = micro_batch_paths(cluster, plan, micro_batches)
    return paths, limits(plan, schedule, paths)


def table(
    replicas: list[int], micro_batches: int, schedule: SyncSchedule, ticks: Ticks | None = None
) -> list[str]:
    paths, held = dealt(replicas, micro_batches, schedule)
    found = orders(paths, held, schedule, ticks or alike(len(replicas)))
    return [" ".join(f"{kind}{m}" for kind, m in events) for events in found.values()]


@pytest.mark.parametrize(
    ("replicas", "micro_batches", "schedule", "expected"),
    [
        ([1], 2, "1f1b", ["F0 B0 F1 B1"]),
        ([1], 2, "gpipe", ["F0 F1 B0 B1"]),
        ([1, 1], 1, "1f1b", ["F0 B0", "F0 B0"]),
        (
            [1, 1, 1, 1],
            8,
            "1f1b",
            [
                "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7",
                "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
                "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7",
                "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7",
            ],
        ),
        (
            [1, 1, 1],
            2,
            "1f1b",
            ["F0 F1 B0 B1", "F0 F1 B0 B1", "F0 B0 F1 B1"],
        ),
        (
            [1, 1, 1],
            4,
            "gpipe",
            ["F0 F1 F2 F3 B0 B1 B2 B3"] * 3,
        ),
        (
            [2, 1, 1],
            6,
            "1f1b",
            [
                "F0 F2 B0 F4 B2 B4",
                "F1 F3 B1 F5 B3 B5",
                "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5",
                "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5",
            ],
        ),
        (
            [3, 1],
            6,
            "1f1b",
            [
                "F0 F3 B0 B3",
                "F1 F4 B1 B4",
                "F2 F5 B2 B5",
                "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5",
            ],
        ),
        ([2, 2], 4, "1f1b", ["F0 F2 B0 B2", "F1 F3 B1 B3", "F0 B0 F2 B2", "F1 B1 F3 B3"]),
        # Rank 2 has one forward pass only, so its backward pass comes first.
        ([1, 2], 3, "gpipe", ["F0 F1 F2 B1 B0 B2", "F0 F2 B0 B2", "F1 B1"]),
        # Two micro-batches of three replicas meet on one rank, which then holds both.
        ([3, 2], 2, "gpipe", ["F0 B0", "F1 B1", "F0 F1 B0 B1"]),
    ],
)
def test_written_out(
    replicas: list[int], micro_batches: int, schedule: SyncSchedule, expected: list[str]
) -> None:
    assert table(replicas, micro_batches, schedule) == expected


def test_an_unused_replica_has_no_events() -> None:
    assert table([2, 1], 1, "1f1b") == ["F0 B0", "F0 B0"]


TICK = st.integers(1, 100)
QUESTIONS = {
    "stages": st.lists(
        st.tuples(st.integers(1, 5), st.fixed_dictionaries({"F": TICK, "B": TICK})),
        min_size=1,
        max_size=5,
    ),
    "micro_batches": st.integers(1, 24),
    "schedule": st.sampled_from(["1f1b", "gpipe"]),
}


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(**QUESTIONS, alternate=st.booleans())
def test_every_pass_once_in_a_possible_order_within_the_limits(
    stages: list[tuple[int, dict[Pass, int]]],
    micro_batches: int,
    schedule: SyncSchedule,
    alternate: bool,
) -> None:
    replicas, ticks = [x[0] for x in stages], [x[1] for x in stages]
    paths, held = dealt(replicas, micro_batches, schedule)
    done: dict[tuple[int, Event], int] = {}
    holding: dict[int, int] = {}
    free: dict[int, int] = {}
    course: dict[int, list[Event]] = {}
    for tick, rank, event in timeline(paths, held, schedule, ticks, alternate=alternate):
        path = paths[event.micro_batch]
        s = path.index(rank)
        assert tick >= free.get(rank, 0)
        if event.kind == "F":
            holding[rank] = holding.get(rank, 0) + 1
            assert holding[rank] <= held[rank]
            assert s == 0 or done[path[s - 1], event] <= tick
        else:
            holding[rank] -= 1
            assert done[rank, Event("F", event.micro_batch)] <= tick
            assert s + 1 == len(path) or done[path[s + 1], event] <= tick
        assert (rank, event) not in done
        done[rank, event] = free[rank] = tick + ticks[s][event.kind]
        course.setdefault(rank, []).append(event)
    assert len(done) == 2 * micro_batches * len(replicas)
    assert all(count == 0 for count in holding.values())
    # Kept to as a fixed order, the course takes as long as it did.
    assert batch_ticks(paths, course, ticks) == max(done.values())


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(**QUESTIONS)
def test_the_shortest_course_is_taken(
    stages: list[tuple[int, dict[Pass, int]]], micro_batches: int, schedule: SyncSchedule
) -> None:
    replicas, ticks = [x[0] for x in stages], [x[1] for x in stages]
    paths, held = dealt(replicas, micro_batches, schedule)
    taken = batch_ticks(paths, orders(paths, held, schedule, ticks), ticks)
    for alternate in (False, True):
        ends = [
            tick + ticks[paths[event.micro_batch].index(rank)][event.kind]
            for tick, rank, event in timeline(paths, held, schedule, ticks, alternate=alternate)
        ]
        assert taken <= max(ends)
    blind = orders(paths, held, schedule, alike(len(stages)))
    assert taken <= batch_ticks(paths, blind, ticks)


def test_replicas_behind_a_single_rank_are_fed_without_a_gap() -> None:
    """Each pass of stage 1 takes twice as long as one of stage 0: 30 ticks a micro-batch."""
    ticks: Ticks = [{"F": 10, "B": 20}, {"F": 20, "B": 40}]
    assert table([1, 2], 6, "1f1b", ticks) == [
        "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5",
        "F0 B0 F2 B2 F4 B4",
        "F1 B1 F3 B3 F5 B5",
    ]
    paths, held = dealt([1, 2], 24, "1f1b")
    filling = 10 + 20 + 40 + 20
    assert batch_ticks(paths, orders(paths, held, "1f1b", ticks), ticks) == filling + 23 * 30


def test_an_order_for_other_times_waits() -> None:
    """Three replicas whose passes take three times as long: made for passes that are alike, an
    order lets them wait for one another's turn."""
    ticks: Ticks = [{"F": 10, "B": 20}, {"F": 30, "B": 60}]
    paths, held = dealt([1, 3], 24, "1f1b")
    filling = 10 + 30 + 60 + 20
    assert batch_ticks(paths, orders(paths, held, "1f1b", ticks), ticks) == filling + 23 * 30
    blind = orders(paths, held, "1f1b", alike(2))
    assert batch_ticks(paths, blind, ticks) == 1260


def test_the_generator_needs_no_torch() -> None:
    for function in (orders, timeline):
        assert "import torch" not in Path(function.__code__.co_filename).read_text()
