"""pipeplan's own profile: exact round trips, and a located error for every way to be wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeplan.core.errors import PipeplanError, ProfileError
from pipeplan.core.graph import GraphInput, Layer, LayerGraph, Together
from pipeplan.models.formats import dump_profile, read_profile, read_profile_text, write_profile

SMALL: dict[str, Any] = {
    "schema": "pipeplan.profile/1",
    "name": "small",
    "metadata": {"batch": 4},
    "inputs": [{"id": "x", "output_bytes": 16, "consumers": ["a"]}],
    "layers": [
        {"id": "a", "forward_ms": 1.5, "backward_ms": 2, "output_bytes": 64},
        {"id": "b", "forward_ms": 0.1, "backward_ms": 0.2, "output_bytes": 8},
    ],
    "edges": [["a", "b"]],
    "together": [{"layers": ["a", "b"], "reason": "because"}],
}


def read(document: object) -> LayerGraph:
    text = document if isinstance(document, str) else json.dumps(document, indent=1)
    return read_profile_text(text, "net.json").graph


def test_fields() -> None:
    graph = read(SMALL)
    assert graph.name == "small"
    assert graph.layers[0] == Layer("a", 1.5, 2.0, 64)
    assert graph.together == (Together(("a", "b"), "because"),)
    assert graph.inputs == (GraphInput("x", 16, ("a",)),)
    assert read_profile_text(json.dumps(SMALL), "net.json").warnings == ()


times = st.floats(0, 1e6)
sizes = st.integers(0, 2**60)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def graphs(draw: st.DrawFn) -> LayerGraph:
    count = draw(st.integers(1, 6))
    layers = [
        Layer(
            id=f"n{i}",
            forward_ms=draw(times),
            backward_ms=draw(times),
            output_bytes=draw(sizes),
            parameter_bytes=draw(sizes),
            saved_bytes=draw(st.none() | sizes),
            description=draw(texts),
            tensors=draw(
                st.just(()) | st.just(({"bytes": 4, "dtype": "float32", "shape": [1, 1]},))
            ),
        )
        for i in range(count)
    ]
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    edges = {(f"n{min(p)}", f"n{max(p)}") for p in draw(st.lists(pairs)) if p[0] != p[1]}
    metadata = {"batch": 1, "note": draw(texts), "nested": {"a": [1, 2.5, None, True]}}
    return LayerGraph.build(
        layers,
        edges,
        inputs=[GraphInput("in", draw(sizes), ("n0",), draw(texts))],
        together=[Together(("n0",), draw(texts))],
        name="drawn",
        metadata=metadata,
    )


@given(graphs())
def test_round_trip_is_exact(graph: LayerGraph) -> None:
    again = read(dump_profile(graph))
    assert again == graph
    assert dump_profile(again) == dump_profile(graph)


def test_unknown_fields_and_fractions_are_said() -> None:
    document = json.loads(json.dumps(SMALL))
    document["colour"] = 1
    document["layers"][1]["output_bytes"] = 7.2
    document["layers"][1]["flops"] = 1
    profile = read_profile_text(json.dumps(document), "net.json")
    assert profile.graph.layers[1].output_bytes == 8
    text = " ".join(profile.warnings)
    assert "colour" in text
    assert "flops" in text
    assert "rounded up (first: output_bytes of 'b')" in text


def changed(path: str, value: object) -> dict[str, Any]:
    document: Any = json.loads(json.dumps(SMALL))
    *steps, last = [int(x) if x.isdigit() else x for x in path.split(".")]
    target = document
    for step in steps:
        target = target[step]
    if value is None:
        del target[last]
    else:
        target[last] = value
    result: dict[str, Any] = document
    return result


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("layers.1.forward_ms", "1", "forward_ms"),
        ("layers.1.forward_ms", -1, "-1"),
        ("layers.1.forward_ms", None, "forward_ms"),
        ("layers.1.forward_ms", True, "forward_ms"),
        ("layers.1.forward_ms", 1e30, "1e+30"),
        ("layers.1.output_bytes", -3, "-3"),
        ("layers.1.output_bytes", 10**30, "output_bytes"),
        ("layers.1.output_bytes", "many", "output_bytes"),
        ("layers.1.saved_bytes", [], "saved_bytes"),
        ("layers.1.description", 7, "description"),
        ("layers.1.tensors", 7, "tensors"),
        ("inputs.0.consumers", ["zz"], "zz"),
        ("inputs.0.output_bytes", "x", "output_bytes"),
        ("layers.1.id", "a", "twice"),
        ("layers.1.id", 3, "id"),
        ("layers", [], "no layers"),
        ("layers", None, "layers"),
        ("layers", {"a": 1}, "layers"),
        ("layers.1", 5, "layers"),
        ("edges", [["a"]], "edges"),
        ("edges", [["a", "z"]], "'z'"),
        ("edges", [["b", "a"], ["a", "b"]], "cycle"),
        ("edges", 5, "edges"),
        ("together", [{"layers": ["q"], "reason": "x"}], "q"),
        ("metadata", [], "metadata"),
        ("name", 4, "name"),
    ],
)
def test_errors_name_the_entry(path: str, value: object, message: str) -> None:
    with pytest.raises(ProfileError) as caught:
        read(changed(path, value))
    assert message in str(caught.value)
    assert caught.value.path == "net.json"


def test_an_error_of_a_layer_has_its_line() -> None:
    with pytest.raises(ProfileError) as caught:
        read(changed("layers.1.forward_ms", -1))
    text = json.dumps(changed("layers.1.forward_ms", -1), indent=1)
    assert caught.value.line is not None
    assert '"id": "b"' in text.split("\n")[caught.value.line - 1]


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ('{"schema":\n oops}', "JSON", 2),
        ('{"schema": "pipeplan.profile/1",\n"layers": [NaN]}', "NaN", 2),
        ('{"schema": "pipeplan.profile/1",\n\n"layers": [-Infinity]}', "Infinity", 3),
        ('{"schema": "pipeplan.profile/1",\n"layers": [1e400]}', "1e400", 2),
        ('{"schema": "pipeplan.profile/1",\n"layers": [' + "9" * 6000 + "]}", "digits", 2),
        ('{"a": 1,\n"a": 2}', "twice", 1),
        ('{"a": ' + "[" * 100_000, "nested|JSON", None),
        ('{"a": ' + "[" * 500 + "]" * 500 + "}", "nested", None),
        ("[1, 2]", "a profile is a JSON object", None),
        ("{}", "needs the field schema", None),
        ('{"schema": "pipeplan.profile/2"}', "this version reads pipeplan.profile/1", None),
        ('{"schema": "pipeplan.plan/1"}', "this is a pipeplan plan", None),
        ('{"schema": "other/3"}', "other/3", None),
    ],
)
def test_bad_documents(text: str, message: str, line: int | None) -> None:
    with pytest.raises(ProfileError, match=message) as caught:
        read(text)
    assert caught.value.path == "net.json"
    if line is not None:
        assert caught.value.line == line


def test_writing_is_guarded(tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    graph = read(SMALL)
    write_profile(graph, path)
    assert read_profile(path).graph == graph
    with pytest.raises(PipeplanError, match="exists"):
        write_profile(graph, path)
    write_profile(graph, path, force=True)
    assert [x.name for x in tmp_path.iterdir()] == ["small.json"]


def test_metadata_that_is_no_json_cannot_be_written() -> None:
    graph = LayerGraph.build([Layer("a", 1, 1, 1)], [], metadata={"x": object()})
    with pytest.raises(PipeplanError, match="JSON"):
        dump_profile(graph)
