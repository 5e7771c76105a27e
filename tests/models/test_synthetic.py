"""Generators of layer graphs: reproducible, connected, and quick."""

import time

import pytest

from pipeplan.core.errors import ProfileError
from pipeplan.models.synthetic import chain, random_dag, transformer


def test_same_seed_same_graph() -> None:
    assert chain(20, seed=3).digest == chain(20, seed=3).digest
    assert chain(20, seed=3).digest != chain(20, seed=4).digest
    assert random_dag(30, seed=1).digest == random_dag(30, seed=1).digest


def test_chain_is_a_chain() -> None:
    graph = chain(12)
    assert graph.edges == tuple((i, i + 1) for i in range(11))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sources", [1, 3])
def test_random_dag_is_one_piece_with_the_sources_asked_for(seed: int, sources: int) -> None:
    graph = random_dag(25, seed=seed, sources=sources)
    assert len(graph) == 25
    assert sum(not producers for producers in graph.producers) == sources
    reached = {0}
    for _ in range(25):
        reached |= {v for e in graph.edges if reached & set(e) for v in e}
    if sources == 1:
        assert reached == set(range(25))


def test_ten_thousand_layers_build_in_seconds() -> None:
    start = time.process_time()
    graph = transformer(10_000)
    assert len(graph) == 10_002
    assert time.process_time() - start < 5


def test_no_layers_is_an_error() -> None:
    with pytest.raises(ProfileError, match="at least 1"):
        chain(0)
