"""A captured model as data: the calls its forward makes, in order, and what they read.

Written by a capture that has torch at hand, read by code generation that has not; JSON, kept in a
profile under `metadata["capture"]`. Nothing in it is code: a call's target is a name that the
reader looks up in its own list of what may be called. A call's id is the id of its layer in the
profile, and ids of inputs are those of the graph's inputs.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from pipeplan.core.errors import ProfileError
from pipeplan.core.reader import Reader

__all__ = [
    "CAPTURE_KEY",
    "Argument",
    "CapturedCall",
    "CapturedInput",
    "CapturedModel",
    "CapturedModule",
    "CapturedState",
    "CapturedTensor",
    "Named",
    "Ref",
    "TrainingFlag",
    "capture_from_dict",
    "capture_to_dict",
    "leaves_of",
]

CAPTURE_KEY: Final = "capture"
"""Key of a profile's metadata that holds a captured model."""
CAPTURE_SCHEMA: Final = "pipeplan.capture/1"

RefKind = Literal["node", "input", "parameter", "buffer", "constant"]
NamedKind = Literal["dtype", "device", "layout", "memory_format"]
CallKind = Literal["module", "function", "item"]

_DTYPE: Final = re.compile(r"[a-z][a-z0-9_]{1,31}")
_MAX_DEPTH: Final = 20


@dataclass(frozen=True, slots=True)
class CapturedTensor:
    """A tensor's shape, dtype (torch's name for it without `torch.`), and whether it has a
    gradient."""

    shape: tuple[int, ...]
    dtype: str
    requires_grad: bool = False

    def __post_init__(self) -> None:
        if len(self.shape) > 64 or not all(0 <= n < 2**48 for n in self.shape):
            raise ProfileError("not a tensor's shape", text=repr(self.shape))
        if not _DTYPE.fullmatch(self.dtype):
            raise ProfileError("not a tensor's dtype", text=self.dtype)


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor in an argument: what made it, and the name of that.

    `node`: what the call of this id yields. `input`: an input of the network. `parameter` and
    `buffer`: state read directly by the model's code, by its first name. `constant`: a tensor that
    a module holds without registering it, as path.attribute.
    """

    kind: RefKind
    name: str


@dataclass(frozen=True, slots=True)
class TrainingFlag:
    """Stands for `self.training` of the module that made the call."""


@dataclass(frozen=True, slots=True)
class Named:
    """A constant of torch by name: dtype `float32`, device `cpu`, layout `strided`, memory format
    `contiguous_format`."""

    kind: NamedKind
    name: str


Argument: TypeAlias = Any
"""None, bool, int, float, str, Ellipsis, Ref, TrainingFlag, Named, and tuples, lists, slices and
text-keyed dicts of them."""


@dataclass(frozen=True, slots=True)
class CapturedInput:
    """An input tensor of the network; `path` leads to it in (args, kwargs)."""

    name: str
    path: tuple[int | str, ...]
    tensor: CapturedTensor


@dataclass(frozen=True, slots=True)
class CapturedModule:
    """A submodule that is called whole: its path, the dotted path of its class, and its repr on
    one line ('' where that is long)."""

    path: str
    class_path: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class CapturedState:
    """A parameter, buffer or constant: its first name in the model, and whether the model's state
    dict holds it."""

    name: str
    kind: Literal["parameter", "buffer", "constant"]
    tensor: CapturedTensor
    persistent: bool = True


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """One call.

    kind `module`: target is the path of a module. `function`: target is a name that leads to a
    callable from `torch`, such as torch.Tensor.view; what a property yields is
    torch.Tensor.T.__get__. `item`: the tensor at `path` in the result of the call that args[0]
    refers to, which yields a tuple or a mapping. `outputs` are the tensors that it yields; where
    `is_tuple`, items alone read it. `mutates` are values that it overwrites, `alias_of` the value
    whose memory its output shares. `value_argument` is set where the call yields nothing: its value
    is this argument, after the call. `is_constant`: made from nothing, so it can be made anywhere.
    """

    id: str
    kind: CallKind
    target: str
    args: tuple[Argument, ...] = ()
    kwargs: Mapping[str, Argument] = field(default_factory=dict)
    outputs: tuple[CapturedTensor, ...] = ()
    is_tuple: bool = False
    parameters: tuple[str, ...] = ()
    path: tuple[int | str, ...] = ()
    mutates: tuple[Ref, ...] = ()
    alias_of: Ref | None = None
    value_argument: int | None = None
    is_constant: bool = False


@dataclass(frozen=True)
class CapturedModel:
    """A model's calls in the order in which they ran.

    `factory` is `MODULE:FACTORY`, which rebuilds the original when called with the keywords
    `sizes`. `output` is what the model returns,
    with Refs for tensors. `tied` maps a parameter's first name to all its names, where there are
    several. Raises ProfileError for repeated ids and for values that are read before they exist.
    """

    factory: str
    training: bool
    inputs: tuple[CapturedInput, ...]
    calls: tuple[CapturedCall, ...]
    output: Argument
    modules: tuple[CapturedModule, ...] = ()
    state: tuple[CapturedState, ...] = ()
    tied: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sizes: Mapping[str, bool | int | float | str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = {("input", x.name) for x in self.inputs}
        known |= {(x.kind, x.name) for x in self.state}
        if len(known) != len(self.inputs) + len(self.state):
            raise ProfileError("capture: an input or a state is listed twice")
        paths = {x.path for x in self.modules}
        for call in self.calls:
            where = f"capture: call {call.id[:200]!a}"
            read = [x for x in leaves_of((call.args, dict(call.kwargs))) if isinstance(x, Ref)]
            for ref in (*read, *call.mutates, *([call.alias_of] if call.alias_of else [])):
                if (ref.kind, ref.name) not in known:
                    raise ProfileError(
                        f"{where} reads {ref.kind} {ref.name[:200]!a}, which does not exist by then"
                    )
            if call.kind == "module" and call.target not in paths:
                raise ProfileError(f"{where} calls module {call.target[:200]!a}, not listed")
            if call.kind == "item" and not (len(call.args) == 1 and isinstance(call.args[0], Ref)):
                raise ProfileError(f"{where} takes an item of what is no value")
            if call.value_argument is not None and not 0 <= call.value_argument < len(call.args):
                raise ProfileError(f"{where} has no argument {call.value_argument}")
            if ("node", call.id) in known:
                raise ProfileError(f"{where} appears twice")
            known.add(("node", call.id))
        for ref in leaves_of(self.output):
            if isinstance(ref, Ref) and (ref.kind, ref.name) not in known:
                raise ProfileError(f"capture: it returns {ref.name[:200]!a}, which does not exist")


def leaves_of(value: Any) -> Iterator[Any]:
    """Whatever is no container inside an argument, in order."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from leaves_of(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from leaves_of(item)
    elif isinstance(value, slice):
        yield from leaves_of((value.start, value.stop, value.step))
    else:
        yield value


def _encode(value: Argument) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"float": repr(value)}
        case Ref(kind=kind, name=name):
            return {"ref": [kind, name]}
        case Named(kind=kind, name=name):
            return {kind: name}
        case TrainingFlag():
            return {"training": True}
        case slice():
            return {"slice": [_encode(x) for x in (value.start, value.stop, value.step)]}
        case tuple():
            return {"tuple": [_encode(x) for x in value]}
        case list():
            return [_encode(x) for x in value]
        case dict():
            return {"dict": [[_key(key), _encode(x)] for key, x in value.items()]}
    if value is Ellipsis:
        return {"ellipsis": True}
    raise ProfileError(f"a captured argument is a {type(value).__name__}, which is no data")


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise ProfileError(f"a captured dict has the key {key!r}, which is not text")
    return key


def _decode(data: Any, where: str, depth: int = 0) -> Argument:
    if depth > _MAX_DEPTH:
        raise ProfileError(f"{where}: an argument is nested more than {_MAX_DEPTH} levels deep")
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if isinstance(data, list):
        return [_decode(x, where, depth + 1) for x in data]
    match data:
        case {"float": "inf" | "-inf" | "nan" as text, **rest} if not rest:
            return float(text)
        case {"ref": [str(kind), str(name)], **rest} if not rest and kind in get_args(RefKind):
            return Ref(kind, name)  # type: ignore[arg-type]  # just checked
        case {"training": True, **rest} if not rest:
            return TrainingFlag()
        case {"ellipsis": True, **rest} if not rest:
            return Ellipsis
        case {"slice": [start, stop, step], **rest} if not rest:
            return slice(*(_decode(x, where, depth + 1) for x in (start, stop, step)))
        case {"tuple": list(items), **rest} if not rest:
            return tuple(_decode(x, where, depth + 1) for x in items)
        case {"dict": list(pairs), **rest} if not rest:
            if all(isinstance(p, list) and len(p) == 2 and isinstance(p[0], str) for p in pairs):
                return {key: _decode(x, where, depth + 1) for key, x in pairs}
        case dict() if len(data) == 1:
            ((kind, name),) = data.items()
            if kind in get_args(NamedKind) and isinstance(name, str):
                return Named(kind, name)
    raise ProfileError(f"{where}: this is no argument", text=repr(data)[:200])


def _tensor_to_dict(tensor: CapturedTensor) -> dict[str, Any]:
    shape = list(tensor.shape)
    return {"shape": shape, "dtype": tensor.dtype, "requires_grad": tensor.requires_grad}


def capture_to_dict(model: CapturedModel) -> dict[str, Any]:
    """A captured model as JSON-ready values; `capture_from_dict` gives the same model back."""
    return {
        "schema": CAPTURE_SCHEMA,
        "factory": model.factory,
        "sizes": dict(model.sizes),
        "training": model.training,
        "inputs": [
            {"name": x.name, "path": list(x.path), "tensor": _tensor_to_dict(x.tensor)}
            for x in model.inputs
        ],
        "calls": [_call_to_dict(x) for x in model.calls],
        "output": _encode(model.output),
        "modules": [
            {"path": x.path, "class_path": x.class_path, "text": x.text} for x in model.modules
        ],
        "state": [
            {
                "name": x.name,
                "kind": x.kind,
                "tensor": _tensor_to_dict(x.tensor),
                "persistent": x.persistent,
            }
            for x in model.state
        ],
        "tied": {key: list(names) for key, names in model.tied.items()},
    }


def _call_to_dict(call: CapturedCall) -> dict[str, Any]:
    out: dict[str, Any] = {"id": call.id, "kind": call.kind, "target": call.target}
    out["args"] = [_encode(x) for x in call.args]
    if call.kwargs:
        out["kwargs"] = {_key(key): _encode(x) for key, x in call.kwargs.items()}
    out["outputs"] = [_tensor_to_dict(x) for x in call.outputs]
    if call.is_tuple:
        out["is_tuple"] = True
    if call.parameters:
        out["parameters"] = list(call.parameters)
    if call.path:
        out["path"] = list(call.path)
    if call.mutates:
        out["mutates"] = [_encode(x) for x in call.mutates]
    if call.alias_of is not None:
        out["alias_of"] = _encode(call.alias_of)
    if call.value_argument is not None:
        out["value_argument"] = call.value_argument
    if call.is_constant:
        out["is_constant"] = True
    return out


def capture_from_dict(data: Any) -> CapturedModel:
    """Read and validate a captured model; raises ProfileError naming the entry at fault."""
    top = Reader(data, "capture", ProfileError)
    if top.text("schema") != CAPTURE_SCHEMA:
        top.fail(f"this version reads schema {CAPTURE_SCHEMA}", top.data["schema"])
    return CapturedModel(
        factory=top.text("factory"),
        sizes=_sizes(top),
        training=top.flag("training"),
        inputs=tuple(
            CapturedInput(x.text("name"), _path(x), _tensor(x.object("tensor")))
            for x in top.objects("inputs")
        ),
        calls=tuple(map(_call, top.objects("calls"))),
        output=_decode(top.data.get("output"), "capture: output"),
        modules=tuple(
            CapturedModule(x.text("path"), x.text("class_path"), x.text("text", ""))
            for x in top.objects("modules")
        ),
        state=tuple(map(_state, top.objects("state"))),
        tied={
            key: tuple(
                Reader({"names": names}, f"capture: tied {key!a}", ProfileError).texts("names")
            )
            for key, names in top.mapping("tied").items()
        },
    )


def _sizes(entry: Reader) -> dict[str, bool | int | float | str | None]:
    sizes = entry.mapping("sizes", {})
    for key, value in sizes.items():
        if not key.isidentifier() or not isinstance(value, bool | int | float | str | None):
            entry.fail("sizes are plain values by the names of parameters", {key: value})
    return sizes


def _call(entry: Reader) -> CapturedCall:
    kind: Any = entry.text("kind")
    if kind not in get_args(CallKind):
        entry.fail(f"kind is one of {', '.join(get_args(CallKind))}", kind)
    alias = _refs(entry, [entry.data["alias_of"]]) if "alias_of" in entry.data else ()
    return CapturedCall(
        id=entry.text("id"),
        kind=kind,
        target=entry.text("target"),
        args=tuple(_decode(x, entry.where) for x in entry.items("args")),
        kwargs={k: _decode(x, entry.where) for k, x in entry.mapping("kwargs", {}).items()},
        outputs=tuple(map(_tensor, entry.objects("outputs"))),
        is_tuple=entry.data.get("is_tuple") is True,
        parameters=tuple(entry.texts("parameters", [])),
        path=_path(entry),
        mutates=_refs(entry, entry.items("mutates", [])),
        alias_of=alias[0] if alias else None,
        value_argument=entry.optional_integer("value_argument"),
        is_constant=entry.data.get("is_constant") is True,
    )


def _refs(entry: Reader, items: list[Any]) -> tuple[Ref, ...]:
    found = tuple(_decode(x, entry.where) for x in items)
    if not all(isinstance(x, Ref) for x in found):
        entry.fail("mutates and alias_of name values", items)
    return found


def _path(entry: Reader) -> tuple[int | str, ...]:
    items = entry.items("path", [])
    if len(items) > _MAX_DEPTH or not all(type(x) in (int, str) for x in items):
        entry.fail("path is a short list of indices and keys", items)
    return tuple(items)


def _tensor(entry: Reader) -> CapturedTensor:
    shape = tuple(entry.integers("shape"))
    return CapturedTensor(shape, entry.text("dtype"), entry.flag("requires_grad"))


def _state(entry: Reader) -> CapturedState:
    kind: Any = entry.text("kind")
    if kind not in ("parameter", "buffer", "constant"):
        entry.fail("kind is one of parameter, buffer, constant", kind)
    tensor = _tensor(entry.object("tensor"))
    return CapturedState(entry.text("name"), kind, tensor, entry.flag("persistent"))
