"""The notes of a run: which call made each tensor, under which id, in whose memory."""

# ruff: noqa: TID253
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

from pipeplan.models.capture.effects import Memory, Use
from pipeplan.models.capture.graph import CapturedNode, DeviceFlag, Ref, TensorSpec, TrainingFlag
from pipeplan.models.capture.names import describe
from pipeplan.models.capture.values import leaves, map_leaves, with_paths

__all__ = ["Call", "Notebook", "UnknownValueError", "spec_of", "versions"]

_PLAIN: Final = (
    *(type(None), bool, int, float, complex, str, type(Ellipsis)),
    *(TrainingFlag, DeviceFlag),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
_RANDOM: Final = ("rand", "dropout", "bernoulli", "normal", "multinomial", "poisson")

Versions = Sequence[tuple[Tensor, int]]


class UnknownValueError(Exception):
    """A call has an argument, or an effect, that the notes cannot express."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call that has returned; `module` is None for functions.

    `args` and `kwargs` are as noted before the call, with Refs; `before` holds its tensors and the
    version that each had.
    """

    kind: Literal["module", "function"]
    target: str
    base: str
    scope: str
    args: Any
    kwargs: Any
    result: Any
    before: Versions
    module: nn.Module | None


class Notebook:
    """Collects nodes, and what `effects` needs to know about memory."""

    def __init__(self, module: nn.Module, inputs: Mapping[str, Tensor]) -> None:
        self.nodes: list[CapturedNode] = []
        self.memories: dict[int, Memory] = {}
        self._device = next((t.device for t in (*module.parameters(), *inputs.values())), None)
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

    def refs_in(self, value: Any) -> Any:
        """The same structure with tensors replaced by what made them.

        Raises UnknownValueError for tensors of unknown origin and for objects that are no data.
        """
        return map_leaves(self._argument, value)

    def record(self, call: Call) -> None:
        """Add the node of a call, and one for each of its tensors if it yields several.

        Raises UnknownValueError where the call overwrites a tensor that it does not return.
        """
        overwritten = [tensor for tensor, version in call.before if tensor._version != version]
        found = [(path, x) for path, x in with_paths(call.result) if isinstance(x, Tensor)]
        argument = None
        if not found and len(overwritten) == 1:
            # Such as x[i] = y: the call yields nothing, and its value is what it overwrote.
            ref = self._refs[id(overwritten[0])]
            argument = next((i for i, value in enumerate(call.args) if value == ref), None)
            found = [] if argument is None else [((), overwritten[0])]
        if not all(any(tensor is result for _, result in found) for tensor in overwritten):
            raise UnknownValueError(f"{call.target} overwrites an argument besides its result")
        single = len(found) == 1 and found[0][0] == ()
        refs = [ref for ref in leaves((call.args, call.kwargs)) if isinstance(ref, Ref)]
        parameters, buffers = self._state(call.module, refs)
        node = CapturedNode(
            id=self._unique(call.base, own=call.module is not None),
            kind=call.kind,
            target=call.target,
            args=call.args,
            kwargs=call.kwargs,
            outputs=tuple(spec_of(tensor) for _, tensor in found),
            scope=call.scope,
            description=describe(call.module, call.target, call.args, call.kwargs),
            parameters=parameters,
            buffers=buffers,
            mutates=tuple(self._refs[id(tensor)] for tensor in overwritten),
            alias_of=self._alias(found[0][1], call.before) if single else None,
            value_argument=argument,
            is_constant=not overwritten and self._is_pure(call, refs),
        )
        through = self._through(call.before)
        self._add(node)
        made = {_memory(tensor): [node.id] for _, tensor in found}
        if single:
            self._name(found[0][1], Ref("node", node.id))
        else:
            for path, tensor in found:
                made[_memory(tensor)].append(self._item(node, path, tensor))
        self._use(node.id, through, {_memory(tensor) for tensor in overwritten}, made)

    def _add(self, node: CapturedNode) -> None:
        self.nodes.append(node)
        if node.is_constant:
            self._pure.add(node.id)

    def _item(self, node: CapturedNode, path: tuple[int | str, ...], tensor: Tensor) -> str:
        ref = Ref("node", node.id)
        item = CapturedNode(
            id=self._unique(node.id + "".join(f"[{step}]" for step in path), own=False),
            kind="item",
            target="item",
            args=(ref,),
            kwargs={},
            outputs=(spec_of(tensor),),
            scope=node.scope,
            description=f"__getitem__({', '.join(map(repr, path))})",
            path=path,
            alias_of=ref,
            is_constant=node.is_constant,
        )
        self._add(item)
        self._name(tensor, Ref("node", item.id))
        return item.id

    def _is_pure(self, call: Call, refs: Iterable[Ref]) -> bool:
        if call.module is not None or any(word in call.target for word in _RANDOM):
            return False
        return all(ref.kind == "node" and ref.name in self._pure for ref in refs)

    def _state(
        self, module: nn.Module | None, refs: Iterable[Ref]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        own = () if module is None else (*module.parameters(), *module.buffers())
        found = [*refs, *(self._refs[id(tensor)] for tensor in own)]
        parameters = dict.fromkeys(ref.name for ref in found if ref.kind == "parameter")
        buffers = dict.fromkeys(ref.name for ref in found if ref.kind == "buffer")
        return tuple(parameters), tuple(buffers)

    def _through(self, before: Versions) -> dict[int, list[str]]:
        """The memories that a call's tensors are in, each with the names it was reached by."""
        through: dict[int, list[str]] = {}
        for tensor, _ in before:
            through.setdefault(_memory(tensor), []).append(self._refs[id(tensor)].name)
        return through

    def _use(
        self,
        node: str,
        through: Mapping[int, Sequence[str]],
        written: set[int],
        made: Mapping[int, Sequence[str]],
    ) -> None:
        """Note which memories the node reads and overwrites, and the names that it gives them."""
        for key, names in through.items():
            memory = self.memories.setdefault(key, Memory((names[0],)))
            names_now = tuple(made.get(key, ()))
            memory.uses.append(Use(node, tuple(names), key in written, names_now))
        for key, names in made.items():
            if key not in through:
                self.memories.setdefault(key, Memory(tuple(names)))

    def _alias(self, result: Tensor, before: Versions) -> Ref | None:
        for tensor, _ in before:
            if _memory(tensor) == _memory(result):
                return self._refs[id(tensor)]
        return None

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            ref = self._refs.get(id(value))
            if ref is None:
                raise UnknownValueError("it uses a tensor that no recorded call made")
            return ref
        if isinstance(value, torch.device) and value == self._device:
            return DeviceFlag()
        if isinstance(value, _PLAIN):
            return value
        raise UnknownValueError(f"an argument is of type {type(value).__name__}")

    def _name(self, tensor: Tensor, ref: Ref) -> None:
        # Kept alive, because a freed tensor's id would be given to another.
        self._kept.append(tensor)
        self._refs[id(tensor)] = ref

    def _unique(self, base: str, *, own: bool) -> str:
        """`base`, or the first of base_1, base_2, ... that is free.

        `own`: the base is the path of the module that was called, and taken for it.
        """
        count = self._used.get(base, 0)
        name = base if count == 0 else f"{base}_{count}"
        while name in self._ids and not (own and count == 0):
            count += 1
            name = f"{base}_{count}"
        self._used[base] = count + 1
        self._ids.add(name)
        return name


def versions(value: Any) -> list[tuple[Tensor, int]]:
    """The tensors in a structure, once each, and how often each has been overwritten."""
    unique = {id(leaf): leaf for leaf in leaves(value) if isinstance(leaf, Tensor)}
    return [(tensor, tensor._version) for tensor in unique.values()]


def spec_of(tensor: Tensor) -> TensorSpec:
    """Shape, dtype and whether gradients flow."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorSpec(tuple(map(int, tensor.shape)), dtype, tensor.requires_grad)


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
