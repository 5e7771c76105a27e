"""The simulation: timelines by hand, agreement with core.cost, memory, disturbances."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeplan.core.cluster import Cluster, Level
from pipeplan.core.cost import evaluate
from pipeplan.core.errors import PipeplanError
from pipeplan.core.graph import Layer, LayerGraph
from pipeplan.core.memory import stage_memory
from pipeplan.core.plan import Plan, joint_plan
from pipeplan.core.problem import Problem
from pipeplan.models.formats import read_profile
from pipeplan.validation.simulation import SimulationOptions, enough_in_flight, simulate
from pipeplan.validation.simulation.engine import BACKWARD, FORWARD, SYNC
from pipeplan.validation.simulation.memory import holdings, memory_peaks
from pipeplan.validation.simulation.network import Events, Network
from pipeplan.validation.simulation.pipeline import Link
from pipeplan.validation.simulation.result import Simulation
from pipeplan.validation.simulation.steady import steady

Row = tuple[float, float, int, int]
GB = 10**9
FAST = Cluster.of((4,), (1000 * GB,))


def case(
    rows: Sequence[Row], replicas: Sequence[int], cluster: Cluster, **options: object
) -> tuple[Problem, Plan]:
    """A chain with one layer a stage; a row is (forward ms, backward ms, output, parameters)."""
    layers = [Layer(f"n{i}", f, b, out, weights) for i, (f, b, out, weights) in enumerate(rows)]
    graph = LayerGraph.build(layers, [(f"n{i}", f"n{i + 1}") for i in range(len(rows) - 1)])
    problem = Problem(graph, cluster, **options)  # type: ignore[arg-type]
    return problem, joint_plan(cluster, tuple(((v,), r) for v, r in enumerate(replicas)))


def timeline(result: Simulation, until_ms: float = math.inf) -> dict[int, str]:
    """What every rank did, as text such as F0@0-1 B0@2-4, in order."""
    log = result.run.operations
    out: dict[int, list[tuple[float, str]]] = {}
    for rank, kind, m, start, end in zip(
        log.rank, log.kind, log.micro_batch, log.start_ms, log.end_ms, strict=True
    ):
        if start < until_ms:
            out.setdefault(rank, []).append((start, f"{'FBS'[kind]}{m}@{start:g}-{end:g}"))
    return {rank: " ".join(x for _, x in sorted(entries)) for rank, entries in sorted(out.items())}


def test_one_forward_one_backward_by_hand() -> None:
    problem, plan = case(
        [(1, 2, 0, 0), (1, 2, 0, 0), (1, 2, 0, 0)],
        [1, 1, 1],
        FAST,
        schedule="1f1b",
        micro_batches=4,
    )
    result = simulate(problem, plan)
    assert timeline(result) == {
        0: "F0@0-1 F1@1-2 F2@2-3 B0@7-9 F3@9-10 B1@10-12 B2@13-15 B3@16-18",
        1: "F0@1-2 F1@2-3 B0@5-7 F2@7-8 B1@8-10 F3@10-11 B2@11-13 B3@14-16",
        2: "F0@2-3 B0@3-5 F1@5-6 B1@6-8 F2@8-9 B2@9-11 F3@11-12 B3@12-14",
    }
    assert result.batch_ms == 18 == result.predicted_batch_ms
    assert result.period_ms == pytest.approx(3)
    assert [x.peak_in_flight for x in result.stages] == [3, 2, 1]
    assert result.stages[0].bubble == pytest.approx(6 / 18)


def test_gpipe_by_hand() -> None:
    problem, plan = case(
        [(1, 3, 0, 0), (2, 1, 0, 0)], [1, 1], FAST, schedule="gpipe", micro_batches=2
    )
    result = simulate(problem, plan)
    assert timeline(result) == {
        0: "F0@0-1 F1@1-2 B0@6-9 B1@9-12",
        1: "F0@1-3 F1@3-5 B0@5-6 B1@6-7",
    }
    # The forward phase is held up by stage 1, the backward phase by stage 0: 2 + 3, not 4.
    assert result.predicted_ms == 4
    assert result.floor_ms == 5
    assert result.period_ms == pytest.approx(5)


def test_messages_occupy_every_port_for_its_own_time_and_take_the_slowest() -> None:
    cluster = Cluster((Level(2, 4e6), Level(2, 1e6, latency_ms=0.5)))
    # 1e3 bytes: 0.25 ms at the GPUs' ports, 1 ms at the servers', which sets the pace.
    problem, plan = case(
        [(1, 0.5, 1000, 0), (1, 0.5, 0, 0)], [2, 2], cluster, schedule="1f1b", micro_batches=2
    )
    result = simulate(problem, plan)
    # Both messages leave server 0 one after the other: 1-2 and 2-3, half a ms of latency on top.
    assert timeline(result)[2] == "F0@2.5-3.5 B0@3.5-4"
    assert timeline(result)[3] == "F1@3.5-4.5 B1@4.5-5"
    price = evaluate(problem, plan).topology
    assert price.bottleneck_port is not None
    assert price.period_ms == 1.0
    assert result.period_ms is not None
    assert result.period_ms >= 1.0


def test_bulk_traffic_gives_way_but_is_not_starved() -> None:
    events = Events()
    network = Network(events, 1, record=True)
    seen: list[tuple[str, float]] = []

    def note(time_ms: float, name: str, _: None) -> None:
        seen.append((name, time_ms))

    def later(time_ms: float, name: str, _: None) -> None:
        network.send(time_ms, Link(((0, 2.0),), 0.0), note, name, None, tag=1, rank=0)

    network.send_bulk(0.0, 0, 5.0, note, "bulk", None, tag=-1)
    events.at(1.0, later, "first", None)
    events.at(1.5, later, "second", None)
    events.run()
    # Bulk 0-1, first 1-3, bulk as long as that: 3-5, second 5-7, what is left of the bulk 7-9.
    assert seen == [("first", 3.0), ("second", 7.0), ("bulk", 9.0)]
    busy = network.busy()
    assert sum(
        end - start for start, end in zip(busy.start_ms, busy.end_ms, strict=True)
    ) == pytest.approx(9.0)


def test_steady_takes_the_shortest_repetition() -> None:
    warm = [0.0, 7.0, 11.0]
    times = warm + [12.0 + 10 * (i // 2) + (3 if i % 2 else 0) for i in range(40)]
    found = steady(np.array(times), 1)
    assert found is not None
    assert found.exact
    assert found.period_ms == 5.0
    assert found.last - found.first == 2
    assert steady(np.array([1.0, 2.0]), 1) is None


def test_all_reduce_takes_device_and_port_and_waits_for_every_replica() -> None:
    # 2 replicas: 2 (q-1)/q * 4e6 bytes at 1e9 bytes/s are 4 ms, once per micro-batch of each.
    problem, plan = case([(1, 2, 0, 4_000_000)], [2], Cluster.of((2,), (GB,)))
    result = simulate(problem, plan)
    assert result.predicted_ms == pytest.approx(3.5)
    assert result.period_ms == pytest.approx(3.5)
    assert timeline(result, 10)[0] == "F0@0-1 B0@1-3 S0@3-7 F2@7-8 B2@8-10"
    assert result.stages[0].sync == pytest.approx(4 / 7)
    shares = {(x.port.child, x.port.direction): x.sync for x in result.ports}
    assert shares == pytest.approx({(r, way): 4 / 7 for r in (0, 1) for way in ("in", "out")})
    slow = simulate(problem, plan, SimulationOptions(micro_batches=400, stragglers=((1, 3.0),)))
    # The fast replica may be a few micro-batches ahead, which shows in a finite average.
    assert slow.period_ms == pytest.approx((3 * 3 + 4) / 2, rel=1e-2)


def test_overlapped_all_reduce_leaves_the_device_alone_but_not_the_port() -> None:
    rows = [(1.0, 2.0, 0, 4_000_000)]
    problem, plan = case(rows, [2], Cluster.of((2,), (GB,)), overlap_sync=True)
    result = simulate(problem, plan)
    assert SYNC not in result.run.operations.kind
    # The port needs 4 ms a round, the device 3: the port decides, and the simulation obeys it.
    assert result.predicted_ms == pytest.approx(2.0)
    assert result.period_ms == pytest.approx(2.0)


def test_a_blocking_all_reduce_makes_replicas_wait() -> None:
    rows = [(1.0, 2.0, 0, 0), (2.0, 4.0, 0, 100_000)]
    problem, plan = case(rows, [1, 2], Cluster.of((3,), (GB,)))
    free, blocking = (simulate(problem, plan, SimulationOptions(barrier=x)) for x in (False, True))
    assert free.period_ms is not None
    assert blocking.period_ms is not None
    assert blocking.period_ms > 1.1 * free.period_ms


def test_room_for_more_in_flight_hides_transfers() -> None:
    # 2 ms each way between stages of 3 ms each: 1F1B's own counts cannot keep both busy.
    problem, plan = case([(1, 2, 2_000_000, 0), (1, 2, 0, 0)], [1, 1], Cluster.of((2,), (GB,)))
    result = simulate(problem, plan)
    assert result.predicted_ms == 3.0
    assert result.period_ms == pytest.approx(5.0)  # 2 in flight in a loop of 1+2+1+2+2+2 ms
    better = enough_in_flight(problem, plan, SimulationOptions())
    assert better is not None
    assert better.period_ms == pytest.approx(3.0)
    assert better.options.extra_in_flight == 2


def test_jitter_is_seeded_and_costs_time() -> None:
    problem, plan = case([(1, 2, 0, 0)] * 4, [1] * 4, FAST)
    options = SimulationOptions(micro_batches=400, jitter=0.3, seed=7)
    first, second = simulate(problem, plan, options), simulate(problem, plan, options)
    assert first.run == second.run
    assert first.period_ms is not None
    assert first.period_ms > 3.0
    other = simulate(problem, plan, SimulationOptions(micro_batches=400, jitter=0.3, seed=8))
    assert other.run != first.run


def test_held_memory_over_time() -> None:
    problem, plan = case([(1, 2, 10, 100), (1, 2, 20, 200)], [1, 1], FAST)
    result = simulate(problem, plan)
    memory = stage_memory(problem, plan)
    assert [x.peak_bytes for x in result.stages] == [x.peak_bytes for x in memory]
    (series,) = holdings(result.pipeline, result.run, [0])
    # 4 copies of 100 bytes of weights; 10 bytes for each micro-batch; 100 for an older version.
    shown = [(x.time_ms, x.in_flight, x.versions, x.total_bytes) for x in series[:4]]
    assert shown[:2] == [(0.0, 1, 0, 410), (1.0, 2, 0, 420)]
    assert max(x.versions for x in series) == 1
    assert max(x.total_bytes for x in series) == 520


@pytest.mark.parametrize(
    "options",
    [
        {"micro_batches": 0},
        {"jitter": -1.0},
        {"jitter": math.nan},
        {"stragglers": ((0, 0.0),)},
        {"stragglers": ((0, 2.0), (0, 3.0))},
        {"extra_in_flight": -1},
        {"seed": -1},
    ],
)
def test_options_without_meaning_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(PipeplanError):
        SimulationOptions(**options)  # type: ignore[arg-type]


def test_a_straggler_must_hold_a_stage() -> None:
    problem, plan = case([(1, 2, 0, 0)], [1], FAST)
    with pytest.raises(PipeplanError, match="rank 3 holds no stage"):
        simulate(problem, plan, SimulationOptions(stragglers=((3, 2.0),)))


def test_too_large_a_run_is_refused() -> None:
    problem, plan = case([(1, 2, 0, 0)] * 8, [1] * 8, Cluster.of((8,), (GB,)))
    with pytest.raises(PipeplanError, match="1000000 micro-batches through 8 stages"):
        simulate(problem, plan, SimulationOptions(micro_batches=10**6))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Problem, Plan]:
    """Chains of 1-4 stages on clusters of one or two levels, under every schedule."""
    stages = draw(st.integers(1, 4))
    # Whole milliseconds and kilobytes: ties are frequent, which is where order matters.
    rows = [
        (
            float(draw(st.integers(0, 4))),
            float(draw(st.integers(1, 6))),
            draw(st.sampled_from([0, 500, 1000, 4000])),
            draw(st.sampled_from([0, 1000, 6000])),
        )
        for _ in range(stages)
    ]
    inner, outer = draw(st.sampled_from([(2, 2), (4, 1), (3, 2), (8, 1), (2, 4)]))
    replicas = [1] * stages
    for _ in range(draw(st.integers(0, inner * outer - stages)) if inner * outer > stages else 0):
        replicas[draw(st.integers(0, stages - 1))] += 1
    if sum(replicas) > inner * outer:
        rows, replicas = rows[:1], [1]
    schedule = draw(st.sampled_from(["pipedream", "1f1b", "gpipe"]))
    cluster = Cluster.of(
        (inner, outer),
        (draw(st.sampled_from([5e5, 1e6, 1e9])), draw(st.sampled_from([3e5, 1e6, 1e9]))),
        duplex=draw(st.sampled_from(["full", "half"])),
    )
    return case(
        rows,
        replicas,
        cluster,
        schedule=schedule,
        micro_batches=None if schedule == "pipedream" else draw(st.integers(1, 12)),
        overlap_sync=draw(st.booleans()),
    )


@settings(max_examples=100, deadline=None)
@given(cases())
def test_never_below_the_prediction_and_at_it_without_contention(
    drawn: tuple[Problem, Plan],
) -> None:
    problem, plan = drawn
    result = simulate(problem, plan)
    predicted = evaluate(problem, plan).topology.period_ms
    assert result.predicted_ms == predicted
    assert result.floor_ms >= predicted * (1 - 1e-12)
    if result.period_ms is None:
        return
    slack = 1e-9 if result.exact else 0.02
    assert result.period_ms >= result.floor_ms * (1 - slack)
    # One resource that everything passes is busy all the time: no waiting may be invented.
    if len(plan.stages) == 1:
        assert result.period_ms <= predicted * 1.01


@settings(max_examples=40, deadline=None)
@given(cases())
def test_memory_is_what_core_memory_says(drawn: tuple[Problem, Plan]) -> None:
    problem, plan = drawn
    if problem.schedule == "gpipe":
        return  # dealing may give a rank more than the even share, and gpipe keeps all of it
    result = simulate(problem, plan)
    for share, memory in zip(result.stages, stage_memory(problem, plan), strict=True):
        assert share.peak_in_flight <= memory.in_flight
        assert share.peak_bytes <= memory.peak_bytes


def replayed(result: Simulation, rank: int) -> list[tuple[float, int, int]]:
    """(time, micro-batches held, older versions kept) after every change, one change at a time."""
    log = result.run.operations
    changes = []
    for r, kind, m, start, end in zip(
        log.rank, log.kind, log.micro_batch, log.start_ms, log.end_ms, strict=True
    ):
        if r == rank and kind != SYNC:
            changes.append((start, 2, m) if kind == FORWARD else (end, 0, m))
    if not result.pipeline.problem.synchronous:
        changes += [(time_ms, 1, -1) for r, time_ms in result.run.updates if r == rank]
    under: dict[int, int] = {}
    applied = version = 0
    out: dict[float, tuple[int, int]] = {}
    for time_ms, what, m in sorted(changes):
        if what == 1:
            applied += 1
            continue
        if what == 2:
            under[m] = version = applied
        else:
            del under[m]
        out[time_ms] = len(under), len(set(under.values()) - {version})
    return [(time_ms, *held) for time_ms, held in out.items()]


@settings(max_examples=60, deadline=None)
@given(cases(), st.booleans())
def test_memory_over_time_is_that_of_a_replay(drawn: tuple[Problem, Plan], slow: bool) -> None:
    problem, plan = drawn
    first = plan.stages[0].ranks[0]
    options = SimulationOptions(stragglers=((first, 3.0),) if slow else ())
    result = simulate(problem, plan, options)
    ranks = [rank for stage in plan.stages for rank in stage.ranks]
    series = holdings(result.pipeline, result.run, ranks)
    peaks = memory_peaks(result.pipeline, result.run)
    for rank, own in zip(ranks, series, strict=True):
        assert [(x.time_ms, x.in_flight, x.versions) for x in own] == replayed(result, rank)
        if own:
            peak = peaks.pop(rank)
            assert peak.total_bytes >= max(x.total_bytes for x in own)
            assert peak.in_flight >= max(x.in_flight for x in own)
    assert not peaks


@settings(max_examples=40, deadline=None)
@given(cases())
def test_every_pass_runs_once_and_no_rank_does_two_things(drawn: tuple[Problem, Plan]) -> None:
    problem, plan = drawn
    result = simulate(problem, plan)
    log = result.run.operations
    stage_of = plan.stage_of_rank
    done = [
        (m, stage_of[rank], kind)
        for rank, kind, m in zip(log.rank, log.kind, log.micro_batch, strict=True)
        if kind != SYNC
    ]
    assert len(set(done)) == len(done) == 2 * result.run.micro_batches * len(plan.stages)
    for rank in stage_of:
        spans = sorted(
            (start, end)
            for r, start, end in zip(log.rank, log.start_ms, log.end_ms, strict=True)
            if r == rank
        )
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
    port_spans: dict[int, list[tuple[float, float]]] = {}
    busy = result.run.ports
    for port, start, end in zip(busy.port, busy.start_ms, busy.end_ms, strict=True):
        port_spans.setdefault(port, []).append((start, end))
    for spans in port_spans.values():
        spans.sort()
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(spans))
    ends = {
        (m, stage_of[rank], kind): (start, end)
        for rank, kind, m, start, end in zip(
            log.rank, log.kind, log.micro_batch, log.start_ms, log.end_ms, strict=True
        )
        if kind != SYNC
    }
    last = len(plan.stages) - 1
    for m in range(result.run.micro_batches):
        for s in range(last):
            assert ends[m, s + 1, FORWARD][0] >= ends[m, s, FORWARD][1]
            assert ends[m, s, BACKWARD][0] >= ends[m, s + 1, BACKWARD][1]
        assert ends[m, last, BACKWARD][0] >= ends[m, last, FORWARD][1]


def test_a_contested_port_carries_all_reduces_and_messages_at_the_predicted_rate() -> None:
    """Where all-reduces gave way to every message, devices waited for them at 98 % port load."""
    graph = read_profile("resnet18").graph
    cluster = Cluster.of((8, 2), (4 * 2.0**30, 2 * 2.0**30))
    problem = Problem(graph, cluster)
    n = len(graph)
    cuts = [0, n * 5 // 8, n * 6 // 8, n]
    layers = [tuple(range(a, b)) for a, b in pairwise(cuts)]
    plan = joint_plan(cluster, tuple(zip(layers, (12, 2, 2), strict=True)))
    better = enough_in_flight(problem, plan, SimulationOptions())
    assert better is not None
    assert better.period_ms == pytest.approx(better.predicted_ms, rel=0.01)


def test_a_repetition_during_which_all_reduces_fall_behind_is_no_steady_state() -> None:
    """Completions came every 10.375 ms for a while, and the port they need is busy for 10.5 ms."""
    cluster = Cluster.of((2, 2), (1e9, 1e6), duplex="half")
    rows = [(0.0, 1.0, 4000, 0), (0.0, 5.0, 500, 6000), (0.0, 1.0, 0, 0)]
    problem, plan = case(rows, [1, 2, 1], cluster)
    result = simulate(problem, plan)
    assert result.floor_ms == 10.5
    assert result.period_ms is not None
    assert result.period_ms >= 10.5 * (1 - 1e-3)
    falling_behind = np.arange(40) * 2.0
    found = steady(np.arange(40.0), 1, [falling_behind])
    assert found is not None
    assert (found.period_ms, found.exact) == (2.0, False)
    exact = steady(np.arange(40.0), 1, [np.arange(30.0) - 5])
    assert exact is not None
    assert exact.exact
