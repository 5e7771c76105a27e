"""The layer graph: what it refuses, and that no order of its input shows."""

import math
import random
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeplan.core.errors import ProfileError
from pipeplan.core.graph import (
    MAX_LAYERS,
    GraphInput,
    Layer,
    LayerGraph,
    Together,
    natural_key,
)


def layers(*ids: str) -> list[Layer]:
    return [Layer(x, 1, 2, 3, 4) for x in ids]


def refused(pattern: str, *args: Any, **more: Any) -> str:
    with pytest.raises(ProfileError, match=pattern) as caught:
        LayerGraph.build(*args, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("field", ["forward_ms", "backward_ms"])
@pytest.mark.parametrize(
    "value",
    [
        -1,
        -1e-9,
        math.nan,
        math.inf,
        -math.inf,
        1e16,
        pytest.param(10**400, id="large"),
        pytest.param(10**5000, id="huge"),
        "1",
        None,
        True,
    ],
)
def test_times_are_finite_and_not_negative(field: str, value: Any) -> None:
    figures: dict[str, Any] = {"forward_ms": 1, "backward_ms": 1, field: value}
    with pytest.raises(ProfileError, match=f"layer x: {field} is "):
        Layer("x", output_bytes=1, **figures)


@pytest.mark.parametrize("field", ["output_bytes", "parameter_bytes", "saved_bytes"])
@pytest.mark.parametrize(
    "value",
    [-1, 2**60 + 1, 1.0, 0.5, math.nan, math.inf, pytest.param(10**5000, id="huge"), "1", True],
)
def test_sizes_are_whole_and_bounded(field: str, value: Any) -> None:
    figures: dict[str, Any] = {"output_bytes": 1, field: value}
    with pytest.raises(ProfileError, match=f"layer x: {field} is .* whole number of bytes"):
        Layer("x", 1, 1, **figures)
    with pytest.raises(ProfileError, match="input x: output_bytes is "):
        GraphInput("x", value, ())


@pytest.mark.parametrize(
    "name", ["", "a\nb", "a\x1b[31m", pytest.param("x" * 501, id="long"), None, 5, "\ud800"]
)
def test_ids_are_printable(name: Any) -> None:
    for make in (lambda: Layer(name, 1, 1, 1), lambda: GraphInput(name, 1, ())):
        with pytest.raises(ProfileError, match="id") as caught:
            make()
        assert str(caught.value).isprintable()


def test_figures_are_one_kind_of_number() -> None:
    whole, real = Layer("x", 1, 0, 5), Layer("x", 1.0, -0.0, 5)
    assert whole == real
    assert isinstance(whole.forward_ms, float)
    assert math.copysign(1, real.backward_ms) == 1
    digests = {LayerGraph.build([x], []).digest for x in (whole, real)}
    assert len(digests) == 1


def test_an_empty_graph_is_none() -> None:
    refused("the graph has no layers", [], [])


def test_one_layer_is_a_graph() -> None:
    graph = LayerGraph.build(layers("only"), [])
    assert (len(graph), graph.edges, graph.consumers, graph.producers) == (1, (), ((),), ((),))
    assert graph.cut_bytes([0]) == 0
    assert graph.total_compute_ms == 3.0


def test_several_sources_and_components_are_a_graph() -> None:
    graph = LayerGraph.build(layers("d", "c", "b", "a"), [("a", "c"), ("b", "c")])
    assert [x.id for x in graph.layers] == ["a", "b", "c", "d"]
    assert graph.edges == ((0, 2), (1, 2))
    assert graph.is_down_closed({3})
    assert not graph.is_down_closed({2, 0})
    assert graph.down_closure([2]) == {0, 1, 2}


def test_duplicates_are_named() -> None:
    refused("layer a appears twice", layers("a", "b", "a"), [])
    refused("input a appears twice", layers("a"), [], inputs=[GraphInput("a", 1, ("a",))])
    twice = [GraphInput("x", 1, ("a",)), GraphInput("x", 2, ("a",))]
    refused("input x appears twice", layers("a"), [], inputs=twice)


def test_missing_layers_are_named() -> None:
    refused("edge 'a' -> 'z' names layer 'z'", layers("a", "b"), [("a", "b"), ("a", "z")])
    refused("edge 'z' -> 'a' names layer 'z'", layers("a"), [("z", "a")])
    refused("input x names layer 'z'", layers("a"), [], inputs=[GraphInput("x", 1, ("a", "z"))])
    refused("keep together is empty", layers("a"), [], together=[Together((), "")])
    refused("keep together names layer 'z'", layers("a"), [], together=[Together(("a", "z"), "")])
    message = refused("names layer", layers("a"), [("a", "\x1b[2J" + "z" * 10_000)])
    assert message.isprintable()
    assert len(message) < 500


def test_a_layer_does_not_read_itself() -> None:
    refused("layer a reads its own output", layers("a"), [("a", "a")])


def test_the_cycle_is_named_along_its_edges() -> None:
    edges = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "b"), ("a", "d")]
    message = refused("cycle", layers("a", "b", "c", "d"), edges)
    named = message.split(": ")[1].split(" -> ")
    assert named[0] == named[-1]
    assert set(named) == {"b", "c", "d"}
    assert all(pair in edges for pair in pairwise(named))


def test_a_long_cycle_is_shortened() -> None:
    ids = [f"n{i}" for i in range(5_000)]
    edges = list(zip(ids, [*ids[1:], ids[0]], strict=True))
    assert len(refused("cycle: .* -> \\.\\.\\. -> ", layers(*ids), edges)) < 500


def test_more_layers_than_the_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeplan.core.graph.MAX_LAYERS", 3)
    LayerGraph.build(layers("a", "b", "c"), [])
    refused("4 layers; at most 3", layers("a", "b", "c", "d"), [])
    assert MAX_LAYERS >= 100_000


@pytest.mark.parametrize(
    ("edges", "pattern"),
    [
        (((1, 0),), "does not lead from a layer to a later one"),
        (((0, 0),), "does not lead"),
        (((0, 2),), "does not lead"),
        (((-1, 1),), "does not lead"),
        (((0, 1), (0, 1)), "not sorted, or one is repeated"),
    ],
)
def test_a_graph_made_by_hand_is_checked_too(
    edges: tuple[tuple[int, int], ...], pattern: str
) -> None:
    with pytest.raises(ProfileError, match=pattern):
        LayerGraph(tuple(layers("a", "b")), edges)
    with pytest.raises(ProfileError, match="no layers"):
        LayerGraph((), ())
    with pytest.raises(ProfileError, match="same id"):
        LayerGraph(tuple(layers("a", "a")), ())


def test_natural_order() -> None:
    ids = ["node1", "node2", "node10", "node10a", "node", "Node3", "n1x2", "n1x10", "7", "10"]
    ordered = sorted(random.Random(1).sample(ids, len(ids)), key=natural_key)
    assert ordered.index("node2") < ordered.index("node10") < ordered.index("node10a")
    assert ordered.index("node") < ordered.index("node1")
    assert ordered.index("n1x2") < ordered.index("n1x10")
    assert ordered.index("7") < ordered.index("10")


def test_ids_that_read_the_same_have_one_order() -> None:
    # By number alone node1, node01 and node001 tie, and the order of the file would show.
    ids = ["node01", "node1", "node001"]
    orders = {
        tuple(x.id for x in LayerGraph.build(layers(*given_ids), []).layers)
        for given_ids in (ids, ids[::-1], [ids[2], ids[0], ids[1]])
    }
    assert len(orders) == 1


@given(st.lists(st.text(max_size=8), max_size=6))
def test_different_texts_have_different_keys_that_compare(texts: list[str]) -> None:
    assert len({natural_key(x) for x in texts}) == len(set(texts))
    sorted(texts, key=natural_key)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_the_order_is_topological_and_smallest_first(
    data: st.DataObject, make: SimpleNamespace
) -> None:
    graph = data.draw(make.graphs(8))
    assert all(a < b for a, b in graph.edges)
    done: set[int] = set()
    for v in range(len(graph)):
        ready = [w for w in range(len(graph)) if w not in done and set(graph.producers[w]) <= done]
        assert min(ready, key=lambda w: natural_key(graph.layers[w].id)) == v
        done.add(v)


def test_the_digest_knows_all_that_planning_depends_on(make: SimpleNamespace) -> None:
    graph = LayerGraph.build(
        layers("a", "b", "c"),
        [("a", "b")],
        inputs=[GraphInput("x", 5, ("a", "b"))],
        together=[Together(("a", "b"), "tied")],
        name="one",
        metadata={"device": "v100"},
    )
    assert graph.digest.startswith("sha256:")
    same = [
        replace(graph, name="two"),
        replace(graph, metadata={}),
        replace(
            graph,
            layers=(replace(graph.layers[0], tensors=({"shape": [1]},)), *graph.layers[1:]),
        ),
    ]
    assert {x.digest for x in same} == {graph.digest}
    changed = [
        replace(graph, edges=()),
        replace(graph, inputs=()),
        replace(graph, inputs=(GraphInput("x", 6, ("a", "b")),)),
        replace(graph, inputs=(GraphInput("x", 5, ("a",)),)),
        replace(graph, together=()),
    ]
    for field, value in (
        ("id", "z"), ("forward_ms", 9.0), ("backward_ms", 9.0), ("output_bytes", 9),
        ("parameter_bytes", 9), ("saved_bytes", 3), ("description", "__getitem__(0)"),
    ):  # fmt: skip
        first: Any = replace(graph.layers[0], **{field: value})
        changed.append(replace(graph, layers=(first, *graph.layers[1:])))
    digests = {x.digest for x in changed}
    assert len(digests) == len(changed)
    assert graph.digest not in digests


def test_no_order_of_groups_and_consumers_shows() -> None:
    def built(turn: bool) -> LayerGraph:
        groups = [Together(("c", "a"), "one"), Together(("b", "c", "b"), "two")]
        if turn:
            groups = [replace(x, layers=x.layers[::-1]) for x in groups[::-1]]
        consumers = ("c", "a", "c") if turn else ("a", "c")
        return LayerGraph.build(
            layers("a", "b", "c"), [], inputs=[GraphInput("x", 1, consumers)], together=groups
        )

    assert built(False) == built(True)
    assert built(False).digest == built(True).digest
    assert built(True).inputs[0].consumers == ("a", "c")


def test_sums_do_not_depend_on_order(make: SimpleNamespace) -> None:
    graph = LayerGraph.build(
        [Layer(f"n{i}", 10.0 ** (i % 30 - 15), 0.1 * i, 1) for i in range(200)], []
    )
    order = list(range(200))
    sums = set()
    for seed in range(5):
        random.Random(seed).shuffle(order)
        sums.add(graph.compute_ms(order))
    assert sums == {graph.total_compute_ms}
