"""Runs a module once and notes its calls: those of torch.nn modules whole, other code op by op.

A torch function mode sees every call from Python into torch, under its public name and with its
arguments as written; hooks on the modules tell where a call came from.
"""

# ruff: noqa: TID253
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name

from pipeplan.models.capture.graph import TrainingFlag
from pipeplan.models.capture.names import is_leaf, lookup, short_name
from pipeplan.models.capture.notebook import Call, Notebook, UnknownValueError, Versions, versions
from pipeplan.models.capture.values import leaves

__all__ = ["KeepWholeError", "Recorder"]

# Python learns a value from these, or a shape that values decide.
_VALUE_READS: Final = frozenset(
    f"torch.{prefix}{name}"
    for prefix, names in (
        ("Tensor.", ("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__")),
        ("Tensor.", ("equal", "allclose", "is_nonzero", "__contains__", "nonzero", "argwhere")),
        ("Tensor.", ("masked_select", "unique", "unique_consecutive", "bincount")),
        ("", ("equal", "allclose", "is_nonzero", "nonzero", "argwhere", "masked_select")),
        ("", ("unique", "unique_consecutive", "bincount")),
        ("functional.", ("unique", "unique_consecutive")),
    )
    for name in names
)


class KeepWholeError(Exception):
    """A module's code cannot be followed; it has to stay one layer. `scope` is its path."""

    def __init__(self, scope: str, reason: str) -> None:
        super().__init__(reason)
        self.scope = scope
        self.reason = reason


class Recorder(TorchFunctionMode):
    """Fills a notebook while it is active. Hooks are on the module until `remove_hooks`.

    `whole` are paths of modules to keep as one layer. With `fixed_values` the code may read values
    of tensors: what it read is in `fixed`, and its result holds for the example alone. Otherwise
    that raises KeepWholeError, as does all else that cannot be followed.
    """

    def __init__(
        self,
        module: nn.Module,
        inputs: Mapping[str, Tensor],
        *,
        whole: Iterable[str],
        fixed_values: bool,
    ) -> None:
        super().__init__()
        self.notes = Notebook(module, inputs)
        self.fixed: list[str] = []
        self._fixed_values = fixed_values
        self._whole = frozenset(whole)
        self._device_type = next((p.device.type for p in module.parameters()), "cpu")
        self._paths: dict[int, str] = {id(child): path for path, child in module.named_modules()}
        self._scopes: list[nn.Module] = [module]
        self._inside: nn.Module | None = None
        self._before: Versions = ()
        self._call: tuple[Any, Any] = ((), {})
        self._hooks = [
            handle
            for path, child in module.named_modules()
            if path
            for handle in (
                child.register_forward_pre_hook(self._enter, with_kwargs=True, prepend=True),
                child.register_forward_hook(self._leave, with_kwargs=True),
            )
        ]

    def remove_hooks(self) -> None:
        """Leave the module as it was."""
        for hook in self._hooks:
            hook.remove()

    @property
    def scope(self) -> str:
        """Path of the innermost module that runs."""
        return self._paths[id(self._scopes[-1])]

    def result_of(self, value: Any) -> Any:
        """The module's result, with Refs for tensors; raises KeepWholeError where it is no data."""
        try:
            return self.notes.refs_in(value)
        except UnknownValueError as error:
            raise KeepWholeError("", f"its result cannot be noted: {error}") from None

    def refuse_function(self) -> None:
        """Called for a torch.autograd.Function: its backward is not that of its operators."""
        if self._inside is None:
            raise KeepWholeError(self.scope, "it has its own backward (torch.autograd.Function)")

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self._inside is not None:
            return
        if self._paths[id(module)] not in self._whole and not is_leaf(module):
            self._scopes.append(module)
            return
        with torch._C.DisableTorchFunction():
            self._before = versions((args, kwargs))
            self._check_mode([*self._before, *versions(list(module.parameters()))])
            try:
                self._call = (self.notes.refs_in(args), self.notes.refs_in(kwargs))
            except UnknownValueError as error:
                raise KeepWholeError(self.scope, str(error)) from None
        self._inside = module

    def _leave(self, module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        if self._inside is None:
            self._scopes.pop()
        elif self._inside is module:
            self._inside = None
            path = self._paths[id(module)]
            with torch._C.DisableTorchFunction():
                self._record("module", path, path, *self._call, result, self._before, module)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the call, and note it if it yields or changes a tensor."""
        given = dict(kwargs or {})
        if self._inside is not None:
            return func(*args, **given)
        if func is Tensor.__iter__:
            # An iterator hides its tensors; what it goes through does not.
            return iter(self.__torch_function__(Tensor.unbind, types, args))
        name = resolve_name(func) or f"{func.__module__}.{func.__qualname__}"
        self._check_values(name, args)
        before = versions((args, given))
        self._check_mode(before)
        result = func(*args, **given)
        overwritten = any(tensor._version != version for tensor, version in before)
        if not overwritten and not any(isinstance(leaf, Tensor) for leaf in leaves(result)):
            return result
        if lookup(name) is None:
            raise KeepWholeError(self.scope, f"{name} is no function of torch")
        base = f"{self.scope}.{short_name(name)}".lstrip(".")
        try:
            noted, named = self.notes.refs_in(self._flagged(func, args, given))
        except UnknownValueError as error:
            raise KeepWholeError(self.scope, str(error)) from None
        self._record("function", name, base, noted, named, result, before, None)
        return result

    def _record(
        self,
        kind: Any,
        target: str,
        base: str,
        args: Any,
        kwargs: Any,
        result: Any,
        before: Versions,
        module: nn.Module | None,
    ) -> None:
        call = Call(kind, target, base, self.scope, args, kwargs, result, before, module)
        try:
            self.notes.record(call)
        except UnknownValueError as error:
            raise KeepWholeError(self.scope, str(error)) from None

    def _check_values(self, name: str, args: tuple[Any, ...]) -> None:
        masked = name == "torch.Tensor.__getitem__" and any(
            isinstance(leaf, Tensor) and leaf.dtype in (torch.bool, torch.uint8)
            for leaf in leaves(args[1])
        )
        if name not in _VALUE_READS and not masked:
            return
        if not self._fixed_values:
            raise KeepWholeError(self.scope, f"its code depends on values of tensors ({name})")
        self.fixed.append(f"{self.scope or 'the model'}: {name}")

    def _check_mode(self, before: Versions) -> None:
        if not torch.is_grad_enabled() and any(tensor.requires_grad for tensor, _ in before):
            raise KeepWholeError(self.scope, "it computes without gradients (no_grad)")
        if torch.is_autocast_enabled(self._device_type):
            raise KeepWholeError(self.scope, "it computes under autocast")

    def _flagged(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, with a flag in place of the module's training mode."""
        training = self._scopes[-1].training

        def flag(name: str, value: Any) -> Any:
            return TrainingFlag() if name == "training" and value is training else value

        try:
            names = list(inspect.signature(func).parameters)[: len(args)]
        except (TypeError, ValueError):
            names = []
        names += [""] * (len(args) - len(names))
        by_place = tuple(flag(name, value) for name, value in zip(names, args, strict=True))
        return by_place, {name: flag(name, value) for name, value in kwargs.items()}
