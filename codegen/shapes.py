"""The shape of each input for made-up data: as captured, or guessed from a graph.txt's bytes."""

from dataclasses import dataclass
from math import isqrt
from typing import Final

from pipeplan.codegen.layer_text import BadTextError, LayerText, parse_layer_text
from pipeplan.codegen.program import ProgramInput
from pipeplan.core.graph import LayerGraph

__all__ = ["InputShape", "input_shape"]

_IMAGE: Final = 224
_TIME: Final = 8
_BATCH: Final = 4


@dataclass(frozen=True, slots=True)
class InputShape:
    """Shape and dtype of made-up data, and the range of whole numbers; `guessed` tells a guess."""

    shape: tuple[int, ...]
    dtype: str
    low: int
    high: int | None
    guessed: bool


def input_shape(item: ProgramInput, graph: LayerGraph) -> InputShape:
    """As captured; else what the layers that read it suggest.

    Images of a convolution's channels and a usual size, as many as make up the profiled bytes;
    sequences of a few words, time first; and their lengths. To be edited in train.py.
    """
    dtype = item.spec.dtype or "float32"
    if item.spec.shape is not None:
        high = item.high if item.high is not None else 2 if not dtype.startswith("float") else None
        return InputShape(item.spec.shape, dtype, item.low, high, guessed=False)
    readers = [x for x in map(_text, _readers(item, graph)) if x is not None]
    names = {x.name for x in readers}
    if "Embedding" in names:
        return InputShape((_TIME, _BATCH), "int64", 0, item.high, guessed=True)
    if names & {"EmuBidirLSTM", "RecurrentAttention"}:
        return InputShape((_BATCH,), "int64", 1, _TIME + 1, guessed=True)
    for text in readers:
        if text.name in ("Conv2d", "BatchNorm2d") and text.args and type(text.args[0]) is int:
            return InputShape(_images(text.args[0], item.spec.bytes or 0), dtype, 0, None, True)
        if text.name == "Linear":
            features = text.args[0] if text.args else text.keywords().get("in_features")
            if type(features) is int:
                return InputShape((_BATCH, features), dtype, 0, None, guessed=True)
    return InputShape(_images(3, item.spec.bytes or 0), dtype, 0, None, guessed=True)


def _readers(item: ProgramInput, graph: LayerGraph) -> list[str]:
    found = next(x for x in graph.inputs if x.id == item.id)
    return [graph.layers[graph.index[x]].description for x in found.consumers]


def _text(description: str) -> LayerText | None:
    try:
        return parse_layer_text(description)
    except BadTextError:
        return None


def _images(channels: int, size: int) -> tuple[int, ...]:
    """(batch, channels, height, width) of 4-byte elements that make up `size` bytes."""
    elements, rest = divmod(size, 4 * channels)
    for side in (_IMAGE, 299, 331, 227, 32, 28):
        batch, over = divmod(elements, side * side)
        if batch and not rest and not over:
            return batch, channels, side, side
    side = isqrt(elements)
    if side and side * side == elements:
        return 1, channels, side, side
    return _BATCH, channels, _IMAGE, _IMAGE
