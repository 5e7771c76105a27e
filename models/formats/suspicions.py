"""Figures that look wrong although they are valid: said aloud, never changed."""

import re
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Final

from pipeplan.core.graph import Layer, LayerGraph
from pipeplan.core.units import plural

__all__ = ["SCATTER_KEY", "scatter", "suspicions"]

SCATTER_KEY: Final = "scatter"
"""Where a measured profile's metadata says how far repeats lie apart."""

_LONG_TOTAL_MS: Final = 60_000.0
_LONG_MEDIAN_MS: Final = 100.0
_FEWEST_LAYERS: Final = 4
_MUCH_SCATTER: Final = 0.2

_CONV: Final = re.compile(
    r"Conv2d\((\d{1,7}), (\d{1,7}), kernel_size=\((\d{1,4}), (\d{1,4})\)[^()]*"
)
_LINEAR: Final = re.compile(r"Linear\((?:in_features=)?(\d{1,9}), (?:out_features=)?(\d{1,9})[,)]")
_EMBEDDING: Final = re.compile(r"Embedding\((\d{1,12}), (\d{1,9})[,)]")


def suspicions(graph: LayerGraph) -> tuple[str, ...]:
    """One sentence for each thing that does not look like a profile of a real network."""
    checks = (
        _batch,
        _scattered,
        _timer_floor,
        _microseconds,
        _elements,
        _no_sizes,
        _components,
        _unfed,
    )
    return tuple(message for check in checks for message in check(graph))


def _batch(graph: LayerGraph) -> Iterator[str]:
    if "batch" not in graph.metadata:
        yield "the batch size is not recorded: figures are those of one micro-batch of unknown size"


def scatter(graph: LayerGraph) -> float | None:
    """How far the middle half of a measurement's repeats lies apart, as a share of the time."""
    told = graph.metadata.get(SCATTER_KEY)
    total = told.get("total") if isinstance(told, Mapping) else None
    return float(total) if isinstance(total, int | float) and not isinstance(total, bool) else None


def _scattered(graph: LayerGraph) -> Iterator[str]:
    """Repeats of a measurement that differ so much that the medians mean little."""
    found = scatter(graph)
    if found is not None and found > _MUCH_SCATTER:
        yield (
            f"the repeats of the measurement scatter by {100 * found:.0f} %: measure again on a "
            "quiet machine; more --repeats steady the medians"
        )


def _timer_floor(graph: LayerGraph) -> Iterator[str]:
    """Nine tenths of the layers take the same time although their sizes differ."""
    timed = [layer for layer in graph.layers if layer.compute_ms > 0]
    if len(timed) < _FEWEST_LAYERS:
        return
    typical = median(layer.compute_ms for layer in timed)
    alike = [x for x in timed if abs(x.compute_ms - typical) <= 0.05 * typical]
    sizes = {(layer.output_bytes, layer.parameter_bytes) for layer in alike}
    if len(alike) >= 0.9 * len(timed) and len(sizes) > len(alike) // 2:
        yield (
            f"{len(alike)} of {len(timed)} layers take about {typical:g} ms, whatever their size: "
            "is this the floor of the timer or of a kernel launch?"
        )


def _microseconds(graph: LayerGraph) -> Iterator[str]:
    times = [layer.compute_ms for layer in graph.layers if layer.compute_ms > 0]
    if not times:
        yield "no layer takes any time"
        return
    whole = all(t.is_integer() for t in times)
    total = graph.total_compute_ms
    if total > _LONG_TOTAL_MS or (whole and median(times) > _LONG_MEDIAN_MS):
        yield (
            f"one micro-batch takes {total:g} ms ({total / 1000:g} s): are these microseconds? "
            "times must be milliseconds"
        )


def _elements(graph: LayerGraph) -> Iterator[str]:
    """Parameters that count what the layer's text says in elements, not in bytes."""
    known = [(layer, _parameter_elements(layer)) for layer in graph.layers]
    weighed = [(x, counts) for x, counts in known if counts and x.parameter_bytes]
    alike = [x for x, counts in weighed if x.parameter_bytes in counts]
    if weighed and len(alike) == len(weighed):
        example = alike[0]
        yield (
            f"parameter sizes look like counts of elements, not bytes: {example.id} "
            f"({example.description[:60]!a}) has {example.parameter_bytes}"
        )


def _parameter_elements(layer: Layer) -> tuple[int, ...]:
    """The weight's elements, without and with bias; empty where the text does not tell."""
    text = layer.description
    if match := _CONV.match(text):
        groups = re.search(r"groups=(\d{1,7})", match[0])
        inputs = int(match[1]) // max(1, int(groups[1]) if groups else 1)
        weight = inputs * int(match[2]) * int(match[3]) * int(match[4])
        return (weight, weight + int(match[2]))
    if match := _LINEAR.match(text):
        weight = int(match[1]) * int(match[2])
        return (weight, weight + int(match[2]))
    if match := _EMBEDDING.match(text):
        return (int(match[1]) * int(match[2]),)
    return ()


def _no_sizes(graph: LayerGraph) -> Iterator[str]:
    if len(graph) > 1 and not any(layer.output_bytes for layer in graph.layers):
        yield "all outputs have 0 bytes: every cut would cost nothing"


def _components(graph: LayerGraph) -> Iterator[str]:
    """Parts that share neither an edge nor an input."""
    root = list(range(len(graph) + len(graph.inputs)))

    def find(v: int) -> int:
        while root[v] != v:
            root[v] = root[root[v]]
            v = root[v]
        return v

    for a, b in graph.edges:
        root[find(a)] = find(b)
    for i, item in enumerate(graph.inputs, start=len(graph)):
        for consumer in item.consumers:
            root[find(i)] = find(graph.index[consumer])
    parts: dict[int, int] = {}
    for v in range(len(graph)):
        parts.setdefault(find(v), v)
    if len(parts) > 1:
        names = [graph.layers[v].id for v in sorted(parts.values())[:5]]
        yield (
            f"the graph falls into {len(parts)} parts with nothing between them "
            f"(they start at {', '.join(names)})"
        )


def _unfed(graph: LayerGraph) -> Iterator[str]:
    """Sources with weights that do a good part of the work without an input, where there are some.

    Sources without weights are constants.
    """
    if not graph.inputs:
        return
    fed = {consumer for item in graph.inputs for consumer in item.consumers}
    notable = 0.01 * graph.total_compute_ms
    unfed = [
        layer.id
        for v, layer in enumerate(graph.layers)
        if not graph.producers[v]
        and layer.id not in fed
        and layer.parameter_bytes
        and layer.compute_ms > notable
    ]
    if unfed:
        count = plural(len(unfed), "layer computes and reads", "layers compute and read")
        yield f"{count} nothing (first: {unfed[0]})"
    unread = [item.id for item in graph.inputs if not item.consumers]
    if unread:
        count = plural(len(unread), "input is", "inputs are")
        yield f"{count} read by no layer (first: {unread[0]})"
