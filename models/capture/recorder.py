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

from pipeplan.models.capture.effects import Memory, Use
from pipeplan.models.capture.graph import CapturedNode, DeviceFlag, Ref, TensorSpec, TrainingFlag
from pipeplan.models.capture.names import describe, is_leaf, lookup, short_name
from pipeplan.models.capture.values import leaves, map_leaves, with_paths

__all__ = ["KeepWholeError", "Recorder"]

_VALUE_READS: Final = frozenset(
    f"torch.Tensor.{name}"
    for name in ("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__")
)
_PLAIN: Final = (
    *(type(None), bool, int, float, complex, str, type(Ellipsis)),
    *(TrainingFlag, DeviceFlag),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
_RANDOM: Final = ("rand", "dropout", "bernoulli", "normal", "multinomial", "poisson")


class KeepWholeError(Exception):
    """A module's code cannot be followed; it has to stay one layer. `scope` is its path."""

    def __init__(self, scope: str, reason: str) -> None:
        super().__init__(reason)
        self.scope = scope
        self.reason = reason


class Recorder(TorchFunctionMode):
    """Collects nodes while active; `hooked` must be entered first."""

    def __init__(
        self,
        module: nn.Module,
        inputs: Mapping[str, Tensor],
        *,
        whole: Iterable[str],
        fixed_values: bool,
    ) -> None:
        super().__init__()
        self.nodes: list[CapturedNode] = []
        self.memories: dict[int, Memory] = {}
        self.fixed: list[str] = []
        """Values of tensors that the code read, and which are now those of the example."""
        self._fixed_values = fixed_values
        self._whole = frozenset(whole)
        self._device = next((t.device for t in (*module.parameters(), *inputs.values())), None)
        self._paths: dict[int, str] = {id(child): path for path, child in module.named_modules()}
        self._scopes: list[nn.Module] = [module]
        self._inside: nn.Module | None = None
        self._before: list[tuple[Tensor, int]] = []
        self._call: tuple[Any, Any] = ((), {})
        self._kept: list[Tensor] = []
        self._refs: dict[int, Ref] = {}
        self._ids = {path for path, _ in module.named_modules()} | set(inputs)
        self._used: dict[str, int] = {}
        self._pure: set[str] = set()
        for name, parameter in module.named_parameters():
            self._name(parameter, Ref("parameter", name))
        for name, buffer in module.named_buffers():
            self._name(buffer, Ref("buffer", name))
        for path, child in module.named_modules():
            for attribute, value in vars(child).items():
                if isinstance(value, Tensor) and id(value) not in self._refs:
                    self._name(value, Ref("constant", f"{path}.{attribute}".lstrip(".")))
        for name, tensor in inputs.items():
            self._name(tensor, Ref("input", name))
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
        module = self._scopes[-1] if self._inside is None else self._inside
        return self._paths[id(module)]

    def refs_in(self, value: Any) -> Any:
        """The same structure with tensors replaced by what made them."""
        return map_leaves(self._argument, value)

    # -- calls of modules ---------------------------------------------------------------------

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self._inside is not None:
            return
        path = self._paths[id(module)]
        if path in self._whole or is_leaf(module):
            with torch._C.DisableTorchFunction():
                self._before = _versions((args, kwargs))
                self._check_mode([*self._before, *((p, 0) for p in module.parameters())])
                self._inside = module
                self._call = (self.refs_in(args), self.refs_in(kwargs))
        else:
            self._scopes.append(module)

    def _leave(self, module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        if self._inside is None:
            self._scopes.pop()
            return
        if self._inside is not module:
            return
        self._inside = None
        path = self._paths[id(module)]
        with torch._C.DisableTorchFunction():
            self._record("module", path, path, *self._call, result, self._before, module)

    # -- calls of functions -------------------------------------------------------------------

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
        name = resolve_name(func) or f"{func.__module__}.{func.__qualname__}"
        if name in _VALUE_READS:
            if not self._fixed_values:
                raise KeepWholeError(self.scope, f"its code depends on values of tensors ({name})")
            self.fixed.append(f"{self.scope or 'the model'}: {name}")
        before = _versions((args, given))
        self._check_mode(before)
        result = func(*args, **given)
        overwritten = any(tensor._version != version for tensor, version in before)
        if not overwritten and not any(isinstance(leaf, Tensor) for leaf in leaves(result)):
            return result
        if lookup(name) is None:
            raise KeepWholeError(self.scope, f"{name} is no function of torch")
        call = (self.refs_in(self._flagged(func, args)), self.refs_in(self._flagged_by_name(given)))
        base = f"{self.scope}.{short_name(name)}".lstrip(".")
        self._record("function", name, base, *call, result, before, None)
        return result

    def refuse_function(self) -> None:
        """Called for a torch.autograd.Function: its backward is not that of its operators."""
        if self._inside is None:
            raise KeepWholeError(self.scope, "it has its own backward (torch.autograd.Function)")

    def _check_mode(self, before: list[tuple[Tensor, int]]) -> None:
        if not torch.is_grad_enabled() and any(tensor.requires_grad for tensor, _ in before):
            raise KeepWholeError(self.scope, "it computes without gradients (no_grad)")
        if torch.is_autocast_enabled(self._device.type if self._device else "cpu"):
            raise KeepWholeError(self.scope, "it computes under autocast")

    def _flagged(self, func: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
        try:
            names = list(inspect.signature(func).parameters)
        except (TypeError, ValueError):
            return args
        training = self._scopes[-1].training
        return (
            tuple(
                TrainingFlag() if name == "training" and value is training else value
                for name, value in zip(names, args, strict=False)
            )
            + args[len(names) :]
        )

    def _flagged_by_name(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        training = self._scopes[-1].training
        return {
            key: TrainingFlag() if key == "training" and value is training else value
            for key, value in kwargs.items()
        }

    # -- notes --------------------------------------------------------------------------------

    def _record(
        self,
        kind: Any,
        target: str,
        base: str,
        args: Any,
        kwargs: Any,
        result: Any,
        before: list[tuple[Tensor, int]],
        module: nn.Module | None,
    ) -> None:
        overwritten = [tensor for tensor, version in before if tensor._version != version]
        found = [(path, leaf) for path, leaf in with_paths(result) if isinstance(leaf, Tensor)]
        argument = None
        if not found and len(overwritten) == 1:
            # Such as x[i] = y: the call yields nothing, and its value is what it overwrote.
            ref = self._refs[id(overwritten[0])]
            argument = next((i for i, value in enumerate(args) if value == ref), None)
            found = [] if argument is None else [((), overwritten[0])]
        single = len(found) == 1 and found[0][0] == ()
        changed = [t for t in overwritten if self._refs[id(t)].kind != "buffer" or not module]
        if any(not any(t is leaf for _, leaf in found) for t in changed):
            raise KeepWholeError(self.scope, f"{target} overwrites an argument besides its result")
        node_id = self._unique(base, keep=module is not None and base not in self._used)
        scope = self._paths[id(self._scopes[-1])]
        refs = [ref for ref in leaves((args, kwargs)) if isinstance(ref, Ref)]
        parameters, buffers = self._state(module, refs)
        pure = (
            not module
            and not overwritten
            and all(ref.kind == "node" and ref.name in self._pure for ref in refs)
            and not any(word in target for word in _RANDOM)
        )
        node = CapturedNode(
            id=node_id,
            kind=kind,
            target=target,
            args=args,
            kwargs=kwargs,
            outputs=tuple(_spec(tensor) for _, tensor in found),
            scope=scope,
            description=describe(module, target, args, kwargs),
            parameters=parameters,
            buffers=buffers,
            mutates=tuple(self._refs[id(tensor)] for tensor in overwritten),
            alias_of=self._alias(found[0][1], before) if single else None,
            value_argument=argument,
            is_constant=pure,
        )
        if pure:
            self._pure.add(node_id)
        self.nodes.append(node)
        self._use(node, before, overwritten, [tensor for _, tensor in found])
        if single:
            self._name(found[0][1], Ref("node", node_id))
        else:
            self._items(node, found)

    def _items(self, node: CapturedNode, found: list[tuple[tuple[int | str, ...], Tensor]]) -> None:
        for path, tensor in found:
            item_id = self._unique(node.id + "".join(f"[{step}]" for step in path), keep=True)
            self.nodes.append(
                CapturedNode(
                    id=item_id,
                    kind="item",
                    target="item",
                    args=(Ref("node", node.id),),
                    kwargs={},
                    outputs=(_spec(tensor),),
                    scope=node.scope,
                    description=f"__getitem__({', '.join(map(repr, path))})",
                    path=path,
                    alias_of=Ref("node", node.id),
                    is_constant=node.is_constant,
                )
            )
            if node.is_constant:
                self._pure.add(item_id)
            self._name(tensor, Ref("node", item_id))

    def _state(
        self, module: nn.Module | None, refs: list[Ref]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if module is None:
            found = refs
        else:
            tensors = (*module.parameters(), *module.buffers())
            found = [*refs, *(self._refs[id(tensor)] for tensor in tensors)]
        parameters = dict.fromkeys(ref.name for ref in found if ref.kind == "parameter")
        buffers = dict.fromkeys(ref.name for ref in found if ref.kind == "buffer")
        return tuple(parameters), tuple(buffers)

    def _use(
        self,
        node: CapturedNode,
        before: list[tuple[Tensor, int]],
        overwritten: list[Tensor],
        results: list[Tensor],
    ) -> None:
        """Note which memories the node reads, overwrites or views."""
        through: dict[int, list[str]] = {}
        for tensor, _ in before:
            ref = self._refs[id(tensor)]
            if ref.kind in ("node", "input"):
                through.setdefault(_memory(tensor), []).append(ref.name)
        written = {_memory(tensor) for tensor in overwritten}
        seen = {_memory(tensor) for tensor in results}
        for key, names in through.items():
            memory = self.memories.setdefault(key, Memory(names[0]))
            memory.uses.append(Use(node.id, tuple(names), key in written, key in seen))
        for key in seen - through.keys():
            self.memories.setdefault(key, Memory(node.id))

    def _alias(self, result: Tensor, before: list[tuple[Tensor, int]]) -> Ref | None:
        for tensor, _ in before:
            if _memory(tensor) == _memory(result):
                return self._refs[id(tensor)]
        return None

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            ref = self._refs.get(id(value))
            if ref is None:
                raise KeepWholeError(self.scope, "it uses a tensor that no recorded call made")
            return ref
        if isinstance(value, torch.device) and value == self._device:
            return DeviceFlag()
        if isinstance(value, _PLAIN):
            return value
        raise KeepWholeError(self.scope, f"an argument is of type {type(value).__name__}")

    def _name(self, tensor: Tensor, ref: Ref) -> None:
        # Kept alive, because a freed tensor's id would be given to another.
        self._kept.append(tensor)
        self._refs[id(tensor)] = ref

    def _unique(self, base: str, *, keep: bool) -> str:
        count = self._used.get(base, 0)
        name = base if count == 0 else f"{base}_{count}"
        while name in self._ids and not (keep and count == 0):
            count += 1
            name = f"{base}_{count}"
        self._used[base] = count + 1
        self._ids.add(name)
        return name


def _versions(value: Any) -> list[tuple[Tensor, int]]:
    unique = {id(leaf): leaf for leaf in leaves(value) if isinstance(leaf, Tensor)}
    return [(tensor, tensor._version) for tensor in unique.values()]


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _spec(tensor: Tensor) -> TensorSpec:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorSpec(tuple(map(int, tensor.shape)), dtype, tensor.requires_grad)
