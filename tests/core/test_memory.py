"""Memory against a second, naive writing of DESIGN 4.3; in-flight counts as written-out tables."""

import math
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeplan.core.cluster import Cluster
from pipeplan.core.graph import GraphInput, Layer, LayerGraph
from pipeplan.core.memory import stage_memory
from pipeplan.core.plan import Plan, Stage, joint_plan
from pipeplan.core.problem import Problem
from pipeplan.core.schedule import in_flight, is_synchronous


def naive_peaks(problem: Problem, plan: Plan) -> list[tuple[int, int]]:
    """(in flight, peak bytes) of a rank of each stage."""
    graph = problem.graph
    out = []
    for s, stage in enumerate(plan.stages):
        from_here = sum(len(x.ranks) for x in plan.stages[s:])
        held = math.ceil(from_here / len(stage.ranks))
        if problem.micro_batches is not None:
            dealt = math.ceil(problem.micro_batches / len(stage.ranks))
            held = min(held, dealt) if problem.schedule == "1f1b" else dealt
        weights = sum(graph.layers[v].parameter_bytes for v in stage.layers)
        kept = 0
        for v in stage.layers:
            saved = graph.layers[v].saved_bytes
            kept += graph.layers[v].output_bytes if saved is None else saved
        before = {v for x in plan.stages[:s] for v in x.layers}
        entering = sum(
            graph.layers[v].output_bytes
            for v in before
            if any(w not in before for u, w in graph.edges if u == v)
        )
        for item in graph.inputs:
            readers = {graph.index[x] for x in item.consumers}
            if readers & set(stage.layers) and not readers & before:
                entering += item.output_bytes
        peak = weights * problem.weight_copies
        peak += held * entering + kept if problem.recompute else held * kept
        if problem.schedule == "pipedream":
            peak += (held - 1) * weights
        out.append((held, peak))
    return out


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_every_stage_holds_what_the_naive_writing_says(
    data: st.DataObject, make: SimpleNamespace
) -> None:
    problem = data.draw(make.topology_problems())
    plan = data.draw(make.plans(problem.graph, problem.cluster))
    found = [(x.in_flight, x.peak_bytes) for x in stage_memory(problem, plan)]
    assert found == naive_peaks(problem, plan)


@pytest.mark.parametrize(
    ("schedule", "micro_batches", "replicas", "expected"),
    [
        # A straight pipeline of four: S - s under 1F1B, all m under GPipe.
        ("pipedream", None, (1, 1, 1, 1), (4, 3, 2, 1)),
        ("1f1b", 8, (1, 1, 1, 1), (4, 3, 2, 1)),
        ("1f1b", 2, (1, 1, 1, 1), (2, 2, 2, 1)),
        ("gpipe", 8, (1, 1, 1, 1), (8, 8, 8, 8)),
        # 14 replicas before 2, as in the VGG16 plan of PipeDream; and the reverse.
        ("pipedream", None, (14, 2), (2, 1)),
        ("pipedream", None, (2, 14), (8, 1)),
        ("1f1b", 14, (14, 2), (1, 1)),
        ("1f1b", 15, (14, 2), (2, 1)),
        ("gpipe", 14, (14, 2), (1, 7)),
        ("gpipe", 15, (14, 2), (2, 8)),
        ("pipedream", None, (3, 2, 1), (2, 2, 1)),
    ],
)
def test_in_flight_tables(
    schedule: str, micro_batches: int | None, replicas: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    counts = tuple(
        in_flight(schedule, sum(replicas[s:]), r, micro_batches)  # type: ignore[arg-type]
        for s, r in enumerate(replicas)
    )
    assert counts == expected
    assert is_synchronous(schedule) == (micro_batches is not None)  # type: ignore[arg-type]


def test_one_stage_written_out() -> None:
    graph = LayerGraph.build(
        [Layer("a", 1, 1, 1000, 7), Layer("b", 1, 1, 100, 11, saved_bytes=30), Layer("c", 1, 1, 9)],
        [("a", "b"), ("b", "c"), ("a", "c")],
        inputs=[GraphInput("x", 5, ("a", "c")), GraphInput("y", 50, ("b",))],
    )
    cluster = Cluster.of([3], [1.0])
    plan = joint_plan(cluster, (((0,), 1), ((1,), 1), ((2,), 1)))
    asynchronous = stage_memory(Problem(graph, cluster), plan)
    assert [x.peak_bytes for x in asynchronous] == [
        4 * 7 + 2 * 7 + 3 * 1000,
        4 * 11 + 11 + 2 * 30,
        9,
    ]
    again = Problem(graph, cluster, schedule="gpipe", micro_batches=5, recompute=True)
    assert [x.peak_bytes for x in stage_memory(again, plan)] == [
        4 * 7 + 5 * 5 + 1000,
        4 * 11 + 5 * (1000 + 50) + 30,
        5 * (100 + 1000) + 9,
    ]


def test_replicas_halve_nothing_of_a_rank() -> None:
    # Each replica holds whole weights and whole activations of its own micro-batches.
    graph = LayerGraph.build([Layer("a", 1, 1, 100, 10)], [])
    cluster = Cluster.of([4], [1.0])
    for ranks in ((0,), (0, 1, 2, 3)):
        plan = Plan((Stage((0,), ranks),))
        assert stage_memory(Problem(graph, cluster), plan)[0].peak_bytes == 140
