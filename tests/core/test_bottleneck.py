"""The bottleneck in words."""

from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeplan.core.bottleneck import bottleneck, level_limits
from pipeplan.core.cluster import Cluster
from pipeplan.core.cost import evaluate
from pipeplan.core.plan import NestedStage, joint_plan, nested_plan
from pipeplan.core.problem import Problem


def text(problem: Problem, *stages: tuple[tuple[int, ...], int]) -> str:
    plan = joint_plan(problem.cluster, stages)
    return bottleneck(problem, plan, evaluate(problem, plan)).text


def test_a_device_is_named_with_its_stage_and_rank(make: SimpleNamespace) -> None:
    graph = make.chain(3, forward_ms=10.0, output_bytes=1, parameter_bytes=0)
    problem = Problem(graph, Cluster.of([4], [1e9]))
    assert text(problem, ((0,), 1), ((1, 2), 1)) == (
        "the GPU of stage 1 (rank 1): 60.000 ms of compute per micro-batch"
    )
    assert text(problem, ((0, 1, 2), 3)) == (
        "each of the 3 GPUs of stage 0: 30.000 ms of compute per micro-batch"
    )


def test_an_all_reduce_on_the_device_is_counted_unless_it_overlaps(make: SimpleNamespace) -> None:
    graph = make.chain(1, forward_ms=1.0, parameter_bytes=10**6)
    cluster = Cluster.of([2], [1e9])
    assert text(Problem(graph, cluster), ((0,), 2)).endswith(
        "1.500 ms of compute + 0.5 ms of all-reduce per micro-batch"
    )
    assert text(Problem(graph, cluster, overlap_sync=True), ((0,), 2)).endswith(
        "1.500 ms of compute per micro-batch"
    )


def test_a_port_is_named_with_its_rate(make: SimpleNamespace) -> None:
    graph = make.chain(2, output_bytes=10**6)
    problem = Problem(graph, Cluster.of([2, 2], [1e9, 1e6]))
    assert text(problem, ((0,), 2), ((1,), 2)) == (
        "the network port of server 0 (1 MB/s): 0 ms of all-reduce + 1000.000 ms of activations "
        "and gradients per micro-batch"
    )


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_it_is_busy_for_the_period(data: st.DataObject, make: SimpleNamespace) -> None:
    problem = data.draw(make.topology_problems())
    plan = data.draw(make.plans(problem.graph, problem.cluster))
    price = evaluate(problem, plan)
    found = bottleneck(problem, plan, price)
    assert found.busy_ms == price.topology.period_ms
    if found.kind == "device":
        assert found.stage is not None
        times = price.topology.stages[found.stage]
        busy = times.compute_ms + (0.0 if problem.overlap_sync else times.sync_ms)
        assert (found.level, found.child, busy) == (None, None, found.busy_ms)
    else:
        loads = {(p.level, p.child): p.busy_ms for p in price.topology.ports}
        assert loads[found.level, found.child] == found.busy_ms == max(loads.values())
        assert found.stage is None


def test_what_is_slowest_level_by_level(make: SimpleNamespace) -> None:
    # 3 layers of 30 ms, 1 MB of weights each: 2 servers run copies of 2 + 1 layers on 2 + 1 GPUs.
    graph = make.chain(3, forward_ms=10.0, parameter_bytes=10**6, output_bytes=1)
    cluster = Cluster.of([3, 2], [1e9, 1e8])
    inner = (NestedStage((0, 1), 2), NestedStage((2,), 1))
    plan = nested_plan(cluster, (NestedStage((0, 1, 2), 2, inner),))
    problem = Problem(graph, cluster, scope="nested", cost_model="levelwise")
    lines = level_limits(problem, plan)
    # All-reduces: 4 * 1/2 * 2 MB / 1 GB/s = 4 ms and 4 * 1/(2 * 3) * 3 MB / 0.1 GB/s = 20 ms.
    assert lines == [
        "Level 2, servers: stages 0-1 take 32.000 ms on the GPUs of one server + 20.000 ms of "
        "all-reduce, shared by 2 servers: 26.000 ms.",
        "Level 1, GPUs: stage 0 takes 60.000 ms of compute + 4.000 ms of all-reduce, shared by 2 "
        "GPUs: 32.000 ms.",
    ]
    assert evaluate(problem, plan).period_ms == 26.0
    assert level_limits(Problem(graph, cluster), joint_plan(cluster, (((0, 1, 2), 1),))) == []


def test_a_transfer_that_is_slowest_ends_the_list(make: SimpleNamespace) -> None:
    graph = make.chain(2, forward_ms=1.0, output_bytes=10**6, parameter_bytes=0)
    cluster = Cluster.of([1, 2], [1e9, 1e6])
    halves = tuple(NestedStage((v,), 1, (NestedStage((v,), 1),)) for v in (0, 1))
    problem = Problem(graph, cluster, scope="nested", cost_model="levelwise")
    (line,) = level_limits(problem, nested_plan(cluster, halves))
    assert line == (
        "Level 2, servers: stage 0 takes 2000.000 ms for the activations and gradients at an end, "
        "over 1 x 1 MB/s."
    )
