"""Which lines of a graph.txt are inputs of the network rather than layers."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pipeplan.core.graph import Layer, natural_key

__all__ = ["FoundInputs", "input_ids"]

_INPUT_WORDS: Final = frozenset(
    {"input", "inputs", "ids", "mask", "masks", "token", "tokens", "label", "labels"}
    | {"target", "targets", "pixels", "image", "images"}
)
_IDENTIFIER: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class FoundInputs:
    """Ids of inputs in the order of their names, and what to tell about them."""

    ids: tuple[str, ...]
    warnings: tuple[str, ...]


def input_ids(layers: Mapping[str, Layer], edges: Sequence[tuple[str, str]]) -> FoundInputs:
    """Sources called Input..., and layers that are inputs by all appearance.

    The latter is DAPPLE's spelling (`input_ids`, `attention_mask`): no parameters, no backward
    time, a bare name that ends in a word for an input, and fed by nothing but inputs (its mask
    hangs on its ids). An input's time is the loading of data, not work of a device, so it does not
    count.
    """
    consumers: dict[str, list[str]] = {layer_id: [] for layer_id in layers}
    waiting = dict.fromkeys(layers, 0)
    for producer, consumer in edges:
        consumers[producer].append(consumer)
        waiting[consumer] += 1
    sources = [i for i in layers if not waiting[i]]
    named = {i for i in sources if layers[i].description.startswith("Input")}
    found = {i for i in sources if i in named or _looks_like_input(layers[i])}
    frontier = list(found)
    while frontier:
        for reader in consumers[frontier.pop()]:
            waiting[reader] -= 1
            if not waiting[reader] and _looks_like_input(layers[reader]):
                found.add(reader)
                frontier.append(reader)
    ids = tuple(sorted(found, key=natural_key))
    return FoundInputs(ids, tuple(_warnings(layers, ids, named, edges)))


def _looks_like_input(layer: Layer) -> bool:
    if layer.parameter_bytes or layer.backward_ms or not _IDENTIFIER.fullmatch(layer.description):
        return False
    words = layer.description.lower().rstrip("0123456789").rstrip("_").split("_")
    return words[-1] in _INPUT_WORDS


def _warnings(
    layers: Mapping[str, Layer],
    ids: Sequence[str],
    named: set[str],
    edges: Sequence[tuple[str, str]],
) -> list[str]:
    found: list[str] = []
    for i in ids:
        if i not in named:
            found.append(f"{i} ({layers[i].description}) is taken for an input of the network")
        if layers[i].compute_ms > 0:
            found.append(
                f"input {i} takes {layers[i].compute_ms:g} ms (loading of data): not counted"
            )
        if layers[i].parameter_bytes > 0:
            found.append(
                f"input {i} has {layers[i].parameter_bytes} bytes of parameters: not counted"
            )
    members = set(ids)
    for producer, consumer in edges:
        if producer in members and consumer in members:
            found.append(f"edge {producer} -> {consumer} joins two inputs: ignored")
    return found
