"""Made-up layer graphs for tests and benchmarks: the same arguments give the same graph."""

import random
from itertools import pairwise

from pipeplan.core.errors import ProfileError
from pipeplan.core.graph import GraphInput, Layer, LayerGraph

__all__ = ["chain", "random_dag", "transformer"]

_MEGABYTE = 2**20


def chain(layers: int, *, seed: int = 0) -> LayerGraph:
    """A chain whose times (0.1 to 10 ms) and sizes (up to 64 MiB) are drawn from the seed.

    Raises ProfileError for fewer than one layer.
    """
    draw = random.Random(seed)
    made = [_layer(f"layer{i}", draw) for i in range(_at_least_one(layers))]
    edges = [(a.id, b.id) for a, b in pairwise(made)]
    return _graph(made, edges, f"chain{layers}-{seed}")


def random_dag(layers: int, *, seed: int = 0, skips: float = 0.3, sources: int = 1) -> LayerGraph:
    """A connected graph: each layer after the sources reads an earlier one, and sometimes two.

    `skips` is the chance of a second reader's edge, from up to eight layers back. Raises
    ProfileError for fewer than one layer.
    """
    draw = random.Random(seed)
    made = [_layer(f"layer{i}", draw) for i in range(_at_least_one(layers))]
    edges: set[tuple[str, str]] = set()
    for i in range(max(1, sources), layers):
        # A source that nobody has read yet goes first, so that the graph stays in one piece.
        nearest = i - sources if i < 2 * sources else max(0, i - draw.randint(1, 3))
        edges.add((made[nearest].id, made[i].id))
        if draw.random() < skips:
            edges.add((made[max(0, i - draw.randint(1, 8))].id, made[i].id))
    return _graph(made, sorted(edges), f"dag{layers}-{seed}")


def transformer(
    layers: int, *, blocks: int | None = None, batch: int = 4, length: int = 1024, width: int = 1024
) -> LayerGraph:
    """About `layers` layers of a decoder: blocks of ten, with both residual paths, in float16.

    `blocks` overrides how many blocks. Times follow from the FLOPs at 100 TFLOP/s and are the same
    in every block, which makes many plans equal: the hard case for a solver.
    """
    count = max(1, layers // 10) if blocks is None else blocks
    tokens = batch * length
    stream = 2 * tokens * width
    kinds = (
        ("norm1", 0.0, 1, 4 * width),
        ("qkv", 6.0 * tokens * width * width, 3, 6 * width * width),
        ("attention", 4.0 * tokens * length * width, 1, 0),
        ("project", 2.0 * tokens * width * width, 1, 2 * width * width),
        ("add1", 0.0, 1, 0),
        ("norm2", 0.0, 1, 4 * width),
        ("expand", 8.0 * tokens * width * width, 4, 8 * width * width),
        ("gelu", 0.0, 4, 0),
        ("contract", 8.0 * tokens * width * width, 1, 8 * width * width),
        ("add2", 0.0, 1, 0),
    )
    made: list[Layer] = [Layer("embed", 0.05, 0.05, stream, 2 * 50_000 * width)]
    edges: list[tuple[str, str]] = []
    before = "embed"
    for block in range(count):
        names = [f"block{block}.{kind[0]}" for kind in kinds]
        for name, (_, flops, outputs, parameters) in zip(names, kinds, strict=True):
            forward_ms = flops / 1e11 + outputs * stream / 1e9
            made.append(Layer(name, forward_ms, 2 * forward_ms, outputs * stream, parameters))
        edges += [(before, names[0]), *pairwise(names)]
        edges += [(before, names[4]), (names[4], names[9])]
        before = names[9]
    made.append(Layer("head", 1.0, 2.0, 2 * tokens * 50_000, 2 * 50_000 * width))
    edges.append((before, "head"))
    return _graph(made, edges, f"transformer{len(made)}")


def _at_least_one(layers: int) -> int:
    if layers < 1:
        raise ProfileError(f"a graph of {layers} layers is asked for; at least 1")
    return layers


def _layer(name: str, draw: random.Random) -> Layer:
    forward_ms = round(draw.uniform(0.1, 10.0), 3)
    return Layer(
        name,
        forward_ms,
        round(forward_ms * draw.uniform(1.0, 2.5), 3),
        draw.randint(1, 64) * _MEGABYTE,
        draw.randint(0, 64) * _MEGABYTE,
    )


def _graph(layers: list[Layer], edges: list[tuple[str, str]], name: str) -> LayerGraph:
    read = {consumer for _, consumer in edges}
    first = tuple(layer.id for layer in layers if layer.id not in read)
    fed = GraphInput("input", _MEGABYTE, first, "input")
    metadata = {"method": "synthetic", "batch": 1}
    return LayerGraph.build(layers, edges, inputs=[fed], name=name, metadata=metadata)
