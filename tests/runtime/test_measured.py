"""What is made of the logs of a run: the steady period, and where each stage's time went."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pipeplan.core.cluster import Cluster
from pipeplan.core.codec import PlanFile, Provenance
from pipeplan.core.cost import evaluate
from pipeplan.core.errors import PipeplanError
from pipeplan.core.graph import Layer, LayerGraph
from pipeplan.core.plan import Plan, joint_plan
from pipeplan.core.problem import Problem
from pipeplan.runtime.measured import as_run, read_run
from pipeplan.runtime.period import spacing_s, steady_period_s
from pipeplan.runtime.schedule import SyncSchedule
from pipeplan.runtime.steplog import PassLine, StepLog


def log(text: str, sent_s: float = 0.0) -> StepLog:
    """From lines such as `F0 1-2` (began and ended) or `B0 0-1-2` (free before it began)."""
    lines = []
    for item in text.split(", "):
        name, _, moments = item.partition(" ")
        found = [float(x) for x in moments.split("-")]
        free_s, began_s, ended_s = found if len(found) == 3 else (found[0], *found)
        kind: Any = name[0]
        lines.append(PassLine(kind, int(name[1:]), free_s, began_s, ended_s))
    return StepLog(lines, sent_s)


def planned(replicas: list[int]) -> PlanFile:
    """Layers of 2 + 4 ms that hand on 1 MB, at 1 GB/s; those of a stage of r replicas are r."""
    names = [f"s{s}.{i}" for s, r in enumerate(replicas) for i in range(r)]
    layers = [Layer(name, 2.0, 4.0, 10**6, 10**6) for name in names]
    cluster = Cluster.of([sum(replicas)], [1e9])
    problem = Problem(LayerGraph.build(layers, pairwise(names)), cluster)
    order = [problem.graph.index[name] for name in names]
    stages, at = [], 0
    for r in replicas:
        stages.append((tuple(order[at : at + r]), r))
        at += r
    plan = joint_plan(cluster, tuple(stages))
    return PlanFile(problem, plan, evaluate(problem, plan), Provenance("GIVEN"))


def straight(stages: int) -> Plan:
    return planned([1] * stages).plan


def test_the_later_half_in_whole_cycles() -> None:
    # Filling takes its time; then completions come in pairs, two in 7 seconds.
    ends = [0.0, 10.0, 12.0, 17.0, 19.0, 24.0, 26.0, 31.0, 33.0]
    assert spacing_s(ends, 2) == pytest.approx(3.5)
    assert spacing_s(list(reversed(ends)), 2) == pytest.approx(3.5)
    assert spacing_s([1.0, 4.0], 1) == pytest.approx(3.0)
    assert spacing_s([1.0, 2.0, 3.0], 3) is None
    assert spacing_s([1.0], 1) is None
    assert spacing_s([], 1) is None


def test_under_1f1b_completions_count_while_the_first_stage_is_fed() -> None:
    first = log("F0 0-1, F1 1-2, B0 9-10, F2 10-11, B1 14-15, F3 15-16, B2 18-19, B3 19-20")
    last = log("F0 1-2, B0 2-9, F1 9-10, B1 10-14, F2 14-15, B2 15-18, F3 18-19, B3 19-20")
    # B2 and B3 end after the last forward pass of stage 0 has begun: the pipeline empties.
    assert steady_period_s(straight(2), {0: first, 1: last}, "1f1b", 1) == pytest.approx(5.0)


def test_under_gpipe_the_phases_add_up() -> None:
    first = log("F0 0-1, F1 1-2, F2 2-3, F3 3-4, B0 20-21, B1 21-27, B2 27-33, B3 33-39")
    last = log("F0 1-4, F1 4-7, F2 7-10, F3 10-13, B0 13-20, B1 20-21, B2 21-22, B3 22-23")
    # The later half: two forward passes of stage 1 in 6 s, two backward passes of stage 0 in 12 s.
    assert steady_period_s(straight(2), {0: first, 1: last}, "gpipe", 1) == pytest.approx(3 + 6)


def test_too_short_a_step_has_no_period() -> None:
    one = log("F0 0-1, B0 1-2")
    two = log("F0 0-1, F1 1-2, B0 2-3, B1 3-4")
    schedules: tuple[SyncSchedule, ...] = ("1f1b", "gpipe")
    for schedule in schedules:
        assert steady_period_s(straight(1), {0: one}, schedule, 1) is None
    assert steady_period_s(straight(1), {0: two}, "1f1b", 1) is None
    assert steady_period_s(straight(1), {0: two}, "gpipe", 1) == pytest.approx(2.0)


def test_where_the_time_of_a_rank_goes() -> None:
    found = log("F0 0-1-3, F1 3.5-4-6, B0 6.25-7-8, B1 8.25-8.25-10", sent_s=11.0)
    assert found.forward_s == pytest.approx(4.0)
    assert found.backward_s == pytest.approx(2.75)
    assert found.wait_s == pytest.approx(1 + 0.5 + 0.75)
    assert found.send_s == pytest.approx(0.5 + 0.25 + 0.25 + 1)
    assert StepLog.of(json.loads(json.dumps(found.to_json()))) == found


def written(
    folder: Path, rank: int, micro_batches: int, steps: list[tuple[StepLog, dict[str, float]]]
) -> None:
    entries = [{"step": i, **more, **found.to_json()} for i, (found, more) in enumerate(steps)]
    document = {"schedule": "1f1b", "micro_batches": micro_batches, "steps": entries}
    (folder / f"rank_{rank}.json").write_text(json.dumps(document))


def test_figures_of_a_run_beside_the_prediction(tmp_path: Path) -> None:
    """Two replicas and one; the first step is warm-up, with figures that would show."""
    file = planned([2, 1])
    slow = log("F0 0-50, B0 50-100", sent_s=200.0)
    more = {"seconds": 900.0, "sync_s": 9.0, "update_s": 9.0}
    idle = {"seconds": 0.032, "sync_s": 0.002, "update_s": 0.001}
    a = log("F0 0-0-.004, B0 .004-.016-.024", sent_s=0.024)
    b = log("F1 0-0-.006, B1 .006-.022-.030", sent_s=0.030)
    c = log("F0 0-.005-.007, B0 .007-.007-.013, F1 .013-.013-.015, B1 .015-.015-.019", sent_s=0.02)
    written(tmp_path, 0, 2, [(slow, more), (a, idle)])
    written(tmp_path, 1, 2, [(slow, more), (b, {**idle, "sync_s": 0.004})])
    written(tmp_path, 2, 2, [(slow, {**more, "loss": 3.0}), (c, {**idle, "loss": 2.0})])
    run = read_run(tmp_path, file)
    assert run.losses == (3.0, 2.0)
    first, second = run.stages
    # Seconds of both replicas, over two micro-batches and two replicas.
    assert first.forward_ms == pytest.approx((4 + 6) / 4)
    assert first.backward_ms == pytest.approx((8 + 8) / 4)
    assert first.compute_ms == pytest.approx(6.5)
    assert first.wait_ms == pytest.approx((12 + 16) / 4)
    assert first.sync_ms == pytest.approx((2 + 4) / 4)
    assert first.update_ms == pytest.approx(2 / 4)
    assert second.forward_ms == pytest.approx(4 / 2)
    assert second.send_ms == pytest.approx(1 / 2)
    assert (first.predicted_forward_ms, first.predicted_backward_ms) == (2.0, 4.0)
    assert first.predicted_compute_ms == 6.0
    assert run.predicted_period_ms == 6.0
    # One micro-batch through 3 layers and the cut, one period, and the all-reduce of 2 MB in 2 ms.
    assert run.predicted_step_ms == pytest.approx(18 + 2 + 6 + 2)
    assert first.predicted_sync_ms == pytest.approx(2 / 2)
    assert first.predicted_wait_ms == pytest.approx((28 - 2 * 6 - 2) / 2)
    assert run.step_ms == pytest.approx(32)
    assert run.period_ms is None
    # Rank 2 waits for micro-batch 0 from 4 to 5 ms; micro-batch 1 is there before it asks.
    (cut,) = run.cuts
    assert cut.activation_ms == pytest.approx(1.0)
    # Both gradients are waited for: from 13 to 16 ms, and from 19 to 22 ms.
    assert cut.gradient_ms == pytest.approx(3.0)
    assert cut.predicted_ms == pytest.approx(1.0)


def test_one_step_has_losses_and_no_times(tmp_path: Path) -> None:
    file = planned([1])
    written(tmp_path, 0, 1, [(log("F0 0-1, B0 1-2", 2.0), {"loss": 1.0, "seconds": 2.0})])
    run = read_run(tmp_path, file)
    assert run.losses == (1.0,)
    assert (run.period_ms, run.step_ms, run.stages[0].forward_ms) == (None, None, None)
    assert run.stages[0].compute_ms is None


def test_a_rank_without_a_record_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipeplanError, match="rank 0 left no record"):
        read_run(tmp_path, planned([1]))


def test_what_is_predicted_is_what_is_run() -> None:
    """An asynchronous plan that counts an all-reduce a round is run with one a batch."""
    file = planned([2])
    assert file.evaluation.topology.period_ms > 6
    asked = as_run(file.problem, "1f1b", 4)
    assert evaluate(asked, file.plan).topology.period_ms == 6
    assert asked.micro_batches == 4
