"""Cuts and inputs in one pass equal what the definition gives for each prefix."""

from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeplan.core.cuts import crossing_bytes, first_read_inputs
from pipeplan.core.graph import GraphInput, Layer, LayerGraph


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_each_cut_is_that_of_its_prefix(data: st.DataObject, make: SimpleNamespace) -> None:
    graph = data.draw(make.graphs(8))
    plan = data.draw(make.plans(graph, data.draw(make.clusters())))
    layers = [stage.layers for stage in plan.stages]
    assert crossing_bytes(graph, layers) == tuple(
        graph.cut_bytes(prefix) for prefix in plan.prefixes[:-1]
    )


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_each_input_belongs_to_the_first_stage_that_reads_it(
    data: st.DataObject, make: SimpleNamespace
) -> None:
    graph = data.draw(make.graphs(8))
    plan = data.draw(make.plans(graph, data.draw(make.clusters())))
    found = first_read_inputs(graph, [stage.layers for stage in plan.stages])
    unread = [x for x in graph.inputs if not x.consumers]
    assert sorted([x.id for own in found for x in own] + [x.id for x in unread]) == sorted(
        x.id for x in graph.inputs
    )
    before: set[str] = set()
    ids = [{graph.layers[v].id for v in stage.layers} for stage in plan.stages]
    for own, here in zip(found, ids, strict=True):
        for item in own:
            assert here & set(item.consumers)
            assert not before & set(item.consumers)
        before |= here


def test_the_last_stage_sends_nothing() -> None:
    graph = LayerGraph.build([Layer("a", 1, 1, 5), Layer("b", 1, 1, 7)], [("a", "b")])
    assert crossing_bytes(graph, [(0,), (1,)]) == (5,)
    assert crossing_bytes(graph, [(0, 1)]) == ()
    alone = LayerGraph.build([Layer("a", 1, 1, 5)], [], inputs=[GraphInput("x", 3, ("a",))])
    assert [[x.id for x in own] for own in first_read_inputs(alone, [(0,)])] == [["x"]]


def test_a_long_plan_is_priced_in_one_pass(make: SimpleNamespace) -> None:
    # With a set per prefix this took quadratic time and memory: 20,000 stages of 20,000 layers.
    graph = make.chain(20_000, output_bytes=3)
    assert set(crossing_bytes(graph, [(v,) for v in range(20_000)])) == {3}
