"""The bottleneck in words."""

from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeplan.core.bottleneck import bottleneck
from pipeplan.core.cluster import Cluster
from pipeplan.core.cost import evaluate
from pipeplan.core.plan import joint_plan
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
