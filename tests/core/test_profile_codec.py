"""Profiles as JSON: the same graph comes back, and nothing malformed does."""

import copy
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeplan.core.errors import PipeplanError, ProfileError
from pipeplan.core.graph import GraphInput, Layer, LayerGraph, Together
from pipeplan.core.jsontext import dump_json, parse_json
from pipeplan.core.profile_codec import graph_from_dict, graph_to_dict


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    graph = LayerGraph.build(
        [
            Layer("a", 1.5, 2, 100, 8, 50, "Linear(2, 4)", ({"shape": [2, 4], "dtype": "f"},)),
            Layer("b", 1e-7, 0, 2**60),
        ],
        [("a", "b")],
        inputs=[GraphInput("x", 5, ("a", "b"), "Input", ({"shape": []},))],
        together=[Together(("a", "b"), "tied weights")],
        name="net",
        metadata={"device": "v100", "nested": {"list": [1, None, True, "é"]}},
    )
    data = graph_to_dict(graph)
    assert graph_from_dict(data) == (graph, ())
    return data


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_graph_comes_back(data: st.DataObject, make: SimpleNamespace) -> None:
    graph = data.draw(make.graphs())
    text = dump_json(graph_to_dict(graph))
    again, warnings = graph_from_dict(parse_json(text, ProfileError))
    assert (again, again.digest, warnings) == (graph, graph.digest, ())
    assert dump_json(graph_to_dict(again)) == text


CHANGES: list[tuple[tuple[str | int, ...], Any, str]] = [
    (("schema",), "pipeplan.profile/2", "schema is not 'pipeplan.profile/1'"),
    (("schema",), None, "schema is not"),
    (("layers",), [], "no layers"),
    (("layers",), {}, "layers is not a list"),
    (("layers", 0), 5, r"profile: layers\[0\]: this is not an object"),
    (("layers", 0, "id"), 5, "id is not text"),
    (("layers", 0, "id"), "b", "layer b appears twice"),
    (("layers", 0, "id"), "a\nb", "printable"),
    (("layers", 0, "forward_ms"), "1", r"layers\[0\]: forward_ms is not a number"),
    (("layers", 0, "forward_ms"), True, "forward_ms is not a number"),
    (("layers", 0, "forward_ms"), -1, "layer a: forward_ms is -1"),
    (("layers", 0, "forward_ms"), 10**400, "forward_ms is out of range"),
    (("layers", 0, "forward_ms"), float("nan"), "not a finite number"),
    (("layers", 0, "output_bytes"), 1.5, "output_bytes is not a whole number"),
    (("layers", 0, "output_bytes"), 1e300, "output_bytes is out of range"),
    (("layers", 0, "output_bytes"), -4, "layer a: output_bytes is -4"),
    (("layers", 0, "saved_bytes"), "x", "saved_bytes is not a number"),
    (("layers", 0, "description"), [], "description is not text"),
    (("layers", 0, "tensors"), [1], r"tensors\[0\]: this is not an object"),
    (("edges",), [["a"]], r"edges\[0\] is not a pair"),
    (("edges",), [["a", "b"], ["a", 1]], r"edges\[1\] is not a pair"),
    (("edges",), [["a", "z"]], "names layer 'z'"),
    (("edges",), [["a", "b"], ["b", "a"]], "cycle: a -> b -> a|cycle: b -> a -> b"),
    (("inputs", 0, "consumers"), ["z"], "input x names layer 'z'"),
    (("inputs", 0, "consumers"), "a", "consumers is not a list"),
    (("inputs", 0, "id"), "a", "input a appears twice"),
    (("together", 0, "layers"), [1], "layers is not a list of texts"),
    (("together", 0, "layers"), ["z"], "names layer 'z'"),
    (("together", 0, "reason"), None, "reason is not text"),
    (("metadata",), [], "metadata is not an object"),
    (("metadata",), {"x": "\ud800"}, "half a character"),
    (("name",), 1, "name is not text"),
]


def changed(document: Any, path: tuple[str | int, ...], value: Any) -> Any:
    out = copy.deepcopy(document)
    place = out
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return out


@pytest.mark.parametrize(("path", "value", "pattern"), CHANGES)
def test_what_is_malformed_is_named(
    path: tuple[str | int, ...], value: Any, pattern: str, document: dict[str, Any]
) -> None:
    with pytest.raises(ProfileError, match=pattern) as caught:
        graph_from_dict(changed(document, path, value))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("field", ["id", "forward_ms", "backward_ms", "output_bytes"])
def test_what_a_layer_must_have(field: str, document: dict[str, Any]) -> None:
    broken = copy.deepcopy(document)
    del broken["layers"][1][field]
    with pytest.raises(ProfileError, match=rf"layers\[1\]: {field} is missing"):
        graph_from_dict(broken)


def test_what_may_be_left_out() -> None:
    graph, warnings = graph_from_dict(
        {
            "schema": "pipeplan.profile/1",
            "layers": [{"id": "a", "forward_ms": 1, "backward_ms": 2, "output_bytes": 4.0}],
        }
    )
    assert graph == LayerGraph.build([Layer("a", 1.0, 2.0, 4)], [])
    assert warnings == ()


def test_what_is_not_understood_is_said_twenty_times_at_most(document: dict[str, Any]) -> None:
    odd = copy.deepcopy(document)
    odd["lr"] = 1
    odd["layers"][0]["flops\x1b"] = 2
    odd["inputs"][0]["shape"] = 3
    graph, warnings = graph_from_dict(odd)
    assert graph == graph_from_dict(document)[0]
    assert list(warnings) == [
        "profile: unknown field 'lr' is ignored",
        "profile: layers[0]: unknown field 'flops\\x1b' is ignored",
        "profile: inputs[0]: unknown field 'shape' is ignored",
    ]
    odd["layers"] = [
        {"id": f"n{i}", "forward_ms": 1, "backward_ms": 1, "output_bytes": 1, "extra": 1}
        for i in range(100)
    ]
    odd["inputs"], odd["edges"], odd["together"] = [], [], []
    assert len(graph_from_dict(odd)[1]) == 20


def paths_of(value: Any, here: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    out = [here] if here else []
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        out += paths_of(inner, (*here, key))
    return out


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
    | st.sampled_from(["a", "b", "x", 10**400, -1, 2**63, 1e308, ["a", "b"], [["a", "b"]], {}]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["id", "layers", "x", "a"]), inner, max_size=2),
    max_leaves=5,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_anything_anywhere_is_an_error_or_a_graph(
    data: st.DataObject, document: dict[str, Any]
) -> None:
    path = data.draw(st.sampled_from(paths_of(document)))
    tampered = changed(document, path, data.draw(ANYTHING))
    try:
        graph, _ = graph_from_dict(tampered)
    except PipeplanError as error:
        message = str(error)
    else:
        again = graph_from_dict(json.loads(dump_json(graph_to_dict(graph))))[0]
        assert again == graph
        message = "valid"
    assert message.isprintable()


@given(ANYTHING)
def test_anything_is_an_error(value: Any) -> None:
    with pytest.raises(PipeplanError):
        graph_from_dict(value)
