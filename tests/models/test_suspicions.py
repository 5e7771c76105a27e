"""Warnings about figures: each fires on its case and on nothing else."""

from itertools import pairwise
from pathlib import Path

import pytest

from pipeplan.core.graph import GraphInput, Layer, LayerGraph
from pipeplan.models.formats import read_profile
from pipeplan.models.formats.suspicions import suspicions

REFERENCE = Path(__file__).parents[3] / "shared" / "reference"


def graph_of(
    layers: list[Layer], *, chained: bool = True, inputs: tuple[GraphInput, ...] = ()
) -> LayerGraph:
    edges = [(a.id, b.id) for a, b in pairwise(layers)] if chained else []
    return LayerGraph.build(layers, edges, inputs=inputs, metadata={"batch": 1})


def layers_of(times: list[float], *, size: int = 8) -> list[Layer]:
    return [Layer(f"n{i}", t, t, size * (i + 1), 4 * i) for i, t in enumerate(times)]


def test_a_plain_profile_is_not_suspicious() -> None:
    assert suspicions(graph_of(layers_of([1.0, 2.5, 0.3, 7.0, 1.1]))) == ()


def test_missing_batch() -> None:
    graph = LayerGraph.build([Layer("a", 1, 1, 1)], [])
    assert suspicions(graph) == (
        "the batch size is not recorded: figures are those of one micro-batch of unknown size",
    )


@pytest.mark.parametrize("told", [{"total": 0.1}, {"total": "much"}, {"total": True}, {}, 7, None])
def test_repeats_that_agree_or_say_nothing(told: object) -> None:
    layers = layers_of([1.0, 2.5, 0.3, 7.0, 1.1])
    metadata = {"batch": 1, "scatter": told}
    graph = LayerGraph.build(layers, [(a.id, b.id) for a, b in pairwise(layers)], metadata=metadata)
    assert suspicions(graph) == ()


def test_repeats_that_scatter() -> None:
    graph = LayerGraph.build(
        [Layer("a", 1, 1, 1)], [], metadata={"batch": 1, "scatter": {"total": 0.35}}
    )
    (message,) = suspicions(graph)
    assert "scatter by 35 %" in message


def test_timer_floor() -> None:
    (message,) = suspicions(graph_of(layers_of([4.3, 4.31, 4.3, 4.29, 4.3, 4.3])))
    assert "6 of 6 layers take about 8.6 ms" in message


def test_equal_layers_may_take_equal_time() -> None:
    blocks = [Layer(f"n{i}", 8.07, 13.4, 100, 400) for i in range(24)]
    assert suspicions(graph_of(blocks)) == ()


def test_microseconds() -> None:
    (message,) = suspicions(graph_of(layers_of([1500.0, 33000.0, 210.0, 9000.0])))
    assert "microseconds" in message
    (message,) = suspicions(graph_of(layers_of([150.0, 300.0, 210.0, 999.0])))
    assert "microseconds" in message
    assert suspicions(graph_of(layers_of([150.5, 300.25, 210.1, 999.3]))) == ()


def test_no_times() -> None:
    assert suspicions(graph_of(layers_of([0.0, 0.0]))) == ("no layer takes any time",)


@pytest.mark.parametrize(
    ("description", "elements"),
    [
        ("Conv2d(3, 64, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))", 1792),
        ("Conv2d(64, 64, kernel_size=(3, 3), groups=32, bias=False)", 1152),
        ("Linear(in_features=10, out_features=4, bias=True)", 44),
        ("Linear(10, 4)", 44),
        ("Embedding(100, 8, padding_idx=0)", 800),
    ],
)
def test_counts_of_elements(description: str, elements: int) -> None:
    def graph(parameter_bytes: int) -> LayerGraph:
        return graph_of([Layer("a", 1, 1, 8, parameter_bytes, description=description)])

    (message,) = suspicions(graph(elements))
    assert "counts of elements" in message
    assert suspicions(graph(4 * elements)) == ()
    assert suspicions(graph(2 * elements)) == ()


def test_no_sizes() -> None:
    (message,) = suspicions(graph_of(layers_of([1.0, 2.0], size=0)))
    assert "0 bytes" in message


def test_parts() -> None:
    parts = layers_of([1.0, 2.0, 3.0])
    (message,) = suspicions(graph_of(parts, chained=False))
    assert "3 parts" in message
    shared = GraphInput("x", 4, ("n0", "n1", "n2"))
    assert suspicions(graph_of(parts, chained=False, inputs=(shared,))) == ()


def test_unfed_layers_and_unread_inputs() -> None:
    parts = [Layer("n0", 1, 1, 8, 4), Layer("n1", 1, 1, 8, 4)]
    messages = suspicions(graph_of(parts, inputs=(GraphInput("x", 4, ()),)))
    assert messages == (
        "1 layer computes and reads nothing (first: n0)",
        "1 input is read by no layer (first: x)",
    )


def reference_profiles(folder: str) -> list[Path]:
    return sorted((REFERENCE / folder).glob("*.txt"))


@pytest.mark.reference
@pytest.mark.skipif(not REFERENCE.is_dir(), reason="../shared/reference is absent")
@pytest.mark.parametrize("path", reference_profiles("pipedream"), ids=lambda p: p.name)
def test_real_profiles_lack_only_the_batch_size(path: Path) -> None:
    allowed = ("the batch size is not recorded", "input node1 takes")
    assert all(w.startswith(allowed) for w in read_profile(path).warnings)
    assert suspicions(read_profile(path).graph) == (
        "the batch size is not recorded: figures are those of one micro-batch of unknown size",
    )


@pytest.mark.reference
@pytest.mark.skipif(not REFERENCE.is_dir(), reason="../shared/reference is absent")
@pytest.mark.parametrize("path", reference_profiles("dapple"), ids=lambda p: p.name)
def test_the_dapple_dialect_reads(path: Path) -> None:
    graph = read_profile(path).graph
    layers = {"amoeba-18-pbs-8": 25, "bert-24-pbs-6": 27, "gnmt-16-pbs-64": 93}
    assert len(graph) == layers.get(path.stem, 25)


@pytest.mark.reference
@pytest.mark.skipif(not REFERENCE.is_dir(), reason="../shared/reference is absent")
def test_real_sums() -> None:
    vgg16 = read_profile(REFERENCE / "pipedream" / "vgg16.graph.txt").graph
    assert len(vgg16) == 40
    assert vgg16.total_parameter_bytes == 553_430_176
    assert [(g.layers, g.reason) for g in vgg16.together] == [
        (("node33", "node34"), "size with its consumer")
    ]
    gnmt = read_profile(REFERENCE / "pipedream" / "gnmt.graph.txt").graph
    assert [item.id for item in gnmt.inputs] == ["node1", "node2", "node3"]
    assert ("node23", "node24", "node25", "node26", "node27") in [g.layers for g in gnmt.together]
