"""Which layers of a bare graph must share a stage: tuples, constants and sizes.

A graph.txt says nothing about values, so this goes by the layers' texts. In-place operations are
not grouped: whoever receives a tensor from another stage owns that copy.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from pipeplan.core.graph import Layer, Together, natural_key

__all__ = ["constant_ids", "together_of"]

_ITEM: Final = re.compile(r"__getitem__\(\s*-?[0-9]+\s*\)")
_SIZE: Final = re.compile(r"Size\(.*\)|Size", re.DOTALL)


def constant_ids(
    layers: Mapping[str, Layer], edges: Collection[tuple[str, str]], fed: Collection[str]
) -> frozenset[str]:
    """Layers that compute nothing from nothing: sources that cost nothing, and items of those.

    `fed` names the layers that read an input of the network. A constant can be made wherever it is
    read, so it need never cross a cut.
    """
    producers: dict[str, list[str]] = {layer_id: [] for layer_id in layers}
    consumers: dict[str, list[str]] = {layer_id: [] for layer_id in layers}
    for producer, consumer in edges:
        producers[consumer].append(producer)
        consumers[producer].append(consumer)
    free = {
        layer.id
        for layer in layers.values()
        if layer.compute_ms == 0 and layer.parameter_bytes == 0 and layer.id not in fed
    }
    constants = {i for i in free if not producers[i] and consumers[i]}
    frontier = sorted(constants)
    while frontier:
        for reader in consumers[frontier.pop()]:
            is_item = layers[reader].description.startswith("__getitem__")
            if reader in free and is_item and len(producers[reader]) == 1:
                constants.add(reader)
                frontier.append(reader)
    return frozenset(constants)


def together_of(
    layers: Mapping[str, Layer], edges: Sequence[tuple[str, str]], constants: Collection[str]
) -> tuple[Together, ...]:
    """Groups that no cut may part, in the order of their ids.

    - A tuple and its items: a producer with `__getitem__(i)` readers. A bare `__getitem__`, or one
      with slices, is an item only of a layer with several outputs; of a tensor it is a slice.
    - A constant that one layer reads, with that layer. One that several read (GNMT's `hidden`,
      whose items start every decoder layer) is left free: tied to all its readers, it would weld
      them into one stage, although each of them can make it anew.
    - A size with its consumers.
    """
    consumers: dict[str, list[str]] = {}
    for producer, consumer in edges:
        consumers.setdefault(producer, []).append(consumer)
    groups: list[Together] = []
    for producer in sorted(consumers, key=natural_key):
        layer = layers[producer]
        readers = sorted(set(consumers[producer]), key=natural_key)
        if producer in constants:
            if len(readers) == 1:
                groups.append(Together((producer, *readers), "constant with its consumer"))
            continue
        items = [r for r in readers if _is_item(layers[r].description, len(layer.tensors))]
        if items:
            groups.append(Together((producer, *items), "a tuple and its items"))
        if _SIZE.fullmatch(layer.description):
            groups.append(Together((producer, *readers), "size with its consumer"))
    return tuple(groups)


def _is_item(description: str, outputs: int) -> bool:
    if _ITEM.fullmatch(description):
        return True
    return outputs > 1 and description.startswith("__getitem__")
