"""What a capture yields: nodes in the order in which they ran, and the values between them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from pipeplan.models.capture.values import leaves

__all__ = [
    "CapturedGraph",
    "CapturedInput",
    "CapturedNode",
    "DeviceFlag",
    "Ref",
    "TensorSpec",
    "TrainingFlag",
]

_ITEM_BYTES: Final = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor's shape and dtype (torch's name for it, without `torch.`)."""

    shape: tuple[int, ...]
    dtype: str
    requires_grad: bool = False

    @property
    def bytes(self) -> int:
        """Elements times the size of one; one byte each for the types of 8 bits or fewer."""
        return math.prod(self.shape) * _ITEM_BYTES.get(self.dtype, 1)


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor in an argument: what made it, and the name of that.

    `node`: the tensor that the node of this id yields. `input`: an input of the network, by name.
    `parameter` and `buffer`: state read directly by the module's code, by its first qualified name.
    `constant`: a tensor held by a module without being registered, as path.attribute.
    """

    kind: Literal["node", "input", "parameter", "buffer", "constant"]
    name: str


@dataclass(frozen=True, slots=True)
class TrainingFlag:
    """Stands for the value of `self.training` of the module that made the call."""


@dataclass(frozen=True, slots=True)
class DeviceFlag:
    """Stands for the device that the code runs on, where the model named its own."""


@dataclass(frozen=True, slots=True)
class CapturedInput:
    """An input tensor of the network; `path` leads to it in (args, kwargs)."""

    name: str
    path: tuple[int | str, ...]
    spec: TensorSpec


@dataclass(frozen=True)
class CapturedNode:
    """One call. Its id is the id of the layer in the profile.

    kind `module`: target is the path of a module that was called. kind `function`: target is a
    name that leads to a callable from `torch`, such as torch.Tensor.view; what a property yields is
    torch.Tensor.T.__get__. kind `item`: the tensor at `path` in the result of the node that
    args[0] refers to; that node yields a tuple or a mapping, and only items read it.
    """

    id: str
    kind: Literal["module", "function", "item"]
    target: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[TensorSpec, ...]
    scope: str
    """Path of the module whose code made the call; empty for the whole model."""
    description: str
    parameters: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    path: tuple[int | str, ...] = ()
    mutates: tuple[Ref, ...] = ()
    """Values that the call overwrites: whoever reads them later reads this node instead."""
    alias_of: Ref | None = None
    """The value whose memory the output shares: a view, an item, or the tensor overwritten."""
    value_argument: int | None = None
    """Set where the call yields nothing: the node's value is this argument, after the call."""
    is_constant: bool = False
    """Made from nothing (no input, state or random number), so it can be made anywhere."""

    @cached_property
    def refs(self) -> tuple[Ref, ...]:
        """Every tensor among the arguments, once each, in order."""
        found = (x for x in leaves((self.args, dict(self.kwargs))) if isinstance(x, Ref))
        return tuple(dict.fromkeys(found))

    @property
    def is_tuple(self) -> bool:
        """Whether the call yields more than a single tensor, so that only items read it."""
        return self.kind != "item" and len(self.outputs) != 1


@dataclass(frozen=True)
class CapturedGraph:
    """A model's calls in the order in which they ran.

    `output` is the model's result with Refs for tensors. `tied` maps a parameter's first name to
    all its names, where there are several. `together` are ids that must stay on one device, with
    the reason. `messages` say what was lost.
    """

    nodes: tuple[CapturedNode, ...]
    inputs: tuple[CapturedInput, ...]
    output: Any
    training: bool
    tied: Mapping[str, tuple[str, ...]]
    together: tuple[tuple[tuple[str, ...], str], ...]
    messages: tuple[str, ...] = ()
    needs_values: bool = False
    """Whether some code depends on values of tensors, so that it cannot run without memory."""

    @cached_property
    def by_id(self) -> Mapping[str, CapturedNode]:
        """Nodes by id."""
        return {node.id: node for node in self.nodes}

    def edges(self) -> Iterator[tuple[str, str]]:
        """Pairs (producer, consumer) of ids."""
        for node in self.nodes:
            for ref in node.refs:
                if ref.kind == "node":
                    yield ref.name, node.id
