"""Names of what is called: where a callable of torch is found, and how a layer is described."""

# ruff: noqa: TID253
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import nn

from pipeplan.models.capture.graph import DeviceFlag, Ref, TrainingFlag
from pipeplan.models.capture.values import leaves

__all__ = ["describe", "is_leaf", "lookup", "short_name"]

_MAX_DESCRIPTION: Final = 400
_CONTAINERS: Final = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
# These hold several layers each: a transformer's blocks are what one wants to place.
_ENTERED: Final = (
    *_CONTAINERS,
    nn.Transformer,
    nn.TransformerEncoder,
    nn.TransformerDecoder,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)


def is_leaf(module: nn.Module) -> bool:
    """Whether a module is called whole: it is torch's own, and no container."""
    return type(module).__module__.startswith("torch.nn.") and not isinstance(module, _ENTERED)


def lookup(name: str) -> Callable[..., Any] | None:
    """The callable that a dotted name leads to from `torch`; None where there is none."""
    first, *rest = name.split(".")
    value: Any = torch if first == "torch" else None
    for part in rest:
        value = getattr(value, part, None)
    return value if callable(value) else None


def short_name(name: str) -> str:
    """The last word of a callable's name, for ids: view, add_, getitem."""
    parts = name.split(".")
    last = parts[-2] if parts[-1] == "__get__" else parts[-1]
    return last.strip("_") if last.startswith("__") else last


def describe(
    module: nn.Module | None, target: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> str:
    """One line for people: the module's own text, or the function and its plain arguments."""
    if module is not None:
        text = re.sub(r"\s+", " ", repr(module))
    else:
        shown = [x for x in leaves(args) if not isinstance(x, TrainingFlag | DeviceFlag)]
        plain = [repr(x) for x in shown if not isinstance(x, Ref)]
        plain += [f"{k}={v!r}" for k, v in kwargs.items() if not _has_ref(v)]
        text = f"{target}({', '.join(plain)})"
    return text if len(text) <= _MAX_DESCRIPTION else text[: _MAX_DESCRIPTION - 3] + "..."


def _has_ref(value: Any) -> bool:
    return any(isinstance(leaf, Ref | TrainingFlag | DeviceFlag) for leaf in leaves(value))
