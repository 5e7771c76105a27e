"""The profiled layer graph: what each layer costs and who reads whose output."""

import hashlib
import heapq
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, Final

from pipeplan.core.errors import ProfileError, shown

__all__ = ["MAX_LAYERS", "GraphInput", "Layer", "LayerGraph", "Together", "natural_key"]

MAX_LAYERS: Final = 200_000
"""Bound on layers of a graph: far beyond real ones, yet hostile files fail fast."""

_MAX_BYTES: Final = 2**60
_MAX_MS: Final = 1e15
_MIN_MS: Final = 1e-200


def natural_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key under which node2 comes before node10; different texts have different keys."""
    parts = tuple(
        (0, int(part), "") if part.isdecimal() and len(part) < 19 else (1, 0, part)
        for part in re.split(r"(\d+)", text)
    )
    # node1 and node01 read the same by number: the text itself settles it.
    return (*parts, (-1, 0, text))


def _checked_id(value: str, what: str) -> None:
    if not isinstance(value, str) or not value:
        raise ProfileError(f"{what}'s id is {shown(value)}; it must be text")
    if len(value) > 500 or not value.isprintable():
        raise ProfileError(f"{what}'s id must be at most 500 printable characters", text=value)


def _checked_ms(value: float, what: str) -> float:
    """The figure as a float, so that 1 and 1.0 are the same profile, and so are 0 and -0.

    What is too small to be divided or compared (floats lose their digits towards 5e-324) is 0.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProfileError(f"{what} is {shown(value)}; it must be a number of milliseconds")
    if not 0 <= value <= _MAX_MS:
        raise ProfileError(
            f"{what} is {shown(value)}; it must be a finite number from 0 to {_MAX_MS:g}"
        )
    return float(value) if value >= _MIN_MS else 0.0


def _check_bytes(value: int, what: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_BYTES:
        raise ProfileError(
            f"{what} is {shown(value)}; it must be a whole number of bytes from 0 to 2**60"
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
        _checked_id(self.id, "a layer")
        for name in ("forward_ms", "backward_ms"):
            value = _checked_ms(getattr(self, name), f"layer {self.id}: {name}")
            object.__setattr__(self, name, value)
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
    """A tensor the network is fed: no compute, and loaded where it is read, so it crosses no cut.

    `consumers` are ids of layers. Raises ProfileError on a negative size.
    """

    id: str
    output_bytes: int
    consumers: tuple[str, ...]
    description: str = ""
    tensors: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        _checked_id(self.id, "an input")
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

    def __post_init__(self) -> None:
        """Raise ProfileError where layers or edges are not what the class says they are."""
        count = len(self.layers)
        if not count:
            raise ProfileError("the graph has no layers")
        if len({layer.id for layer in self.layers}) != count:
            raise ProfileError("two layers of the graph have the same id")
        if any(not 0 <= a < b < count for a, b in self.edges):
            raise ProfileError("an edge of the graph does not lead from a layer to a later one")
        if any(a >= b for a, b in pairwise(self.edges)):
            raise ProfileError("the edges of the graph are not sorted, or one is repeated")

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
        """Validate, order topologically and index; no order of the arguments shows in the result.

        Raises ProfileError for an empty graph, duplicate ids, edges, inputs and groups that name
        missing layers, edges of a layer to itself, and cycles (the cycle is named).
        """
        given = sorted(layers, key=lambda layer: natural_key(layer.id))
        if not given:
            raise ProfileError("the graph has no layers")
        if len(given) > MAX_LAYERS:
            raise ProfileError(f"the graph has {len(given)} layers; at most {MAX_LAYERS} are read")
        feeds = sorted(inputs, key=lambda item: natural_key(item.id))
        groups = tuple(together)
        by_id = {layer.id: layer for layer in given}
        _check_unique([layer.id for layer in given], [item.id for item in feeds])
        pairs = sorted(set(edges))
        for producer, consumer in pairs:
            if producer not in by_id or consumer not in by_id:
                who = f"edge {shown(producer)} -> {shown(consumer)}"
                _check_known(by_id, (producer, consumer), who)
            if producer == consumer:
                raise ProfileError(f"layer {producer} reads its own output")
        for item in feeds:
            _check_known(by_id, item.consumers, f"input {item.id}")
        for group in groups:
            if not group.layers:
                raise ProfileError("a group of layers to keep together is empty")
            _check_known(by_id, group.layers, "a group of layers to keep together")
        order = _topological([layer.id for layer in given], pairs)
        index = {layer_id: i for i, layer_id in enumerate(order)}

        def ordered(ids: Iterable[str]) -> tuple[str, ...]:
            return tuple(sorted(set(ids), key=index.__getitem__))

        return LayerGraph(
            layers=tuple(by_id[layer_id] for layer_id in order),
            edges=tuple(sorted((index[a], index[b]) for a, b in pairs)),
            inputs=tuple(replace(item, consumers=ordered(item.consumers)) for item in feeds),
            together=tuple(
                sorted(
                    (replace(group, layers=ordered(group.layers)) for group in groups),
                    key=lambda group: ([index[x] for x in group.layers], group.reason),
                )
            ),
            name=name,
            metadata=dict(metadata or {}),
        )

    def __len__(self) -> int:
        return len(self.layers)

    def __hash__(self) -> int:
        # The generated hash would trip over the metadata, which is a mapping.
        return hash(self.digest)

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
        """SHA-256 over all that planning depends on; name, metadata and tensor shapes do not count.

        Descriptions do: cost model `pipedream` leaves out layers by them.
        """
        content = {
            "layers": [
                [
                    x.id,
                    x.forward_ms,
                    x.backward_ms,
                    x.output_bytes,
                    x.parameter_bytes,
                    x.saved_bytes,
                    x.description,
                ]
                for x in self.layers
            ],
            "edges": self.edges,
            "inputs": [[x.id, x.output_bytes, x.consumers] for x in self.inputs],
            "together": [[x.layers, x.reason] for x in self.together],
        }
        text = json.dumps(content, separators=(",", ":"), sort_keys=True)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _check_unique(layers: Sequence[str], inputs: Sequence[str]) -> None:
    seen: set[str] = set()
    for kind, ids in (("layer", layers), ("input", inputs)):
        for name in ids:
            if name in seen:
                raise ProfileError(f"{kind} {name} appears twice")
            seen.add(name)


def _check_known(known: Mapping[str, Layer], ids: Iterable[str], who: str) -> None:
    for name in ids:
        if name not in known:
            raise ProfileError(f"{who} names layer {shown(name)}, which the graph does not have")


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
