"""What would move a plan: each figure is the plan priced with that one thing changed."""

from dataclasses import replace

import pytest

from pipeplan.core.cluster import MAX_BYTES_PER_S, Cluster
from pipeplan.core.graph import Layer, LayerGraph
from pipeplan.core.levers import levers
from pipeplan.core.plan import Plan, Stage
from pipeplan.core.problem import Problem


def problem(*, duplex: str = "full", children: tuple[int, ...] = (2, 2)) -> Problem:
    """Two layers: the first with work, the second with weights."""
    graph = LayerGraph.build(
        [
            Layer("a", 10.0, 20.0, 1_000_000),
            Layer("b", 2.0, 4.0, 1_000, parameter_bytes=40_000_000),
        ],
        [("a", "b")],
    )
    rates = [10e9, 1e9][: len(children)]
    cluster = Cluster.of(children, rates, duplex="half" if duplex == "half" else "full")
    return Problem(graph, cluster)


def by_text(found: object, words: str) -> float:
    matches = [x.objective_ms for x in found if words in x.text]  # type: ignore[attr-defined]
    assert len(matches) == 1, words
    return float(matches[0])


def test_a_device_bottleneck_moves_with_compute_and_replicas() -> None:
    # Stage 0: 30 ms on one of four ranks; ranks 2 and 3 are idle.
    plan = Plan((Stage((0,), (0,)), Stage((1,), (1,))))
    found = levers(problem(), plan)
    assert by_text(found, "GPUs twice as fast") == pytest.approx(15.0)
    assert by_text(found, "one more replica of stage 0, on idle rank 2") == pytest.approx(15.0)
    assert by_text(found, "level 1") == pytest.approx(30.0)
    assert [x.objective_ms for x in found] == sorted(x.objective_ms for x in found)


def test_an_all_reduce_bottleneck_moves_with_its_level() -> None:
    # Stage 1 on ranks 1 and 3, one a server: 2 (q-1)/q W = 40 MB over 1 GB/s is 40 ms, halved by
    # its two replicas; with 3 ms of compute a device is busy 23 ms. Stage 0 is busy 15 ms.
    plan = Plan((Stage((0,), (0, 2)), Stage((1,), (1, 3))))
    found = levers(problem(), plan)
    assert by_text(found, "level 2") == pytest.approx(15.0)
    assert by_text(found, "no all-reduce at all") == pytest.approx(15.0)
    assert by_text(found, "--overlap-sync") == pytest.approx(20.0)
    assert by_text(found, "level 1") == pytest.approx(23.0)
    assert not [x for x in found if "one more replica" in x.text]


def test_half_duplex_can_be_lifted() -> None:
    plan = Plan((Stage((0,), (0, 2)), Stage((1,), (1, 3))))
    assert by_text(levers(problem(duplex="half"), plan), "full duplex") == pytest.approx(23.0)


def test_synchronous_schedules_are_priced_by_the_batch() -> None:
    plan = Plan((Stage((0,), (0,)), Stage((1,), (1,))))
    asked = replace(problem(), schedule="1f1b", micro_batches=4)
    # One micro-batch through both stages, three more periods, no transfer to speak of.
    transfer = 2 * 1_000_000 / 10e9 * 1e3
    assert by_text(levers(asked, plan), "level 2") == pytest.approx(36 + transfer + 3 * 30)
    assert not [x for x in levers(asked, plan) if "--overlap-sync" in x.text]


def test_a_flat_cluster_has_one_bandwidth() -> None:
    plan = Plan((Stage((0,), (0,)), Stage((1,), (1,))))
    texts = [x.text for x in levers(problem(children=(2,)), plan)]
    assert any(text.startswith("GPUs' ports twice as fast (") for text in texts)


def test_a_bandwidth_at_the_limit_is_not_doubled() -> None:
    asked = replace(problem(), cluster=Cluster.of([2, 2], [MAX_BYTES_PER_S, 1e9]))
    texts = [lever.text for lever in levers(asked, Plan((Stage((0, 1), (0, 1)),)))]
    assert not any("level 1" in text for text in texts)
    assert any("level 2" in text for text in texts)
