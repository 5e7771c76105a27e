"""A bare graph.txt as a program: every layer's text becomes an operation, or a located error.

Arguments are those of the file, in its order. What the texts cannot say is stated as a note in the
generated code: bounds of a slice, and whether a value is overwritten in place (only where nothing
else reads it).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from pipeplan.codegen.layer_error import LayerError
from pipeplan.codegen.layer_text import BadTextError, LayerText, parse_layer_text
from pipeplan.codegen.program import (
    Argument,
    Member,
    Operation,
    Program,
    ProgramInput,
    TensorSpec,
    ValueRef,
)
from pipeplan.codegen.text_modules import UnknownLayerError, arity, member_of
from pipeplan.codegen.torch_modules import RECURRENT
from pipeplan.core.errors import ProfileError
from pipeplan.core.graph import GraphInput, Layer, LayerGraph, natural_key
from pipeplan.core.units import plural

__all__ = ["program_from_text"]

_TUPLES: Final = RECURRENT | {"RecurrentAttention"}
_ALIASES: Final = frozenset({"View", "Transpose", "Dropout", "Identity", "Flatten", "__getitem__"})
"""Layers whose output may share its input's memory."""


@dataclass
class _Builder:
    """What is known while the layers are read in topological order."""

    graph: LayerGraph
    arguments: dict[str, tuple[str, ...]]
    texts: dict[str, LayerText]
    constants: frozenset[str]
    operations: dict[str, Operation] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    sizes: set[str] = field(default_factory=set)
    """Layers that yield a number or a shape."""
    tuples: set[str] = field(default_factory=set)
    """Layers that yield a tuple."""
    states: set[str] = field(default_factory=set)
    """Those of them that are the state of a recurrent module."""
    none: set[str] = field(default_factory=set)
    """Layers that stand for no initial state."""

    @cached_property
    def readers(self) -> dict[str, list[str]]:
        """Layers that read a value for its elements: a size does not."""
        out: dict[str, list[str]] = {x: [] for x in (*self.arguments, *self.inputs)}
        for layer_id, read in self.arguments.items():
            if layer_id not in self.sizes:
                for value in read:
                    out[value].append(layer_id)
        return out

    @cached_property
    def inputs(self) -> dict[str, GraphInput]:
        """Inputs of the network by id."""
        return {x.id: x for x in self.graph.inputs}


def program_from_text(graph: LayerGraph) -> Program:
    """The program of a graph whose layers are described by PipeDream's texts.

    Raises ProfileError naming the layer, the position in its text, and the text.
    """
    texts = {layer.id: _parse(layer) for layer in graph.layers}
    builder = _Builder(
        graph,
        _arguments(graph),
        texts,
        frozenset(x for x in _texts(graph, "constants") if x in graph.index),
    )
    builder.sizes = {i for i, text in texts.items() if text.name == "Size"}
    for layer in graph.layers:
        operation = _operation(builder, layer)
        builder.operations[layer.id] = operation
    outputs = _outputs(builder)
    return Program(
        name=graph.name,
        inputs=tuple(_input(builder, x.id) for x in graph.inputs),
        operations=tuple(builder.operations.values()),
        members=builder.members,
        output=tuple(ValueRef(x) for x in outputs),
    )


def _parse(layer: Layer) -> LayerText:
    try:
        return parse_layer_text(layer.description)
    except BadTextError as error:
        raise _error(layer, f"{error.message} (character {error.position})") from None


def _error(layer: Layer, message: str) -> LayerError:
    return LayerError(layer.id, message, layer.description)


def _texts(graph: LayerGraph, key: str) -> list[str]:
    found = graph.metadata.get(key, [])
    return [x for x in found if isinstance(x, str)] if isinstance(found, list) else []


def _arguments(graph: LayerGraph) -> dict[str, tuple[str, ...]]:
    """What each layer reads, in the order of the file (by id where the file gave no order)."""
    read: dict[str, list[str]] = {layer.id: [] for layer in graph.layers}
    for item in graph.inputs:
        for consumer in item.consumers:
            read[consumer].append(item.id)
    for a, b in graph.edges:
        read[graph.layers[b].id].append(graph.layers[a].id)
    given = graph.metadata.get("arguments", {})
    out: dict[str, tuple[str, ...]] = {}
    for layer_id, found in read.items():
        order = given.get(layer_id) if isinstance(given, dict) else None
        if order is None:
            order = sorted(found, key=natural_key)
        elif not isinstance(order, list) or sorted(map(str, order)) != sorted(found):
            raise ProfileError(
                f"metadata: the arguments of layer {layer_id} are not the layers that it reads",
                text=repr(order),
            )
        out[layer_id] = tuple(order)
    return out


def _operation(builder: _Builder, layer: Layer) -> Operation:
    text = builder.texts[layer.id]
    if layer.id in builder.constants and text.name in ("hidden", "__getitem__"):
        # An initial state that the profiler saw as a value: no state at all, for a module of torch.
        builder.none.add(layer.id)
        return _op(layer, "constant", "None", (), is_portable=True, yields_tensor=False)
    functional = _FUNCTIONAL.get(text.name)
    if functional is not None:
        _without_children(layer, text)
        return functional(builder, layer, text)
    try:
        member = member_of(layer.id, text)
        fewest, most = arity(text)
    except UnknownLayerError as error:
        raise _error(layer, str(error)) from None
    read = builder.arguments[layer.id]
    if not fewest <= len(read) <= most:
        takes = str(most) if fewest == most else f"{fewest} to {most}"
        raise _error(layer, f"reads {plural(len(read), 'value')}; {text.name} takes {takes}")
    for position, value in enumerate(read):
        # A recurrent module's state: none at all, or what another one ended with.
        state = value in builder.none or value in builder.states
        if not state or position == 0 or text.name not in _TUPLES:
            _demand_value(builder, layer, value)
    if text.name in _TUPLES:
        builder.tuples.add(layer.id)
    member, mutates, note = _in_place(builder, layer, member, read[0])
    builder.members[layer.id] = member
    return _op(
        layer,
        "module",
        layer.id,
        tuple(map(ValueRef, read)),
        yields_tensor=layer.id not in builder.tuples,
        mutates=mutates,
        note=note,
    )


def _op(layer: Layer, form: Any, target: str, args: tuple[Argument, ...], **more: Any) -> Operation:
    tensors = tuple(
        TensorSpec(
            bytes=x["bytes"] if isinstance(x.get("bytes"), int) else None,
        )
        for x in layer.tensors
    )
    return Operation(layer.id, layer.id, form, target, args, tensors=tensors, **more)


def _demand_value(builder: _Builder, layer: Layer, value: str) -> None:
    if value in builder.none:
        raise _error(layer, f"reads the constant {value}, whose value the profile does not hold")
    if value in builder.sizes:
        raise _error(layer, f"reads the size {value}, which is no tensor")
    if value in builder.tuples:
        raise _error(layer, f"reads layer {value}, which yields a tuple, without taking an item")


def _in_place(
    builder: _Builder, layer: Layer, member: Member, value: str
) -> tuple[Member, tuple[str, ...], str]:
    """Keep `inplace` only where nothing else could see the overwritten memory."""
    if member.constructor is None or not member.constructor[2].get("inplace"):
        return member, (), ""
    root = value
    while len(builder.readers[root]) == 1:
        source = builder.texts.get(root)
        if source is None or source.name not in _ALIASES or not builder.arguments[root]:
            return member, (value,), ""
        root = next(x for x in builder.arguments[root] if x not in builder.sizes)
    name, args, kwargs = member.constructor
    kept = {key: x for key, x in kwargs.items() if key != "inplace"}
    note = f"not in place: {root} has other readers"
    return Member(member.key, member.path, (name, args, kept)), (), note


def _without_children(layer: Layer, text: LayerText) -> None:
    if text.children:
        raise _error(layer, f"{text.name} has no child layers")


def _tensors_read(builder: _Builder, layer: Layer) -> list[str]:
    read = [x for x in builder.arguments[layer.id] if x not in builder.sizes]
    for value in read:
        _demand_value(builder, layer, value)
    return read


def _one_tensor(builder: _Builder, layer: Layer) -> str:
    read = _tensors_read(builder, layer)
    if len(read) != 1:
        raise _error(layer, f"reads {plural(len(read), 'tensor')}; it takes one")
    return read[0]


def _integers(layer: Layer, text: LayerText, fewest: int, most: int) -> tuple[int, ...]:
    """Whole numbers given as arguments; the word `inplace` that some profiles add means nothing."""
    extra = set(text.keywords()) - {"inplace"}
    if extra or not all(type(x) is int for x in text.args):
        raise _error(layer, f"{text.name} takes whole numbers")
    if not fewest <= len(text.args) <= most:
        raise _error(layer, f"{text.name} takes {fewest} to {most} numbers, not {len(text.args)}")
    return text.args


def _joined(symbol: str) -> Callable[[_Builder, Layer, LayerText], Operation]:
    def build(builder: _Builder, layer: Layer, text: LayerText) -> Operation:
        # Never in place: others may read the first operand.
        _integers(layer, text, 0, 0)
        read = _tensors_read(builder, layer)
        if len(read) < 2:
            raise _error(layer, f"reads {plural(len(read), 'value')}; it takes two or more")
        return _op(layer, "infix", symbol, tuple(map(ValueRef, read)))

    return build


def _concat(builder: _Builder, layer: Layer, text: LayerText) -> Operation:
    (dimension,) = _integers(layer, text, 1, 1)
    read = _tensors_read(builder, layer)
    if not read:
        raise _error(layer, "reads no value")
    return _op(layer, "function", "torch.cat", (list(map(ValueRef, read)), dimension))


def _size(builder: _Builder, layer: Layer, text: LayerText) -> Operation:
    value = _one_tensor(builder, layer)
    dimensions = _integers(layer, text, 0, 1)
    if not dimensions and not text.bare:
        # `Size(inplace)` is one profiler's spelling of the batch size.
        dimensions = (0,)
    args = (ValueRef(value), *dimensions)
    return _op(layer, "method", "size", args, yields_tensor=False, is_portable=True)


def _view(builder: _Builder, layer: Layer, text: LayerText) -> Operation:
    value = _one_tensor(builder, layer)
    numbers = _integers(layer, text, 0, 16)
    sizes = [x for x in builder.arguments[layer.id] if x in builder.sizes]
    shape: tuple[Argument, ...] = (*map(ValueRef, sizes), *numbers)
    whole = [x for x in sizes if builder.texts[x].bare]
    if whole and len(shape) > 1:
        raise _error(layer, f"reads the whole shape {whole[0]} and more, so its shape is unknown")
    if not sizes and len(numbers) == 1 and numbers != (-1,):
        # The batch size was a constant in the program, as in x.view(-1, 9216).
        shape = (-1, *numbers)
    elif len(sizes) == 1 and not whole and not numbers:
        shape = (*shape, -1)
    if not shape:
        raise _error(layer, "neither its text nor what it reads says what shape it makes")
    return _op(layer, "method", "view", (ValueRef(value), *shape), alias_of=value)


def _transpose(builder: _Builder, layer: Layer, text: LayerText) -> Operation:
    value = _one_tensor(builder, layer)
    pair = _integers(layer, text, 2, 2)
    return _op(layer, "method", "transpose", (ValueRef(value), *pair), alias_of=value)


def _getitem(builder: _Builder, layer: Layer, text: LayerText) -> Operation:
    read = builder.arguments[layer.id]
    if len(read) != 1 or read[0] in builder.sizes:
        raise _error(layer, "takes one tuple or tensor")
    (value,) = read
    source = builder.graph.layers[builder.graph.index[value]] if value in builder.texts else None
    is_tuple = value in builder.tuples
    if text.keywords() or len(text.args) > 1:
        raise _error(layer, "takes one index")
    if not text.args:
        if is_tuple:
            raise _error(
                layer, f"layer {value} yields a tuple, and which item is taken is not said"
            )
        if source is not None and source.output_bytes != layer.output_bytes:
            raise _error(layer, "is a slice whose bounds the profile does not hold")
        note = "a slice whose bounds the profile does not hold; the sizes are equal, so all of it"
        return _op(layer, "alias", "", (ValueRef(value),), alias_of=value, note=note)
    index = text.args[0]
    if is_tuple:
        if type(index) is not int or not 0 <= index <= 15:
            raise _error(layer, f"an item of layer {value} is a whole number from 0 to 15")
        # The state of an LSTM, item 1, is a tuple itself.
        if index == 1 and builder.texts[value].name in ("LSTM", "RecurrentAttention"):
            builder.tuples.add(layer.id)
            builder.states.add(layer.id)
    return _op(
        layer,
        "subscript",
        "",
        (ValueRef(value), index),
        yields_tensor=layer.id not in builder.tuples,
        is_item=is_tuple,
        alias_of=value,
    )


_FUNCTIONAL: Final[dict[str, Callable[[_Builder, Layer, LayerText], Operation]]] = {
    "Add": _joined("+"),
    "Mul": _joined("*"),
    "Concat": _concat,
    "Size": _size,
    "View": _view,
    "Transpose": _transpose,
    "__getitem__": _getitem,
}


def _outputs(builder: _Builder) -> list[str]:
    """Values that nobody reads and that are results: not sizes, and items only for want of others.

    Items left over are those of tuples of which the network uses some, such as an LSTM's state.
    """
    read = {x for found in builder.arguments.values() for x in found}
    left = [x for x in builder.graph.layers if x.id not in read]
    tensors = [x.id for x in left if builder.operations[x.id].yields_tensor]
    results = [x for x in tensors if not builder.operations[x].is_item] or tensors
    if not results:
        raise ProfileError(f"no layer yields a result: {', '.join(x.id for x in left[:6])} is left")
    return results


def _input(builder: _Builder, input_id: str) -> ProgramInput:
    """An input; one that embeddings look up is of whole numbers below the smallest of them."""
    readers = [builder.texts[i] for i in builder.readers[input_id]]
    lookups = [text for text in readers if text.name == "Embedding"]
    size = builder.inputs[input_id].output_bytes
    if lookups:
        high = min(int(text.args[0]) for text in lookups if text.args)
        return ProgramInput(input_id, TensorSpec(dtype="int64", bytes=size), high=high)
    lengths = any(text.name in ("EmuBidirLSTM", "RecurrentAttention") for text in readers)
    dtype = "int64" if lengths else "float32"
    return ProgramInput(input_id, TensorSpec(dtype=dtype, bytes=size))
