"""MODULE:FACTORY to a module and its example inputs."""

# ruff: noqa: TID253
import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, Final

import torch
from torch import nn

from pipeplan.core.errors import PipeplanError
from pipeplan.models.capture import ExampleInputs
from pipeplan.models.capture.values import map_leaves

__all__ = ["Factory", "FactoryError", "build_model", "load_factory", "moved"]

Factory = Callable[..., Any]

_SPEC: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


class FactoryError(PipeplanError):
    """A factory cannot be found, fails, or does not return (module, example inputs)."""


def load_factory(spec: str) -> Factory:
    """The callable that MODULE:FACTORY names; modules are looked for in the current folder too.

    Importing runs the module's code, as `python -m` would. Raises FactoryError saying which part of
    the name is wrong, or how the import failed.
    """
    if not _SPEC.fullmatch(spec):
        raise FactoryError(f"{spec[:200]!a} is not MODULE:FACTORY, such as my_package.nets:small")
    module_name, _, path = spec.partition(":")
    folder = os.getcwd()
    added = folder not in sys.path and "" not in sys.path
    if added:
        sys.path.insert(0, folder)
    try:
        value: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise FactoryError(
                f"there is no module {error.name!r} here or among the installed ones"
            ) from None
        raise FactoryError(f"module {module_name!r} cannot be imported: {error}") from error
    except Exception as error:
        raise FactoryError(
            f"module {module_name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    finally:
        if added:
            sys.path.remove(folder)
    for part in path.split("."):
        if not hasattr(value, part):
            raise FactoryError(f"module {module_name!r} has no {path!r}")
        value = getattr(value, part)
    if not callable(value):
        raise FactoryError(f"{spec} is a {type(value).__name__}; it must be callable")
    factory: Factory = value
    return factory


def build_model(
    factory: Factory,
    *,
    without_memory: bool = False,
    sizes: Mapping[str, Any] | None = None,
) -> tuple[nn.Module, ExampleInputs]:
    """Call a factory with these keyword arguments; returns (module, example inputs).

    `without_memory` builds on torch's meta device, where weights have shapes only, so that a model
    may be larger than this machine. Raises FactoryError where the call fails or yields other
    things.
    """
    where = torch.device("meta") if without_memory else nullcontext()
    try:
        with where:
            made = factory(**(sizes or {}))
    except Exception as error:
        hint = " (built without memory)" if without_memory else ""
        raise FactoryError(f"the factory failed{hint}: {type(error).__name__}: {error}") from error
    if not isinstance(made, tuple | list) or len(made) != 2 or not isinstance(made[0], nn.Module):
        raise FactoryError(
            f"the factory returned {type(made).__name__}; it must return (module, example inputs)"
        )
    return made[0], made[1]


def moved(module: nn.Module, inputs: ExampleInputs, device: str) -> tuple[nn.Module, ExampleInputs]:
    """The module and its inputs on a device; raises FactoryError where there is no such device."""
    try:
        where = torch.device(device)
        torch.empty(0, device=where)
        placed = map_leaves(lambda x: x.to(where) if isinstance(x, torch.Tensor) else x, inputs)
        return module.to(where), placed
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        first = str(error).strip().split("\n", 1)[0]
        raise FactoryError(f"device {device[:40]!a} cannot be used here: {first}") from None
