"""A captured model as a program: what it calls is looked up in the list of what may be called."""

import re
from collections.abc import Mapping
from keyword import iskeyword
from typing import Any, Final

from pipeplan.codegen.callables import CALLABLES, FACTORIES, PROPERTIES
from pipeplan.codegen.layer_error import LayerError
from pipeplan.codegen.layer_text import BadTextError, LayerText, parse_layer_text
from pipeplan.codegen.program import (
    Argument,
    Form,
    Member,
    Operation,
    Place,
    Precision,
    Program,
    ProgramInput,
    StateRef,
    StateTensor,
    TensorSpec,
    TorchConstant,
    TrainingFlag,
    ValueRef,
)
from pipeplan.codegen.text_modules import UnknownLayerError, member_of
from pipeplan.codegen.torch_modules import NN_MODULES
from pipeplan.core import captured as c
from pipeplan.core.errors import ProfileError
from pipeplan.core.graph import LayerGraph

__all__ = ["program_from_capture"]

_INFIX: Final = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "truediv": "/", "floordiv": "//", "mod": "%",
    "pow": "**", "matmul": "@", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_PREFIX: Final = {"neg": "-", "pos": "+", "invert": "~"}
_PLAIN: Final = ("add", "sub", "mul", "div", "matmul")
"""Methods that read better as operators, where they have two operands and no options."""

_FACTORY: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.A)
_PATH: Final = re.compile(r"\w+(\.\w+)*", re.A)
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{1,31}", re.A)
_STRING: Final = re.compile(r"[A-Za-z0-9_.,>-]{0,80}", re.A)
_DEVICES: Final = frozenset({"cpu", "cuda", "meta"})


def program_from_capture(graph: LayerGraph, model: c.CapturedModel) -> Program:
    """The program of a captured model.

    Raises ProfileError naming the layer where it calls what is not on the list, or is given what is
    no plain constant.
    """
    if not _FACTORY.fullmatch(model.factory):
        raise ProfileError("the capture's factory is not MODULE:FACTORY", text=model.factory)
    ids = {call.id for call in model.calls}
    missing = [layer.id for layer in graph.layers if layer.id not in ids]
    if missing:
        raise ProfileError(f"layer {missing[0]} is not in the capture that the profile holds")
    members = {x.path: _member(x, model) for x in model.modules}
    operations = tuple(_operation(call) for call in model.calls)
    for state in model.state:
        _path(state.name, "a state")
    for names in model.tied.values():
        for name in names:
            _path(name, "a tied parameter")
    return Program(
        name=graph.name,
        inputs=tuple(_input(x, model) for x in model.inputs),
        operations=operations,
        members=members,
        output=_output(model),
        state={
            x.name: StateTensor(x.name, x.kind, _spec(x.tensor), x.persistent) for x in model.state
        },
        tied=dict(model.tied),
        factory=model.factory,
        sizes=dict(model.sizes),
    )


def _error(call: c.CapturedCall, message: str, text: object = None) -> LayerError:
    return LayerError(call.id, message, None if text is None else str(text))


def _spec(tensor: c.CapturedTensor) -> TensorSpec:
    return TensorSpec(tensor.shape, tensor.dtype, tensor.requires_grad)


def _path(path: str, what: str) -> str:
    if len(path) > 1000 or not _PATH.fullmatch(path):
        raise ProfileError(f"the capture gives {what} a name that is no dotted name", text=path)
    return path


def _member(module: c.CapturedModule, model: c.CapturedModel) -> Member:
    """Built from its text where that says it all, else taken from the model the factory makes."""
    path = _path(module.path, "a module")
    name = module.class_path.rpartition(".")[2]
    if module.class_path.startswith("torch.nn.modules.") and name in NN_MODULES:
        try:
            text = parse_layer_text(module.text)
            if text.name == name:
                return Member(path, path, _complete(text, path, model))
        except (BadTextError, UnknownLayerError):
            pass  # Not a constructor call: no fault of the profile.
    return Member(path, path, None)


def _complete(
    text: LayerText, path: str, model: c.CapturedModel
) -> tuple[str, tuple[Any, ...], Mapping[str, Any]]:
    """The constructor; some reprs leave out that there is no bias, which the parameters show."""
    constructor = member_of(path, text).constructor
    assert constructor is not None  # Containers are not in NN_MODULES.
    name, args, kwargs = constructor
    takes_bias = "bias" in NN_MODULES[text.name] and "bias" not in kwargs
    if takes_bias and len(args) <= NN_MODULES[text.name].index("bias"):
        held = {x for call in model.calls if call.target == path for x in call.parameters}
        held |= {x for names in model.tied.values() if held & {names[0]} for x in names}
        weights = any(x.startswith(f"{path}.") for x in held)
        biased = any(x.startswith(f"{path}.bias") for x in held)
        if weights and not biased:
            kwargs = {**kwargs, "bias": False}
    return name, args, kwargs


def _input(item: c.CapturedInput, model: c.CapturedModel) -> ProgramInput:
    """An input; one that an embedding looks up is of whole numbers below its size."""
    high = None
    texts = {x.path: x.text for x in model.modules}
    for call in model.calls:
        if c.Ref("input", item.name) not in call.args or call.kind != "module":
            continue
        try:
            text = parse_layer_text(texts[call.target])
        except BadTextError:
            continue
        if text.name == "Embedding" and text.args:
            size = int(text.args[0])
            high = size if high is None else min(high, size)
    return ProgramInput(item.name, _spec(item.tensor), item.path, high=high)


def _output(model: c.CapturedModel) -> Argument:
    def leaf(value: Any) -> Any:
        if not isinstance(value, c.Ref):
            return value
        if value.kind not in ("node", "input"):
            raise ProfileError(f"the model returns its {value.kind} {value.name}, not a result")
        return ValueRef(value.name)

    return _mapped(leaf, model.output)


def _mapped(function: Any, value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(_mapped(function, x) for x in value)
    if isinstance(value, dict):
        return {key: _mapped(function, x) for key, x in value.items()}
    if isinstance(value, slice):
        return slice(*(_mapped(function, x) for x in (value.start, value.stop, value.step)))
    return function(value)


def _operation(call: c.CapturedCall) -> Operation:
    def leaf(value: Any) -> Argument:
        return _argument(call, value)

    for value in call.kwargs:
        if not value.isidentifier() or not value.isascii() or iskeyword(value):
            raise _error(call, "a keyword is no name", value)
    args = tuple(_mapped(leaf, x) for x in call.args)
    kwargs = {key: _mapped(leaf, x) for key, x in call.kwargs.items()}
    form, target, args, kwargs = _form(call, args, kwargs)
    return Operation(
        id=call.id,
        layer=call.id,
        form=form,
        target=target,
        args=args,
        kwargs=kwargs,
        tensors=tuple(map(_spec, call.outputs)),
        yields_tensor=call.kind == "item" or not call.is_tuple,
        is_item=call.kind == "item",
        is_portable=call.is_constant,
        mutates=tuple(x.name for x in call.mutates if x.kind in ("node", "input")),
        alias_of=(
            call.alias_of.name
            if call.alias_of is not None and call.alias_of.kind in ("node", "input")
            else None
        ),
        returns=call.value_argument,
    )


def _argument(call: c.CapturedCall, value: Any) -> Argument:
    """One leaf of an argument, checked."""
    match value:
        case c.Ref(kind="node" | "input", name=name):
            return ValueRef(name)
        case c.Ref(name=name):
            return StateRef(name)
        case c.TrainingFlag():
            return TrainingFlag()
        case c.Named(kind="device"):
            return Place()
        case c.Named(name=name):
            if not _NAME.fullmatch(name):
                raise _error(call, "a constant of torch has no plain name", name)
            floating = name in ("float32", "float16", "bfloat16")
            return Precision(f"torch.{name}") if floating else TorchConstant(f"torch.{name}")
        case None | bool() | float():
            return value
        case int():
            if abs(value) > 2**63:
                raise _error(call, "a number is out of range", value)
            return value
        case str():
            if value in _DEVICES:
                return Place()
            plain = value.replace(" ", "") if call.target.endswith(".einsum") else value
            if not _STRING.fullmatch(plain):
                raise _error(call, "an argument is a text that no function of tensors takes", value)
            return plain
    if value is Ellipsis:
        return value
    raise _error(call, f"an argument is a {type(value).__name__}")


_Called = tuple[Form, str, tuple[Argument, ...], dict[str, Argument]]


def _form(call: c.CapturedCall, args: tuple[Argument, ...], kwargs: dict[str, Argument]) -> _Called:
    """How the call is written."""
    if call.kind == "module":
        return "module", call.target, args, kwargs
    if call.kind == "item":
        for step in call.path:
            if isinstance(step, str) and not (step.isidentifier() and step.isascii()):
                raise _error(call, "the key of an item is no name", step)
        return "subscript", "", (*args, *call.path), {}
    owner, _, name = call.target.rpartition(".")
    if name == "__get__" and owner.rpartition(".")[0] == "torch.Tensor":
        name = owner.rpartition(".")[2]
        if name not in PROPERTIES:
            raise _error(call, "is no attribute of a tensor that may be read", call.target)
        return "property", name, args[:1], {}
    if owner == "torch.functional":
        owner = "torch"
    if name not in CALLABLES.get(owner, frozenset()):
        raise _error(call, "calls what is not on the list of functions of tensors", call.target)
    if owner == "torch" and name in FACTORIES and "device" not in kwargs:
        kwargs = {**kwargs, "device": Place()}
    if owner == "torch.nn.functional":
        return "function", f"F.{name}", args, kwargs
    if owner != "torch.Tensor":
        return "function", f"{owner}.{name}", args, kwargs
    return _method(name, args, kwargs)


def _method(name: str, args: tuple[Argument, ...], kwargs: dict[str, Argument]) -> _Called:
    bare = name.strip("_")
    two = len(args) == 2 and not kwargs
    special = name.startswith("__")
    if name == "__getitem__":
        return "subscript", "", args, {}
    if two and (special or name in _PLAIN):
        if bare in _INFIX:
            return "infix", _INFIX[bare], args, {}
        if bare[:1] == "r" and bare[1:] in _INFIX:
            return "infix", _INFIX[bare[1:]], args[::-1], {}
    if special and len(args) == 1 and bare in _PREFIX:
        return "prefix", _PREFIX[bare], args, {}
    return "method", name, args, kwargs
