"""Ideals and their sums, against brute force over all subsets."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeplan.core.cluster import Cluster
from pipeplan.core.errors import TooLargeError
from pipeplan.core.graph import GraphInput, Layer, LayerGraph, Together
from pipeplan.core.problem import Problem
from pipeplan.solver.backends.dp.pairs import Pairs
from pipeplan.solver.ideals import enumerate_ideals
from pipeplan.solver.reduce import reduce_graph


@st.composite
def graphs(draw: st.DrawFn) -> LayerGraph:
    count = draw(st.integers(1, 7))
    layers = [
        Layer(
            f"n{i}",
            draw(st.sampled_from([0.0, 0.1, 1.0])),
            0.0,
            draw(st.integers(0, 9)),
            draw(st.integers(0, 9)),
            draw(st.sampled_from([None, 5])),
        )
        for i in range(count)
    ]
    edges = [
        (f"n{i}", f"n{j}") for j in range(count) for i in range(j) if draw(st.integers(0, 2)) == 0
    ]
    readers = sorted({f"n{draw(st.integers(0, count - 1))}" for _ in range(2)})
    pair = sorted({draw(st.integers(0, count - 1)) for _ in range(2)})
    return LayerGraph.build(
        layers,
        edges,
        inputs=[GraphInput("x", draw(st.integers(0, 9)), tuple(readers))],
        together=[Together(tuple(f"n{i}" for i in pair), "tied")] if draw(st.booleans()) else [],
    )


def brute_force(problem: Problem) -> set[frozenset[int]]:
    graph = problem.graph
    found = set()
    for size in range(len(graph) + 1):
        for chosen in combinations(range(len(graph)), size):
            ideal = frozenset(chosen)
            if graph.is_down_closed(ideal) and all(
                len({v in ideal for v in group}) == 1 for group in problem.together
            ):
                found.add(ideal)
    return found


@settings(max_examples=120, deadline=None, derandomize=True)
@given(graphs())
def test_every_ideal_with_its_sums(graph: LayerGraph) -> None:
    problem = Problem(graph, Cluster.of([2], [1e9]))
    table = enumerate_ideals(reduce_graph(problem))
    sets = [table.layers_of(i) for i in range(len(table))]
    # A group that is not convex takes what lies between along, which brute force over single sets
    # cannot see: an ideal holds all of it or none anyway.
    assert set(sets) == brute_force(problem)
    assert len(sets) == len(set(sets))
    assert sets[0] == frozenset()
    assert len(sets[-1]) == len(graph)
    for i, ideal in enumerate(sets):
        assert table.compute_ms[i] == pytest.approx(graph.compute_ms(ideal), rel=1e-12)
        assert table.parameter_bytes[i] == graph.parameter_bytes(ideal)
        assert table.cut_bytes[i] == graph.cut_bytes(ideal)
        assert table.kept_bytes[i] == sum(graph.layers[v].kept_bytes for v in ideal)
        fed = sum(
            x.output_bytes
            for x in graph.inputs
            if any(graph.index[c] in ideal for c in x.consumers)
        )
        assert table.input_bytes[i] == fed
        assert table.index_of(ideal) == i


@settings(max_examples=120, deadline=None, derandomize=True)
@given(graphs())
def test_followers_and_segments(graph: LayerGraph) -> None:
    problem = Problem(graph, Cluster.of([2], [1e9]))
    table = enumerate_ideals(reduce_graph(problem))
    pairs = Pairs(problem, table)
    sets = [table.layers_of(i) for i in range(len(table))]
    for i, ideal in enumerate(sets):
        assert pairs.followers(i).tolist() == [j for j, other in enumerate(sets) if ideal < other]
        for j, other in enumerate(sets):
            if pairs.segment[i] < pairs.segment[j]:
                assert ideal < other
    # A segment ends where, and only where, a cut compares to all others.
    comparable = [all(a <= b or b <= a for b in sets) for a in sets]
    ends = [i + 1 == pairs.segment_end[i] for i in range(len(sets))]
    assert ends == comparable


def test_more_ideals_than_the_limit_are_counted() -> None:
    graph = LayerGraph.build([Layer(f"n{i}", 1.0, 1.0, 10) for i in range(12)], [])
    reduced = reduce_graph(Problem(graph, Cluster.of([2], [1e9])))
    with pytest.raises(TooLargeError, match=r"more than 1000 .*counted \d+ before.*cpsat"):
        enumerate_ideals(reduced, limit=1000)
    assert len(enumerate_ideals(reduced, limit=4096)) == 4096


def test_the_order_in_a_file_does_not_show() -> None:
    layers = [Layer(f"n{i}", 0.1 * i, 1.0, 10 * i, i) for i in range(6)]
    edges = [("n0", "n3"), ("n1", "n3"), ("n3", "n4"), ("n2", "n5")]
    tables = []
    for turn in (1, -1):
        graph = LayerGraph.build(layers[::turn], edges[::turn])
        tables.append(enumerate_ideals(reduce_graph(Problem(graph, Cluster.of([2], [1e9])))))
    for field in ("masks", "compute_ms", "parameter_bytes", "cut_bytes", "kept_bytes"):
        assert getattr(tables[0], field).tobytes() == getattr(tables[1], field).tobytes()
