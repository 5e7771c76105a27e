"""A captured model as data: the calls its forward makes, in order, and what they read.

Written by a capture that has torch at hand and read by code generation that has not; JSON-ready,
kept in a profile under `metadata["capture"]`. Nothing in it is code: a call's target is a name that
the reader looks up in its own list of what may be called.

A profile's layer is one call or several: each call names its layer. Ids of inputs are those of
the graph's inputs. Submodules of torch.nn are best kept whole as `module` calls: they read well
and know training from evaluation. The model is captured in training mode; where a function has that
mode as an argument (dropout, batch_norm), code generation puts the stage's own mode in its place.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from pipeplan.core.errors import ProfileError

__all__ = [
    "CAPTURE_KEY",
    "CAPTURE_SCHEMA",
    "Argument",
    "Attribute",
    "CallKind",
    "CapturedCall",
    "CapturedGraph",
    "CapturedInput",
    "CapturedModule",
    "CapturedState",
    "Named",
    "Ref",
    "Slice",
    "TensorMeta",
    "capture_from_dict",
    "capture_to_dict",
    "refs_of",
    "states_of",
]

CAPTURE_KEY: Final = "capture"
"""Key of a profile's metadata that holds a captured graph."""
CAPTURE_SCHEMA: Final = "pipeplan.capture/1"

CallKind = Literal["module", "function", "method"]
NamedKind = Literal["dtype", "device", "layout", "memory_format", "ellipsis"]

_MAX_CALLS: Final = 500_000
_MAX_DEPTH: Final = 20


@dataclass(frozen=True, slots=True)
class Ref:
    """The value of an input or of an earlier call (the whole value, a tuple where it is one)."""

    id: str


@dataclass(frozen=True, slots=True)
class Attribute:
    """A parameter or buffer, by its name in the model's state (`CapturedState.name`)."""

    name: str


@dataclass(frozen=True, slots=True)
class Named:
    """A torch constant by name: dtype `float32`, device `cpu`, layout `strided`, memory format
    `contiguous_format`; an ellipsis has the name ''."""

    kind: NamedKind
    name: str


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice whose bounds are arguments themselves."""

    start: "Argument"
    stop: "Argument"
    step: "Argument"


Argument = (
    None
    | bool
    | int
    | float
    | str
    | Ref
    | Attribute
    | Named
    | Slice
    | tuple["Argument", ...]
    | list["Argument"]
    | dict[str, "Argument"]
)
"""What a call is given: constants, values, and tuples, lists and (text-keyed) dicts of them."""


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """Shape, dtype (`float32`, `int64`, ...) and whether a gradient flows into one tensor."""

    shape: tuple[int, ...]
    dtype: str
    requires_grad: bool = True


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """One call of the forward.

    `kind` module: `target` is the dotted path of a submodule (`features.0`), listed in
    `CapturedGraph.modules`. function: the dotted name of a callable,
    `torch.ops.aten.conv2d.default`, `torch.nn.functional.relu`, `torch.cat`, `operator.getitem`.
    method: the name of a Tensor method whose object is the first argument. `tensors` describes
    the tensors of the value, in order; `structure` is `tensor` for one tensor, `tuple` for a tuple
    or list of `len(tensors)` tensors (nested tuples are flattened and marked `nested`), `other` for
    numbers, sizes and None.
    """

    id: str
    layer: str
    kind: CallKind
    target: str
    args: tuple[Argument, ...] = ()
    kwargs: Mapping[str, Argument] = field(default_factory=dict)
    tensors: tuple[TensorMeta, ...] = ()
    structure: Literal["tensor", "tuple", "nested", "other"] = "tensor"


@dataclass(frozen=True, slots=True)
class CapturedInput:
    """An input of the network, in the order (or by the `keyword`) that the forward takes them."""

    id: str
    tensor: TensorMeta
    keyword: str = ""


@dataclass(frozen=True, slots=True)
class CapturedModule:
    """A submodule that is called whole.

    `class_path` is the dotted path of its class (`torch.nn.modules.conv.Conv2d`), `text` its repr
    where that is a constructor call in one line (`Conv2d(3, 64, kernel_size=(3, 3))`), else ''.
    """

    path: str
    class_path: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class CapturedState:
    """A parameter, buffer or constant of the model.

    `name` is its key in the model's state dict. `tied_to` is the name of the state that this one
    shares its memory with ('' for none; the first of a tied group stands for it). A `constant` is a
    tensor that no state dict holds, `values` its elements, flat; so too for a buffer that is not
    persistent.
    """

    name: str
    kind: Literal["parameter", "buffer", "constant"]
    tensor: TensorMeta
    persistent: bool = True
    tied_to: str = ""
    values: tuple[int | float | bool, ...] | None = None


@dataclass(frozen=True, slots=True)
class CapturedGraph:
    """A model's forward as calls in the order of execution.

    `factory` is `MODULE:FACTORY`, recorded for whoever rebuilds the original; `outputs` is the
    value that the forward returns. `method` says how it was captured (export, fx, hooks).
    """

    factory: str
    method: str
    inputs: tuple[CapturedInput, ...]
    calls: tuple[CapturedCall, ...]
    outputs: Argument
    modules: tuple[CapturedModule, ...] = ()
    state: tuple[CapturedState, ...] = ()

    def __post_init__(self) -> None:
        """Raise ProfileError for repeated ids and for values that are read before they exist."""
        if len(self.calls) > _MAX_CALLS:
            raise ProfileError(f"the capture has {len(self.calls)} calls; at most {_MAX_CALLS}")
        known: set[str] = set()
        for item in self.inputs:
            if item.id in known:
                raise ProfileError(f"the capture has two values called {item.id[:200]!a}")
            known.add(item.id)
        names = {x.name for x in self.state}
        if len(names) != len(self.state):
            raise ProfileError("the capture lists a state twice")
        paths = {x.path for x in self.modules}
        for call in self.calls:
            where = f"captured call {call.id[:200]!a} of layer {call.layer[:200]!a}"
            given = (call.args, dict(call.kwargs))
            for value in refs_of(given):
                if value not in known:
                    raise ProfileError(f"{where} reads {value[:200]!a} before it exists")
            for name in states_of(given):
                if name not in names:
                    raise ProfileError(f"{where} reads state {name[:200]!a}, which is not listed")
            if call.kind == "module" and call.target not in paths:
                raise ProfileError(f"{where} calls module {call.target[:200]!a}, not listed")
            if call.id in known:
                raise ProfileError(f"the capture has two values called {call.id[:200]!a}")
            known.add(call.id)
        for value in refs_of(self.outputs):
            if value not in known:
                raise ProfileError(f"the capture returns {value[:200]!a}, which does not exist")


def _leaves(value: Any) -> list[Any]:
    """Everything inside an argument, in order, without recursion into text."""
    out: list[Any] = []
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, tuple | list):
            stack.extend(reversed(item))
        elif isinstance(item, Mapping):
            stack.extend(reversed(list(item.values())))
        elif isinstance(item, Slice):
            stack.extend((item.step, item.stop, item.start))
        else:
            out.append(item)
    return out


def refs_of(value: Any) -> list[str]:
    """Ids of the values that an argument reads, in order, repeats included."""
    return [x.id for x in _leaves(value) if isinstance(x, Ref)]


def states_of(value: Any) -> list[str]:
    """Names of the parameters and buffers that an argument reads, in order, repeats included."""
    return [x.name for x in _leaves(value) if isinstance(x, Attribute)]


def _encode(value: Argument) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"float": repr(value)}
        case Ref(id=name):
            return {"ref": name}
        case Attribute(name=name):
            return {"state": name}
        case Named(kind=kind, name=name):
            return {kind: name}
        case Slice(start=start, stop=stop, step=step):
            return {"slice": [_encode(start), _encode(stop), _encode(step)]}
        case tuple():
            return {"tuple": [_encode(x) for x in value]}
        case list():
            return [_encode(x) for x in value]
        case dict():
            return {"dict": [[key, _encode(x)] for key, x in value.items()]}
    raise ProfileError(f"a captured argument is a {type(value).__name__}")


def _decode(data: Any, where: str, depth: int = 0) -> Argument:
    if depth > _MAX_DEPTH:
        raise ProfileError(f"{where}: an argument is nested more than {_MAX_DEPTH} deep")
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if isinstance(data, list):
        return [_decode(x, where, depth + 1) for x in data]
    if not isinstance(data, dict) or len(data) != 1:
        raise ProfileError(f"{where}: not an argument", text=repr(data)[:200])
    ((key, inner),) = data.items()
    if key == "float" and inner in ("inf", "-inf", "nan"):
        return float(inner)
    if key == "ref" and isinstance(inner, str):
        return Ref(inner)
    if key == "state" and isinstance(inner, str):
        return Attribute(inner)
    if key in get_args(NamedKind) and isinstance(inner, str):
        return Named(key, inner)
    if key == "slice" and isinstance(inner, list) and len(inner) == 3:
        return Slice(*(_decode(x, where, depth + 1) for x in inner))
    if key == "tuple" and isinstance(inner, list):
        return tuple(_decode(x, where, depth + 1) for x in inner)
    if key == "dict" and isinstance(inner, list):
        out: dict[str, Argument] = {}
        for pair in inner:
            if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
                raise ProfileError(f"{where}: not an argument", text=repr(data)[:200])
            out[pair[0]] = _decode(pair[1], where, depth + 1)
        return out
    raise ProfileError(f"{where}: not an argument", text=repr(data)[:200])


def _tensor_to_dict(tensor: TensorMeta) -> dict[str, Any]:
    return {
        "shape": list(tensor.shape),
        "dtype": tensor.dtype,
        "requires_grad": tensor.requires_grad,
    }


def capture_to_dict(graph: CapturedGraph) -> dict[str, Any]:
    """A captured graph as JSON-ready values; `capture_from_dict` gives the same graph back."""
    return {
        "schema": CAPTURE_SCHEMA,
        "factory": graph.factory,
        "method": graph.method,
        "inputs": [
            {"id": x.id, "tensor": _tensor_to_dict(x.tensor), "keyword": x.keyword}
            for x in graph.inputs
        ],
        "calls": [
            {
                "id": x.id,
                "layer": x.layer,
                "kind": x.kind,
                "target": x.target,
                "args": [_encode(a) for a in x.args],
                "kwargs": {key: _encode(a) for key, a in x.kwargs.items()},
                "tensors": [_tensor_to_dict(t) for t in x.tensors],
                "structure": x.structure,
            }
            for x in graph.calls
        ],
        "outputs": _encode(graph.outputs),
        "modules": [
            {"path": x.path, "class_path": x.class_path, "text": x.text} for x in graph.modules
        ],
        "state": [
            {
                "name": x.name,
                "kind": x.kind,
                "tensor": _tensor_to_dict(x.tensor),
                "persistent": x.persistent,
                "tied_to": x.tied_to,
                **({} if x.values is None else {"values": list(x.values)}),
            }
            for x in graph.state
        ],
    }


class _Entry:
    """Typed access to one JSON object; every complaint names the place."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, dict):
            raise ProfileError(f"{where} is not an object", text=repr(data)[:200])
        self.data: Mapping[str, Any] = data
        self.where = where

    def get(self, key: str, kind: type) -> Any:
        value = self.data.get(key)
        if not isinstance(value, kind):
            raise ProfileError(
                f"{self.where}: {key} is not a {kind.__name__}", text=repr(value)[:200]
            )
        return value

    def text(self, key: str, allowed: tuple[str, ...] = ()) -> str:
        value = str(self.get(key, str))
        if len(value) > 100_000:
            raise ProfileError(f"{self.where}: {key} has {len(value)} characters; at most 100000")
        if allowed and value not in allowed:
            raise ProfileError(f"{self.where}: {key} is one of {', '.join(allowed)}", text=value)
        return value

    def entries(self, key: str) -> list["_Entry"]:
        return [_Entry(x, f"{self.where}: {key}[{i}]") for i, x in enumerate(self.get(key, list))]

    def tensor(self) -> TensorMeta:
        shape = self.get("shape", list)
        if len(shape) > 64 or not all(type(n) is int and 0 <= n < 2**48 for n in shape):
            raise ProfileError(f"{self.where}: not a shape", text=repr(shape)[:200])
        return TensorMeta(tuple(shape), self.text("dtype"), bool(self.get("requires_grad", bool)))


def capture_from_dict(data: Any) -> CapturedGraph:
    """Read and validate a captured graph; raises ProfileError naming the entry at fault."""
    top = _Entry(data, "capture")
    if top.data.get("schema") != CAPTURE_SCHEMA:
        raise ProfileError(
            f"capture: schema is {top.data.get('schema')!r}; this version reads {CAPTURE_SCHEMA!r}"
        )
    return CapturedGraph(
        factory=top.text("factory"),
        method=top.text("method"),
        inputs=tuple(
            CapturedInput(
                x.text("id"),
                _Entry(x.data.get("tensor"), f"{x.where}: tensor").tensor(),
                x.text("keyword"),
            )
            for x in top.entries("inputs")
        ),
        calls=tuple(_call(x) for x in top.entries("calls")),
        outputs=_decode(top.data.get("outputs"), "capture: outputs"),
        modules=tuple(
            CapturedModule(x.text("path"), x.text("class_path"), x.text("text"))
            for x in top.entries("modules")
        ),
        state=tuple(_state(x) for x in top.entries("state")),
    )


def _call(entry: _Entry) -> CapturedCall:
    kind: Any = entry.text("kind", get_args(CallKind))
    structure: Any = entry.text("structure", ("tensor", "tuple", "nested", "other"))
    return CapturedCall(
        id=entry.text("id"),
        layer=entry.text("layer"),
        kind=kind,
        target=entry.text("target"),
        args=tuple(_decode(x, f"{entry.where}: args") for x in entry.get("args", list)),
        kwargs={
            key: _decode(x, f"{entry.where}: kwargs")
            for key, x in entry.get("kwargs", dict).items()
        },
        tensors=tuple(x.tensor() for x in entry.entries("tensors")),
        structure=structure,
    )


def _state(entry: _Entry) -> CapturedState:
    kind: Any = entry.text("kind", ("parameter", "buffer", "constant"))
    values = entry.data.get("values")
    if values is not None and not (
        isinstance(values, list) and all(isinstance(x, bool | int | float) for x in values)
    ):
        raise ProfileError(f"{entry.where}: values are not numbers", text=repr(values)[:200])
    return CapturedState(
        name=entry.text("name"),
        kind=kind,
        tensor=_Entry(entry.data.get("tensor"), f"{entry.where}: tensor").tensor(),
        persistent=bool(entry.get("persistent", bool)),
        tied_to=entry.text("tied_to"),
        values=None if values is None else tuple(values),
    )
