"""A model as code generation sees it: operations in an order of execution, as inert data.

Both sources (a captured model, the layer texts of a graph.txt) become this, and the emitter turns
it into Python. Nothing here is source text: callables are names that the sources checked against
their whitelists, constants are Python literals, and values are ids.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from pipeplan.core.units import plural

__all__ = [
    "Argument",
    "Form",
    "Member",
    "Operation",
    "Place",
    "Precision",
    "Program",
    "ProgramInput",
    "StateRef",
    "StateTensor",
    "TensorSpec",
    "TorchConstant",
    "TrainingFlag",
    "ValueRef",
    "values_in",
]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What is known of a tensor: a graph.txt knows its bytes alone."""

    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    requires_grad: bool | None = None
    bytes: int | None = None

    def __str__(self) -> str:
        if self.shape is not None:
            shape = ", ".join(map(str, self.shape))
            return f"{self.dtype or 'unknown dtype'}[{shape}]"
        return (
            "shape not recorded"
            if self.bytes is None
            else f"{plural(self.bytes, 'byte')} in the profile"
        )


@dataclass(frozen=True, slots=True)
class ValueRef:
    """The value of an input or operation."""

    id: str


@dataclass(frozen=True, slots=True)
class StateRef:
    """A parameter, buffer or constant tensor that the stage itself holds, by its original name."""

    name: str


@dataclass(frozen=True, slots=True)
class TrainingFlag:
    """The stage's own `self.training`."""


@dataclass(frozen=True, slots=True)
class TorchConstant:
    """A constant of torch by its checked dotted name, such as `torch.float32`."""

    name: str


@dataclass(frozen=True, slots=True)
class Precision:
    """A floating type by its checked name, which double precision of the whole stage replaces."""

    name: str


@dataclass(frozen=True, slots=True)
class Place:
    """A device: that of the stage, whatever the model was captured on."""


Argument: TypeAlias = Any
"""What an operation is given: None, bool, int, float, str, Ellipsis, ValueRef, StateRef,
TrainingFlag, TorchConstant, Precision, Place, and tuples, lists, slices and text-keyed dicts of
them."""

Form = Literal[
    "module", "function", "method", "infix", "prefix", "subscript", "property", "alias", "constant"
]


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of the forward.

    By `form`, `target` is: module: the key of a member, called with the arguments. function: a
    checked dotted name. method: a method of the first argument. infix, prefix: an operator.
    subscript: unused, the further arguments are indices, one after the other. property: an
    attribute of the argument.
    alias: unused, the value is the argument itself. constant: the text of a literal.

    `mutates` are ids of values that it overwrites. `is_item` takes a tensor out of a tuple, and
    runs where the tuple is made; `is_portable` makes the same wherever it runs (constants, sizes),
    and runs where it is read. `returns` names an argument whose value it stands for where the call
    itself yields nothing. `note` is shown as a comment.
    """

    id: str
    layer: str
    form: Form
    target: str
    args: tuple[Argument, ...] = ()
    kwargs: Mapping[str, Argument] = field(default_factory=dict)
    tensors: tuple[TensorSpec, ...] = ()
    yields_tensor: bool = True
    is_item: bool = False
    is_portable: bool = False
    mutates: tuple[str, ...] = ()
    alias_of: str | None = None
    returns: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """A module of the model: how to build it, and the prefix of its state's names in the original.

    `constructor` is (checked dotted name, positional, keywords), or None where the module is taken
    out of the model that the factory builds, by its `path`. `children` are members of a container.
    """

    key: str
    path: str
    constructor: tuple[str, tuple[Any, ...], Mapping[str, Any]] | None
    children: tuple["Member", ...] = ()


@dataclass(frozen=True, slots=True)
class StateTensor:
    """A tensor of the model's state: its original name, kind, spec and, for constants, elements."""

    name: str
    kind: Literal["parameter", "buffer", "constant"]
    spec: TensorSpec
    persistent: bool = True


@dataclass(frozen=True, slots=True)
class ProgramInput:
    """An input of the network; `path` leads to it in (args, kwargs) of the original.

    Where data are made up, whole numbers are drawn from `low` to below `high` (None: not known).
    """

    id: str
    spec: TensorSpec
    path: tuple[int | str, ...] = ()
    low: int = 0
    high: int | None = None


@dataclass(frozen=True)
class Program:
    """Operations in an order of execution, what they need, and the values that are returned.

    `tied` maps the first name of a parameter to all its names where there are several. `factory` is
    `MODULE:FACTORY`, called with the keywords `sizes`; '' where the source is a bare graph.
    `output` is the structure returned, with ValueRefs for tensors.
    """

    name: str
    inputs: tuple[ProgramInput, ...]
    operations: tuple[Operation, ...]
    members: Mapping[str, Member]
    output: Argument
    state: Mapping[str, StateTensor] = field(default_factory=dict)
    tied: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    factory: str = ""
    sizes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def by_id(self) -> dict[str, Operation]:
        """Operations by id."""
        return {x.id: x for x in self.operations}


def values_in(argument: Any) -> Iterator[ValueRef]:
    """The values that an argument reads, in order, repeats included."""
    for leaf in leaves_in(argument):
        if isinstance(leaf, ValueRef):
            yield leaf


def leaves_in(argument: Any) -> Iterator[Any]:
    """Whatever is no container, in order."""
    if isinstance(argument, tuple | list):
        for item in argument:
            yield from leaves_in(item)
    elif isinstance(argument, Mapping):
        for item in argument.values():
            yield from leaves_in(item)
    elif isinstance(argument, slice):
        yield from leaves_in((argument.start, argument.stop, argument.step))
    else:
        yield argument
