"""Writing graph.txt: what the format can hold comes back."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeplan.core.errors import PipeplanError
from pipeplan.core.graph import GraphInput, Layer, LayerGraph
from pipeplan.models.formats import (
    dump_graph_txt,
    read_profile,
    read_profile_text,
    write_graph_txt,
)
from pipeplan.models.synthetic import random_dag


@pytest.mark.parametrize("seed", range(3))
def test_figures_and_edges_come_back(seed: int) -> None:
    graph = random_dag(15, seed=seed)
    again = read_profile_text(dump_graph_txt(graph), "x").graph
    # The written ids follow the topological order, so the order of the layers is kept.
    assert again.edges == graph.edges
    for a, b in zip(again.layers, graph.layers, strict=True):
        assert (a.forward_ms, a.backward_ms) == (b.forward_ms, b.backward_ms)
        assert (a.output_bytes, a.parameter_bytes) == (b.output_bytes, b.parameter_bytes)
    assert [len(x.consumers) for x in again.inputs] == [len(x.consumers) for x in graph.inputs]


def test_ids_of_the_formats_own_kind_are_kept() -> None:
    tensors = ({"bytes": 3}, {"bytes": 4})
    graph = LayerGraph.build(
        [
            Layer("node7", 1, 2, 7, description="LSTM(1, 1)", tensors=tensors),
            Layer("node9", 1, 2, 4),
        ],
        [("node7", "node9")],
        inputs=[GraphInput("node1", 5, ("node7",))],
        metadata={"stage_of": {"node7": 0, "node9": 1}},
    )
    text = dump_graph_txt(graph)
    assert "activation_size=[3; 4]" in text
    again = read_profile_text(text, "x").graph
    assert [x.id for x in again.layers] == ["node7", "node9"]
    assert again.metadata["stage_of"] == {"node7": 0, "node9": 1}
    assert again.layers[0].tensors == tensors


@given(st.text(max_size=40) | st.sampled_from(["Input", " -- ", "a -- activation_size=3"]))
def test_no_description_breaks_the_format(description: str) -> None:
    graph = LayerGraph.build([Layer("a", 1, 2, 3, description=description)], [])
    assert len(read_profile_text(dump_graph_txt(graph), "x").graph) == 1


def test_packaged_profiles_can_be_written(tmp_path: Path) -> None:
    graph = read_profile("seq2seq").graph
    write_graph_txt(graph, tmp_path / "graph.txt")
    again = read_profile(tmp_path / "graph.txt").graph
    assert again.total_compute_ms == graph.total_compute_ms
    assert len(again) == len(graph)
    with pytest.raises(PipeplanError, match="exists"):
        write_graph_txt(graph, tmp_path / "graph.txt")
