"""Modules named by a layer's text: torch.nn's, containers of them, and GNMT's own three."""

from collections.abc import Mapping
from typing import Any, Final

from pipeplan.codegen.layer_text import LayerText
from pipeplan.codegen.program import Member
from pipeplan.codegen.torch_modules import NN_MODULES, RECURRENT

__all__ = ["UnknownLayerError", "arity", "member_of"]

_RENAMED: Final = {"NonDynamicallyQuantizableLinear": "Linear"}
_ARITY: Final = {
    **dict.fromkeys(RECURRENT, (1, 2)),
    "Bilinear": (2, 2),
    "EmuBidirLSTM": (2, 2),
    "RecurrentAttention": (4, 4),
}
"""Fewest and most values a module is called with, where that is not one."""


class UnknownLayerError(ValueError):
    """A text that names no module this program knows how to build."""


def arity(text: LayerText) -> tuple[int, int]:
    """Fewest and most values that the module is called with."""
    return _ARITY.get(text.name, (1, 1))


def member_of(key: str, text: LayerText) -> Member:
    """The module that a text describes; raises UnknownLayerError saying what is wrong with it."""
    if text.bare:
        raise UnknownLayerError(f"{text.name[:80]} is neither a module nor a known operation")
    special = _SPECIAL.get(text.name)
    if special is not None:
        name, args, kwargs = special(text)
        return Member(key, key, (name, args, kwargs))
    if text.name == "Sequential":
        if not text.children:
            raise UnknownLayerError("Sequential has no child layers")
        children = tuple(member_of(name, child) for name, child in text.children)
        if [x.key for x in children] != [str(i) for i in range(len(children))]:
            raise UnknownLayerError("child layers of Sequential are numbered from 0")
        if any(arity(child) != (1, 1) or child.name in RECURRENT for _, child in text.children):
            raise UnknownLayerError("Sequential passes one tensor from child to child")
        return Member(key, key, ("nn.Sequential", (), {}), children)
    return Member(key, key, _constructor(text))


def _constructor(text: LayerText) -> tuple[str, tuple[Any, ...], Mapping[str, Any]]:
    name = _RENAMED.get(text.name, text.name)
    parameters = NN_MODULES.get(name)
    if parameters is None:
        raise UnknownLayerError(f"there is no module {name[:80]!a} that a text may name")
    if text.children:
        raise UnknownLayerError(f"{name} has no child layers")
    if len(text.args) > len(parameters):
        raise UnknownLayerError(f"{name} takes at most {len(parameters)} arguments")
    kwargs = text.keywords()
    for key in kwargs:
        if key not in parameters:
            raise UnknownLayerError(f"{name} has no parameter {key[:80]!a}")
        if key in parameters[: len(text.args)]:
            raise UnknownLayerError(f"{name}: {key} is given twice")
    # Norms print a bias since torch 2.13; where it goes with `affine`, older versions do as well.
    if "affine" in kwargs and kwargs.get("bias") == kwargs["affine"]:
        del kwargs["bias"]
    return f"nn.{name}", text.args, kwargs


def _part(text: LayerText, key: str, kind: str, numbers: int) -> LayerText:
    """A child that must be there, be of a kind, and begin with that many whole numbers."""
    child = text.child(key)
    if child is None or child.name != kind:
        raise UnknownLayerError(f"{text.name} needs a child ({key}): {kind}(...)")
    _constructor(child)
    names = NN_MODULES[kind]
    values = dict(zip(names, child.args, strict=False)) | child.keywords()
    if not all(type(values.get(name)) is int and values[name] > 0 for name in names[:numbers]):
        raise UnknownLayerError(f"{text.name}: the sizes of ({key}) are not whole numbers above 0")
    return LayerText(kind, tuple(values[name] for name in names[:numbers]), values)


def _gnmt_encoder(text: LayerText) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """EmuBidirLSTM(input_size, hidden_size): a bidirectional LSTM out of two plain ones."""
    both = _part(text, "bidir", "LSTM", 2)
    for key in ("layer1", "layer2"):
        if _part(text, key, "LSTM", 2).args != both.args:
            raise UnknownLayerError(f"EmuBidirLSTM: ({key}) and (bidir) differ in size")
    return "gnmt.EmuBidirLSTM", both.args, _kept(both, "bias", "batch_first")


def _gnmt_attention(text: LayerText) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """RecurrentAttention(input_size, context_size, hidden_size), read off its LSTM and keys."""
    rnn = _part(text, "rnn", "LSTM", 2)
    attention = text.child("attn")
    if attention is None or attention.name != "BahdanauAttention":
        raise UnknownLayerError("RecurrentAttention needs a child (attn): BahdanauAttention(...)")
    query, keys = (_part(attention, key, "Linear", 2) for key in ("linear_q", "linear_k"))
    if query.args[0] != rnn.args[1] or query.args[1] != keys.args[1]:
        raise UnknownLayerError("RecurrentAttention: the sizes of its parts do not fit together")
    kwargs = _kept(rnn, "batch_first")
    kwargs["units"] = keys.args[1]
    for owner, name in ((text, "dropout"), (attention, "attention_dropout")):
        dropout = owner.child("dropout")
        if dropout is not None:
            constructor = _constructor(dropout)
            kwargs[name] = {
                **dict(zip(("p",), constructor[1], strict=False)),
                **constructor[2],
            }.get("p", 0.5)
    return "gnmt.RecurrentAttention", (rnn.args[0], keys.args[0], rnn.args[1]), kwargs


def _gnmt_classifier(text: LayerText) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    linear = _part(text, "classifier", "Linear", 2)
    return "gnmt.Classifier", linear.args, _kept(linear, "bias")


def _kept(text: LayerText, *names: str) -> dict[str, Any]:
    values = text.keywords()
    return {name: values[name] for name in names if name in values}


_SPECIAL: Final = {
    "EmuBidirLSTM": _gnmt_encoder,
    "RecurrentAttention": _gnmt_attention,
    "Classifier": _gnmt_classifier,
}
