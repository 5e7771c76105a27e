"""What the tests of core share: small graphs, clusters and plans, drawn or fixed."""

import random
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import strategies as st

from pipeplan.core.cluster import Cluster, Level
from pipeplan.core.graph import GraphInput, Layer, LayerGraph
from pipeplan.core.plan import NestedStage, Plan, Stage
from pipeplan.core.problem import Problem

# Structure comes from a drawn seed: drawn piece by piece, nearly all graphs had a single stage.
_SEEDS = st.integers(0, 2**48)


def _ms(rng: random.Random) -> float:
    return rng.choice([0.0, float(rng.randint(0, 20)), rng.uniform(0, 50)])


def _bytes(rng: random.Random) -> int:
    return rng.choice([0, rng.randint(1, 5_000), rng.randint(1, 5_000), 10**9])


@st.composite
def graphs(draw: st.DrawFn, most: int = 7) -> LayerGraph:
    """DAGs with branches, several sources and components, zero figures, and network inputs."""
    rng = random.Random(draw(_SEEDS))
    n = rng.randint(1, most)
    ids = rng.sample([f"n{i}" for i in range(n)], n)
    layers = [
        Layer(
            layer_id,
            _ms(rng),
            _ms(rng),
            _bytes(rng),
            _bytes(rng),
            rng.choice([None, _bytes(rng)]),
        )
        for layer_id in ids
    ]
    density = rng.choice([0.15, 0.4, 0.7])
    edges = [(ids[i], ids[j]) for j in range(n) for i in range(j) if rng.random() < density]
    inputs = [
        GraphInput(f"in{k}", _bytes(rng), tuple(rng.sample(ids, rng.randint(0, min(3, n)))))
        for k in range(rng.randint(0, 2))
    ]
    return LayerGraph.build(layers, edges, inputs=inputs)


@st.composite
def clusters(draw: st.DrawFn, most_devices: int = 9) -> Cluster:
    """One to three levels, either duplex, with and without latency; no memory limit."""
    rng = random.Random(draw(_SEEDS))
    levels: list[Level] = []
    left = most_devices
    for _ in range(rng.randint(1, 3)):
        children = rng.randint(1, max(1, min(4, left)))
        left //= children
        rate = rng.choice([1.0, 700.0, 4e3, 2.5e6, 1e9])
        levels.append(Level(children, rate, rng.choice([0.0, 0.0, 0.25, 3.0])))
    return Cluster(tuple(levels), duplex=rng.choice(["full", "half"]))


@st.composite
def plans(draw: st.DrawFn, graph: LayerGraph, cluster: Cluster) -> Plan:
    """Any partition into nested ideals on any ranks, idle devices included."""
    rng = random.Random(draw(_SEEDS))
    order: list[int] = []
    while len(order) < len(graph):
        done = set(order)
        order.append(
            rng.choice(
                [
                    v
                    for v in range(len(graph))
                    if v not in done and done.issuperset(graph.producers[v])
                ]
            )
        )
    count = rng.randint(1, min(len(graph), cluster.devices))
    cuts = [0, *sorted(rng.sample(range(1, len(graph)), count - 1)), len(graph)]
    ranks = rng.sample(range(cluster.devices), cluster.devices)
    ends = [0, *sorted(rng.sample(range(1, cluster.devices + 1), count))]
    return Plan(
        tuple(
            Stage(
                tuple(sorted(order[cuts[s] : cuts[s + 1]])),
                tuple(sorted(ranks[ends[s] : ends[s + 1]])),
            )
            for s in range(count)
        )
    )


@st.composite
def nested_structures(
    draw: st.DrawFn, graph: LayerGraph, cluster: Cluster
) -> tuple[NestedStage, ...]:
    """A level-wise structure over contiguous ranges of the topological order."""
    rng = random.Random(draw(_SEEDS))

    def span(layers: tuple[int, ...], level: int) -> tuple[NestedStage, ...]:
        width = cluster.levels[level - 1].children
        count = rng.randint(1, min(width, len(layers)))
        cuts = [0, *sorted(rng.sample(range(1, len(layers)), count - 1)), len(layers)]
        spare = width - count
        out: list[NestedStage] = []
        for a, b in pairwise(cuts):
            extra = rng.randint(0, spare)
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
