"""Contraction: what it merges, that it says so, and that it loses no plan."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeplan.core.cluster import Cluster
from pipeplan.core.graph import GraphInput, Layer, LayerGraph, Together
from pipeplan.core.problem import Constraints, Problem
from pipeplan.solver.ideals import enumerate_ideals
from pipeplan.solver.reduce import ReducedGraph, reduce_graph

CLUSTER = Cluster.of([2], [1e9])


def chain(
    count: int, *groups: tuple[int, ...], extra: tuple[tuple[int, int], ...] = ()
) -> LayerGraph:
    layers = [Layer(f"n{i}", 1.0, 2.0, 10 * (i + 1), 100, 7) for i in range(count)]
    edges = [(f"n{i}", f"n{i + 1}") for i in range(count - 1)]
    edges += [(f"n{a}", f"n{b}") for a, b in extra]
    tied = [Together(tuple(f"n{v}" for v in group), "tied weights") for group in groups]
    return LayerGraph.build(layers, edges, together=tied)


def reduced(graph: LayerGraph, **asked: tuple[tuple[int, ...], ...]) -> ReducedGraph:
    return reduce_graph(Problem(graph, CLUSTER, constraints=Constraints(**asked)))


def test_a_group_takes_along_what_lies_between() -> None:
    found = reduced(chain(6, (1, 3)))
    assert found.members == ((0,), (1, 2, 3), (4,), (5,))
    assert found.compute_ms[1] == 9.0
    assert found.parameter_bytes[1] == 300
    assert found.kept_bytes[1] == 21
    assert found.notes == (
        "3 of 6 layers were contracted to 1, so that 4 are placed",
        "together: n1, n2, n3 (tied weights)",
    )


def test_groups_that_share_a_layer_or_enclose_each_other_become_one() -> None:
    assert reduced(chain(6, (0, 1), (1, 4))).members == ((0, 1, 2, 3, 4), (5,))


def test_the_askers_groups_count_too() -> None:
    assert reduced(chain(3), together=((0, 2),)).members == ((0, 1, 2),)


def test_cost_model_pipedream_knows_no_groups() -> None:
    problem = Problem(chain(3, (0, 2)), CLUSTER, scope="nested", cost_model="pipedream")
    assert len(reduce_graph(problem)) == 3


def test_nothing_is_merged_without_a_reason() -> None:
    found = reduced(chain(4))
    assert len(found) == 4
    assert found.notes == ()


def test_edges_that_others_imply_go_and_tensors_keep_their_last_readers() -> None:
    found = reduced(chain(4, extra=((0, 2), (0, 3))))
    assert found.edges == ((0, 1), (1, 2), (2, 3))
    # n0 is read by n1, n2 and n3: whoever holds n3 holds the others.
    assert found.tensors[0].consumers == (3,)
    assert found.tensors[0].bytes_ == 10


def test_tensors_of_one_block_to_the_same_readers_are_one() -> None:
    layers = [Layer("a", 1.0, 1.0, 5), Layer("b", 1.0, 1.0, 6), Layer("c", 1.0, 1.0, 7)]
    graph = LayerGraph.build(
        layers, [("a", "c"), ("b", "c")], together=[Together(("a", "b"), "in place")]
    )
    assert [(t.producer, t.consumers, t.bytes_) for t in reduced(graph).tensors] == [(0, (1,), 11)]


def test_inputs_enter_with_their_first_readers() -> None:
    layers = [Layer(f"n{i}", 1.0, 1.0, 1) for i in range(3)]
    graph = LayerGraph.build(
        layers,
        [("n0", "n1"), ("n1", "n2")],
        inputs=[GraphInput("x", 9, ("n1", "n2")), GraphInput("y", 4, ("n1",))],
    )
    assert [(f.consumers, f.bytes_) for f in reduced(graph).feeds] == [((1,), 13)]


def test_a_cut_is_known_by_its_ends_unless_it_splits_a_block() -> None:
    found = reduced(chain(5, (1, 2)))
    assert found.ends(frozenset({0, 1, 2})) == ((1,), (2,))
    assert found.ends(frozenset({0, 1})) is None


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_the_ideals_left_are_those_that_split_no_group(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 7))
    edges = [
        (f"n{i}", f"n{j}")
        for j in range(count)
        for i in range(j)
        if data.draw(st.integers(0, 3)) == 0
    ]
    pair = data.draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=3, unique=True))
    graph = LayerGraph.build(
        [Layer(f"n{i}", 1.0, 1.0, 1) for i in range(count)],
        edges,
        together=[Together(tuple(f"n{i}" for i in pair), "tied")],
    )
    group = {graph.index[f"n{i}"] for i in pair}
    every = [frozenset(v for v in range(count) if bits >> v & 1) for bits in range(1 << count)]
    wanted = {
        cut for cut in every if graph.is_down_closed(cut) and (group <= cut or not group & cut)
    }
    table = enumerate_ideals(reduced(graph))
    # Cuts between which no other lies but that a stage would still be convex: exactly the same.
    assert {table.layers_of(i) for i in range(len(table))} == wanted
