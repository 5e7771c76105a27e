"""The profiled layer graph: what each layer costs and who reads whose output."""

import hashlib
import heapq
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from pipeplan.core.errors import ProfileError

__all__ = ["MAX_LAYERS", "GraphInput", "Layer", "LayerGraph", "Together", "natural_key"]

MAX_LAYERS: Final = 200_000
"""Bound on layers of a graph: far beyond real ones, and small enough to fail fast on hostile files."""

_MAX_BYTES: Final = 2**60
_MAX_MS: Final = 1e15


def natural_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key under which node2 comes before node10."""
    return tuple(
        (0, int(part), "") if part.isdecimal() and len(part) < 19 else (1, 0, part)
        for part in re.split(r"(\d+)", text)
    )


def _check_ms(value: float, what: str) -> None:
    if not math.isfinite(value) or value < 0 or value > _MAX_MS:
        raise ProfileError(f"{what} is {value!r}; it must be a finite number from 0 to {_MAX_MS:g}")


def _check_bytes(value: int, what: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_BYTES:
        raise ProfileError(
            f"{what} is {value!r}; it must be a whole number of bytes from 0 to 2**60"
        )


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer and its cost for one micro-batch of the profile's batch size.

    `output_bytes` is the sum over the layer's output tensors; `tensors` holds one entry a tensor
    (its bytes, dtype and shape where known) for code generation. `saved_bytes` is what the backward
    pass needs kept; None means the output. `parameter_bytes` counts a shared parameter once, at the
    first layer that owns it. Raises ProfileError on negative, infinite or NaN figures.
    """

    id: str
    forward_ms: float
    backward_ms: float
    output_bytes: int
    parameter_bytes: int = 0
    saved_bytes: int | None = None
    description: str = ""
    tensors: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if not self.id or not isinstance(self.id, str):
            raise ProfileError(f"a layer's id is {self.id!r}; it must be text")
        if len(self.id) > 500 or not self.id.isprintable():
            raise ProfileError(
                "a layer's id must be at most 500 printable characters", text=self.id
            )
        _check_ms(self.forward_ms, f"layer {self.id}: forward_ms")
        _check_ms(self.backward_ms, f"layer {self.id}: backward_ms")
        _check_bytes(self.output_bytes, f"layer {self.id}: output_bytes")
        _check_bytes(self.parameter_bytes, f"layer {self.id}: parameter_bytes")
        if self.saved_bytes is not None:
            _check_bytes(self.saved_bytes, f"layer {self.id}: saved_bytes")

    @property
    def compute_ms(self) -> float:
        """Forward plus backward, per micro-batch."""
        return self.forward_ms + self.backward_ms

    @property
    def kept_bytes(self) -> int:
        """Bytes kept for the backward pass of one micro-batch."""
        return self.output_bytes if self.saved_bytes is None else self.saved_bytes


@dataclass(frozen=True, slots=True)
class GraphInput:
    """A tensor the network is fed: no compute, and loaded where it is read, so it crosses no cut."""

    id: str
    output_bytes: int
    consumers: tuple[str, ...]
    description: str = ""
    tensors: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if not self.id or not isinstance(self.id, str) or not self.id.isprintable():
            raise ProfileError(f"an input's id is {self.id!r}; it must be printable text")
        _check_bytes(self.output_bytes, f"input {self.id}: output_bytes")


@dataclass(frozen=True, slots=True)
class Together:
    """Layers that must share a stage, and why (tied weights, a tuple and its items, ...)."""

    layers: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class LayerGraph:
    """Layers in topological order, the edges between them, and the network's inputs.

    Layers are addressed by their index in `layers`. The order is the topological order that takes,
    of the layers ready, the one whose id is smallest (node2 before node10): it does not depend on
    the order in a file. `edges` are pairs (producer, consumer) of indices, without repeats, sorted.
    """

    layers: tuple[Layer, ...]
    edges: tuple[tuple[int, int], ...]
    inputs: tuple[GraphInput, ...] = ()
    together: tuple[Together, ...] = ()
    name: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Where the figures come from (method, device, batch, date): shown, never computed with."""

    @staticmethod
    def build(
        layers: Iterable[Layer],
        edges: Iterable[tuple[str, str]],
        *,
        inputs: Iterable[GraphInput] = (),
        together: Iterable[Together] = (),
        name: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> "LayerGraph":
        """Validate, order topologically and index.

        Raises ProfileError for an empty graph, duplicate ids, edges and groups that name missing
        layers, edges of a layer to itself, and cycles (the cycle is named).
        """
        given = sorted(layers, key=lambda layer: natural_key(layer.id))
        if not given:
            raise ProfileError("the graph has no layers")
        if len(given) > MAX_LAYERS:
            raise ProfileError(f"the graph has {len(given)} layers; at most {MAX_LAYERS} are read")
        feeds = tuple(sorted(inputs, key=lambda item: natural_key(item.id)))
        seen: set[str] = set()
        for item in (*given, *feeds):
            if item.id in seen:
                raise ProfileError(f"layer {item.id} appears twice")
            seen.add(item.id)
        known = {layer.id for layer in given}
        pairs = sorted(set(edges))
        for producer, consumer in pairs:
            for end in (producer, consumer):
                if end not in known:
                    raise ProfileError(f"edge {producer} -> {consumer}: there is no layer {end}")
            if producer == consumer:
                raise ProfileError(f"layer {producer} reads its own output")
        groups = tuple(together)
        for needed in (
            *(c for i in feeds for c in i.consumers),
            *(x for g in groups for x in g.layers),
        ):
            if needed not in known:
                raise ProfileError(
                    f"an input or a group names layer {needed}, which does not exist"
                )
        order = _topological([layer.id for layer in given], pairs)
        by_id = {layer.id: layer for layer in given}
        index = {layer_id: i for i, layer_id in enumerate(order)}
        return LayerGraph(
            layers=tuple(by_id[layer_id] for layer_id in order),
            edges=tuple(sorted((index[a], index[b]) for a, b in pairs)),
            inputs=feeds,
            together=groups,
            name=name,
            metadata=dict(metadata or {}),
        )

    def __len__(self) -> int:
        return len(self.layers)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Layer index by id."""
        return {layer.id: i for i, layer in enumerate(self.layers)}

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """For each layer, the layers that read its output, ascending."""
        out: list[list[int]] = [[] for _ in self.layers]
        for producer, consumer in self.edges:
            out[producer].append(consumer)
        return tuple(map(tuple, out))

    @cached_property
    def producers(self) -> tuple[tuple[int, ...], ...]:
        """For each layer, the layers whose output it reads, ascending."""
        out: list[list[int]] = [[] for _ in self.layers]
        for producer, consumer in self.edges:
            out[consumer].append(producer)
        return tuple(map(tuple, out))

    @cached_property
    def total_compute_ms(self) -> float:
        """Forward plus backward of all layers, per micro-batch."""
        return math.fsum(x for layer in self.layers for x in (layer.forward_ms, layer.backward_ms))

    @cached_property
    def total_parameter_bytes(self) -> int:
        """Parameters of all layers."""
        return sum(layer.parameter_bytes for layer in self.layers)

    def compute_ms(self, layers: Iterable[int]) -> float:
        """Forward plus backward of some layers, exactly rounded whatever their order."""
        return math.fsum(
            x for v in layers for x in (self.layers[v].forward_ms, self.layers[v].backward_ms)
        )

    def parameter_bytes(self, layers: Iterable[int]) -> int:
        """Parameters of some layers."""
        return sum(self.layers[v].parameter_bytes for v in layers)

    def cut_bytes(self, prefix: Iterable[int]) -> int:
        """What crosses from `prefix` to its complement: outputs read by a layer outside."""
        inside = set(prefix)
        return sum(
            self.layers[v].output_bytes
            for v in inside
            if any(w not in inside for w in self.consumers[v])
        )

    def is_down_closed(self, layers: Iterable[int]) -> bool:
        """Whether every producer of a layer in the set is in the set too (an ideal)."""
        inside = set(layers)
        return all(u in inside for v in inside for u in self.producers[v])

    def down_closure(self, layers: Iterable[int]) -> frozenset[int]:
        """The smallest ideal that holds the given layers."""
        closed: set[int] = set()
        stack = list(layers)
        while stack:
            v = stack.pop()
            if v not in closed:
                closed.add(v)
                stack.extend(self.producers[v])
        return frozenset(closed)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over everything that planning depends on; names and metadata do not count."""
        content = {
            "layers": [
                [
                    x.id,
                    x.forward_ms,
                    x.backward_ms,
                    x.output_bytes,
                    x.parameter_bytes,
                    x.saved_bytes,
                ]
                for x in self.layers
            ],
            "edges": self.edges,
            "inputs": [[x.id, x.output_bytes, x.consumers] for x in self.inputs],
            "together": [[x.layers, x.reason] for x in self.together],
        }
        text = json.dumps(content, separators=(",", ":"), sort_keys=True)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _topological(ids: Sequence[str], pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Topological order, smallest position in `ids` first among those ready.

    Raises ProfileError naming a cycle.
    """
    position = {layer_id: i for i, layer_id in enumerate(ids)}
    sorter = TopologicalSorter({layer_id: () for layer_id in ids})
    for producer, consumer in pairs:
        sorter.add(consumer, producer)
    try:
        sorter.prepare()
    except CycleError as error:
        cycle = list(error.args[1])
        shown = cycle if len(cycle) <= 12 else [*cycle[:6], "...", *cycle[-5:]]
        raise ProfileError(f"the graph has a cycle: {' -> '.join(shown)}") from None
    heap: list[int] = []
    order: list[str] = []
    while sorter.is_active():
        for layer_id in sorter.get_ready():
            heapq.heappush(heap, position[layer_id])
        nearest = ids[heapq.heappop(heap)]
        order.append(nearest)
        sorter.done(nearest)
    return order
