"""What the tests of core share: small graphs, clusters and plans, drawn or fixed."""

import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import strategies as st

from pipeplan.core.cluster import Cluster, Level
from pipeplan.core.graph import GraphInput, Layer, LayerGraph
from pipeplan.core.plan import NestedStage, Plan, Stage
from pipeplan.core.problem import Problem

_MS = st.one_of(
    st.just(0.0), st.integers(0, 20).map(float), st.floats(0, 50, allow_subnormal=False)
)
_BYTES = st.one_of(st.just(0), st.integers(0, 5_000), st.just(10**9))


@st.composite
def graphs(draw: st.DrawFn, most: int = 7) -> LayerGraph:
    """DAGs with branches, several sources and components, zero figures, and network inputs."""
    n = draw(st.integers(1, most))
    ids = draw(st.permutations([f"n{i}" for i in range(n)]))
    layers = [
        Layer(
            ids[i],
            draw(_MS),
            draw(_MS),
            draw(_BYTES),
            draw(_BYTES),
            draw(st.none() | _BYTES),
        )
        for i in range(n)
    ]
    pairs = [(i, j) for j in range(n) for i in range(j)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    inputs = [
        GraphInput(
            f"in{k}",
            draw(_BYTES),
            tuple(draw(st.lists(st.sampled_from(ids), unique=True, max_size=3))),
        )
        for k in range(draw(st.integers(0, 2)))
    ]
    return LayerGraph.build(layers, [(ids[a], ids[b]) for a, b in edges], inputs=inputs)


@st.composite
def clusters(draw: st.DrawFn, most_devices: int = 9) -> Cluster:
    """One to three levels, either duplex, with and without latency; no memory limit."""
    levels: list[Level] = []
    left = most_devices
    for _ in range(draw(st.integers(1, 3))):
        children = draw(st.integers(1, min(4, left)))
        left //= children
        rate = draw(st.sampled_from([1.0, 700.0, 4e3, 2.5e6, 1e9]))
        levels.append(Level(children, rate, draw(st.sampled_from([0.0, 0.0, 0.25, 3.0]))))
    return Cluster(tuple(levels), duplex=draw(st.sampled_from(["full", "half"])))


@st.composite
def plans(draw: st.DrawFn, graph: LayerGraph, cluster: Cluster) -> Plan:
    """Any partition into nested ideals on any ranks, idle devices included."""
    most = min(len(graph), cluster.devices)
    stage_of: list[int] = []
    for v in range(len(graph)):
        least = max((stage_of[u] for u in graph.producers[v]), default=0)
        stage_of.append(draw(st.integers(least, most - 1)))
    used = sorted(set(stage_of))
    ranks = draw(st.permutations(range(cluster.devices)))
    ends = draw(
        st.lists(
            st.integers(1, cluster.devices), min_size=len(used), max_size=len(used), unique=True
        )
    )
    starts = [0, *sorted(ends)]
    return Plan(
        tuple(
            Stage(
                tuple(v for v in range(len(graph)) if stage_of[v] == s),
                tuple(sorted(ranks[starts[k] : starts[k + 1]])),
            )
            for k, s in enumerate(used)
        )
    )


@st.composite
def nested_structures(
    draw: st.DrawFn, graph: LayerGraph, cluster: Cluster
) -> tuple[NestedStage, ...]:
    """A level-wise structure over contiguous ranges of the topological order."""

    def span(layers: tuple[int, ...], level: int) -> tuple[NestedStage, ...]:
        width = cluster.levels[level - 1].children
        count = draw(st.integers(1, min(width, len(layers))))
        cuts = sorted(
            draw(
                st.lists(
                    st.integers(1, max(1, len(layers) - 1)),
                    min_size=count - 1,
                    max_size=count - 1,
                    unique=True,
                )
            )
        )
        spare = width - count
        out: list[NestedStage] = []
        for a, b in zip([0, *cuts], [*cuts, len(layers)], strict=True):
            extra = draw(st.integers(0, spare))
            spare -= extra
            own = layers[a:b]
            out.append(NestedStage(own, 1 + extra, span(own, level - 1) if level > 1 else ()))
        return tuple(out)

    return span(tuple(range(len(graph))), len(cluster.levels))


@st.composite
def topology_problems(draw: st.DrawFn) -> Problem:
    """A joint question with any schedule and option that its price depends on."""
    schedule: Any = draw(st.sampled_from(["pipedream", "1f1b", "gpipe"]))
    return Problem(
        draw(graphs()),
        draw(clusters()),
        schedule=schedule,
        micro_batches=None if schedule == "pipedream" else draw(st.integers(1, 12)),
        recompute=draw(st.booleans()),
        overlap_sync=draw(st.booleans()),
        weight_copies=draw(st.sampled_from([1, 4, 6])),
        activation_compression_ratio=draw(st.sampled_from([None, 1.0, 2.0, 0.3])),
    )


def chain(
    count: int, *, forward_ms: float = 1.0, output_bytes: int = 100, parameter_bytes: int = 50
) -> LayerGraph:
    """A chain of equal layers, n0 to n(count - 1), fed by one input."""
    return LayerGraph.build(
        [
            Layer(f"n{i}", forward_ms, 2 * forward_ms, output_bytes, parameter_bytes)
            for i in range(count)
        ],
        [(f"n{i}", f"n{i + 1}") for i in range(count - 1)],
        inputs=[GraphInput("data", 10, ("n0",))],
        name="chain",
    )


def large_graph(count: int) -> LayerGraph:
    """A chain of many layers with long skips; figures differ, but are the same every time."""
    rng = random.Random(5)
    return LayerGraph.build(
        [
            Layer(f"n{i}", rng.random(), rng.random(), rng.randrange(10**7), rng.randrange(10**7))
            for i in range(count)
        ],
        [(f"n{i}", f"n{i + 1}") for i in range(count - 1)]
        + [(f"n{i}", f"n{i + 40}") for i in range(0, count - 40, 3)],
        inputs=[GraphInput("data", 10, ("n0", "n50"))],
    )


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """The strategies and builders of this file."""
    return SimpleNamespace(
        graphs=graphs,
        clusters=clusters,
        plans=plans,
        nested_structures=nested_structures,
        topology_problems=topology_problems,
        chain=chain,
        large_graph=large_graph,
    )
