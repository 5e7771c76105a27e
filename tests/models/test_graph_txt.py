"""PipeDream's graph.txt: dialects, inputs, groups, and an error for every way to be wrong."""

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from pipeplan.core.errors import ProfileError
from pipeplan.models.formats import ProfileFile, read_profile_text


def figures(
    forward: str = "1.0", backward: str = "2.0", size: str = "8.0", weights: str = "0.0"
) -> str:
    return (
        f"forward_compute_time={forward}, backward_compute_time={backward}, "
        f"activation_size={size}, parameter_size={weights}"
    )


def layer(name: str, description: str, **given: str) -> str:
    return f"{name} -- {description} -- {figures(**given)}"


ZERO = {"forward": "0.0", "backward": "0.0"}
SMALL = "\n".join(
    [
        layer("node1", "Input", forward="3.5", backward="0.0", size="40.0"),
        layer("node2", "Linear(10, 4)", weights="160.0"),
        layer("node3", "ReLU(inplace)", forward="0.5"),
        "\tnode1 -- node2",
        "\tnode2 -- node3",
    ]
)


def read(text: str) -> ProfileFile:
    return read_profile_text(text, "some/net.graph.txt")


def test_layers_edges_and_figures() -> None:
    graph = read(SMALL).graph
    assert graph.name == "net"
    assert [x.id for x in graph.layers] == ["node2", "node3"]
    assert graph.edges == ((0, 1),)
    first = graph.layers[0]
    assert (first.forward_ms, first.backward_ms, first.output_bytes) == (1.0, 2.0, 8)
    assert first.parameter_bytes == 160
    assert first.description == "Linear(10, 4)"
    assert first.tensors == ({"bytes": 8},)
    (fed,) = graph.inputs
    assert (fed.id, fed.output_bytes, fed.consumers) == ("node1", 40, ("node2",))


def test_an_input_has_no_time_and_that_is_said() -> None:
    warnings = read(SMALL).warnings
    assert any("node1 takes 3.5 ms" in warning for warning in warnings)
    assert any("batch size" in warning for warning in warnings)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\r"),
        lambda text: text.replace("\n", "   \n") + "\n\n",
        lambda text: text.replace("\t", "  "),
        lambda text: "\n".join(reversed(text.split("\n"))),
        lambda text: text.replace("\tnode", "node"),
        lambda text: text.replace(" -- ", "\t--\t"),
        lambda text: text.replace("=", " = ").replace(", backward", "  ,backward"),
        lambda text: text + "\n\tnode1 -- node2",
        lambda text: text.replace("8.0", "8").replace("160.0", "1.6e2"),
    ],
    ids=[
        "crlf",
        "cr",
        "trailing blanks",
        "space indent",
        "reversed",
        "no indent",
        "tabs",
        "spaced fields",
        "repeated edge",
        "integers",
    ],
)
def test_dialects_read_alike(change: Callable[[str], str]) -> None:
    assert read(change(SMALL)).graph.digest == read(SMALL).graph.digest


def test_descriptions_keep_their_text() -> None:
    odd = "Emu(  (a): LSTM(1, 2)  [x; y] -- z, k=v)"
    graph = read(layer("a", odd) + "\n" + layer("b", "Tail") + "\n\ta -- b").graph
    assert graph.layers[0].description == odd


def test_activation_lists() -> None:
    text = "\n".join([layer("a", "LSTM(1, 1)", size="[8.0; 4; 2.0]"), layer("b", "Add", size="[]")])
    graph = read(text + "\n\ta -- b").graph
    assert graph.layers[0].output_bytes == 14
    assert [tensor["bytes"] for tensor in graph.layers[0].tensors] == [8, 4, 2]
    assert (graph.layers[1].output_bytes, graph.layers[1].tensors) == (0, ())


def test_stage_ids_are_kept_and_unknown_fields_said() -> None:
    text = "\n".join(
        [
            layer("a", "Conv") + " -- stage_id=1 -- colour=red",
            layer("b", "Conv") + ", flops=3 -- stage_id=0",
            "\ta -- b -- weight=2",
        ]
    )
    profile = read(text)
    assert profile.graph.metadata["stage_of"] == {"a": 1, "b": 0}
    for key in ("colour", "flops", "weight"):
        assert any(f"'{key}'" in warning for warning in profile.warnings)


def test_fractions_of_bytes_are_rounded_up_and_said() -> None:
    profile = read(layer("a", "Conv", size="8.25", weights="0.5"))
    assert (profile.graph.layers[0].output_bytes, profile.graph.layers[0].parameter_bytes) == (9, 1)
    assert any("rounded up (first on line 1)" in warning for warning in profile.warnings)


def test_inputs_under_other_names() -> None:
    text = "\n".join(
        [
            layer("n1", "input_ids", forward="0.01", backward="0"),
            layer("n2", "attention_mask", forward="0.011", backward="0"),
            layer("n3", "embeddings", backward="0", weights="16"),
            layer("n4", "layer_0"),
            layer("n5", "reshape_input", **ZERO),
            *("  n1 -- n2", "  n1 -- n3", "  n3 -- n5", "  n5 -- n4", "  n2 -- n4"),
        ]
    )
    profile = read(text)
    assert [(x.id, x.consumers) for x in profile.graph.inputs] == [("n1", ("n3",)), ("n2", ("n4",))]
    assert [x.id for x in profile.graph.layers] == ["n3", "n5", "n4"]
    assert any("(attention_mask) is taken for an input" in w for w in profile.warnings)
    assert any("joins two inputs" in w for w in profile.warnings)


def test_several_inputs_by_name() -> None:
    text = "\n".join([layer(f"n{i}", f"Input{i}", **ZERO) for i in range(3)])
    text += "\n" + layer("x", "Sum") + "".join(f"\n\tn{i} -- x" for i in range(3))
    assert [x.id for x in read(text).graph.inputs] == ["n0", "n1", "n2"]


def groups(text: str) -> set[tuple[tuple[str, ...], str]]:
    return {(group.layers, group.reason) for group in read(text).graph.together}


def test_a_tuple_stays_with_its_items() -> None:
    text = "\n".join(
        [
            layer("a", "LSTM(1, 1)", size="[4; 4]"),
            layer("b", "__getitem__(0)", **ZERO),
            layer("c", "__getitem__(1)", **ZERO),
            layer("d", "Dropout(p=0.5)"),
            *("\ta -- b", "\ta -- c", "\tb -- d"),
        ]
    )
    assert groups(text) == {(("a", "b", "c"), "a tuple and its items")}
    assert "c" in read(text).graph.index


def test_a_slice_of_a_tensor_is_no_item() -> None:
    text = layer("a", "Pad") + "\n" + layer("b", "__getitem__", **ZERO) + "\n\ta -- b"
    assert groups(text) == set()


def test_sizes_stay_with_their_consumers() -> None:
    text = "\n".join(
        [layer("a", "Pool"), layer("b", "Size(0)", **ZERO), layer("c", "View(-1)", **ZERO)]
    )
    text += "\n\ta -- b\n\ta -- c\n\tb -- c"
    assert groups(text) == {(("b", "c"), "size with its consumer")}


def test_a_shared_constant_does_not_weld_its_readers() -> None:
    rows = [layer("i", "Input", **ZERO), layer("h", "hidden", size="0", **ZERO)]
    edges = []
    before = "i"
    for k in "ab":
        rows += [layer(f"g{k}", "__getitem__(0)", size="0", **ZERO), layer(k, "LSTM(1, 1)")]
        edges += [f"\th -- g{k}", f"\tg{k} -- {k}", f"\t{before} -- {k}"]
        before = k
    text = "\n".join(rows + edges)
    assert groups(text) == {
        (("ga", "a"), "constant with its consumer"),
        (("gb", "b"), "constant with its consumer"),
    }
    assert read(text).graph.metadata["constants"] == ["ga", "gb", "h"]


BAD = {
    "unknown layer in edge": (SMALL + "\n\tnode3 -- node9", 6, "no layer", "node3 -- node9"),
    "self edge": (SMALL + "\n\tnode3 -- node3", 6, "its own output", "node3 -- node3"),
    "twice": (SMALL + "\n" + layer("node2", "X"), 6, "appears twice (first on line 2)", "node2"),
    "no description": (f"node1 -- {figures()}", 1, "a layer needs", "node1"),
    "missing field": ("a -- B -- forward_compute_time=1.0", 1, "has no backward", "a -- B"),
    "field twice": ("a -- B -- " + figures() + ", parameter_size=1", 1, "given twice", "parameter"),
    "not a number": (layer("a", "B", forward="1.0.0"), 1, "not a number", "1.0.0"),
    "empty number": (layer("a", "B", forward=""), 1, "the number is missing", "''"),
    "python number": (layer("a", "B", forward="1_000"), 1, "not a number", "1_000"),
    "negative": (layer("a", "B", backward="-0.5"), 1, "-0.5 ms", "-0.5"),
    "negative bytes": (layer("a", "B", size="-4"), 1, "-4 bytes", "-4"),
    "nan": (layer("a", "B", forward="nan"), 1, "not a finite number", "nan"),
    "infinity": (layer("a", "B", size="inf"), 1, "not a finite number", "inf"),
    "1e400": (layer("a", "B", forward="1e400"), 1, "beyond the range", "1e400"),
    "huge": (layer("a", "B", size="9" * 30), 1, "2**60", "999"),
    "long number": (layer("a", "B", size="9" * 5000), 1, "5000 characters", "999"),
    "bad list": (layer("a", "B", size="[1; x]"), 1, "not a number", "[1; x]"),
    "open list": (layer("a", "B", size="[1; 2"), 1, "key=value", "[1; 2"),
    "bad stage": (layer("a", "B") + " -- stage_id=-1", 1, "whole number", "stage_id=-1"),
    "no dashes": (SMALL + "\nhello", 6, "expected", "hello"),
    "no id": (" -- B -- " + figures(), 1, "id", "B"),
    "odd field": ("a -- B -- " + figures() + ", =3", 1, "key=value", "=3"),
    "long line": (layer("a", "B" * 200_000), 1, "at most 100000", "(200"),
    "unprintable id": (layer("a\x07b", "B"), 1, "id", "a\\x07b"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_name_path_line_and_text(case: str) -> None:
    text, line, message, shown = BAD[case]
    with pytest.raises(ProfileError) as caught:
        read(text)
    assert caught.value.path == "some/net.graph.txt"
    assert caught.value.line == line
    assert message in str(caught.value)
    assert shown in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert "\x07" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (layer("a", "Input"), "inputs and no layer"),
        ("\ta -- b\n", "no layer"),
        (layer("a", "B") + "\n" + layer("b", "B") + "\n\ta -- b\n\tb -- a", "cycle: a -> b -> a"),
    ],
)
def test_errors_of_the_whole_file(text: str, message: str) -> None:
    with pytest.raises(ProfileError, match=message) as caught:
        read(text)
    assert caught.value.path == "some/net.graph.txt"


@pytest.mark.parametrize(
    "text",
    [
        "a -- B -- " + "forward_compute_time=" * 4000,
        "a -- B -- activation_size=" + "[" * 90_000,
        "a " + "-- " * 30_000 + "forward_compute_time=1",
        "\n".join("x -- y" for _ in range(100_000)),
        "a -- " + "__getitem__(" * 8000 + " -- " + figures(),
        "activation_size" + " " * 90_000 + "=1",
    ],
)
def test_hostile_text_is_refused_or_read_in_linear_time(text: str) -> None:
    start = time.process_time()
    with suppress(ProfileError):
        read(text)
    assert time.process_time() - start < 2


def test_many_inputs_of_one_layer_stay_linear() -> None:
    rows = [layer("z", "Sum")]
    rows += [layer(f"i{k}", "Input", **ZERO) + f"\n\ti{k} -- z" for k in range(5000)]
    start = time.process_time()
    assert len(read("\n".join(rows)).graph.inputs) == 5000
    assert time.process_time() - start < 4
