"""Orders of passes, written out."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeplan.core.cluster import Cluster
from pipeplan.core.plan import joint_plan
from pipeplan.core.routing import micro_batch_paths
from pipeplan.runtime.schedule import Event, SyncSchedule, limits, orders, timeline


def table(replicas: list[int], micro_batches: int, schedule: SyncSchedule) -> list[str]:
    cluster = Cluster.of([sum(replicas)], [1e9])
    plan = joint_plan(cluster, tuple(((i,), r) for i, r in enumerate(replicas)))
    paths = micro_batch_paths(cluster, plan, micro_batches)
    found = orders(paths, limits(plan, schedule, paths), schedule)
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


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=5),
    st.integers(1, 24),
    st.sampled_from(["1f1b", "gpipe"]),
)
def test_every_pass_once_in_a_possible_order_within_the_limits(
    replicas: list[int], micro_batches: int, schedule: SyncSchedule
) -> None:
    cluster = Cluster.of([sum(replicas)], [1e9])
    plan = joint_plan(cluster, tuple(((i,), r) for i, r in enumerate(replicas)))
    paths = micro_batch_paths(cluster, plan, micro_batches)
    held = limits(plan, schedule, paths)
    done: set[tuple[int, Event]] = set()
    holding: dict[int, int] = {}
    for _, rank, event in timeline(paths, held, schedule):
        path = paths[event.micro_batch]
        s = path.index(rank)
        if event.kind == "F":
            holding[rank] = holding.get(rank, 0) + 1
            assert holding[rank] <= held[rank]
            assert s == 0 or (path[s - 1], event) in done
        else:
            holding[rank] -= 1
            assert (rank, Event("F", event.micro_batch)) in done
            assert s + 1 == len(path) or (path[s + 1], event) in done
        assert (rank, event) not in done
        done.add((rank, event))
    assert len(done) == 2 * micro_batches * len(replicas)
    assert all(count == 0 for count in holding.values())


def test_the_generator_needs_no_torch() -> None:
    source = Path(orders.__code__.co_filename).read_text()
    assert "import torch" not in source
