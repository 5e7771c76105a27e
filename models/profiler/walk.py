"""Goes through a captured graph node by node, running each node's forward and backward on its own.

What the nodes run on (tensors without memory, or real ones) and what is noted of a run (operators,
or time) is up to the caller; what the backward pass needs kept is found here.
"""

# ruff: noqa: TID253
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from pipeplan.models.capture import CapturedGraph, CapturedNode, Ref, call_node, state_value
from pipeplan.models.capture.values import leaves, map_leaves, with_paths

__all__ = ["Probe", "Run", "Walker", "is_view"]

_Path = tuple[int | str, ...]
_Token = tuple[str, int]


class Probe(Protocol):
    """Contexts around a node's forward and backward pass; inputs are made outside of them."""

    def forward(self) -> AbstractContextManager[Any]:
        """Entered for the call of the node."""

    def backward(self) -> AbstractContextManager[Any]:
        """Entered for the gradients of its inputs and parameters."""


Run = Callable[[Probe], None]


def is_view(node: CapturedNode) -> bool:
    """Whether the node only looks at memory that is there: it takes no time and keeps nothing."""
    return node.kind == "item" or (node.alias_of is not None and not node.mutates)


class Walker:
    """Holds the tensors between nodes, each until its last reader has run.

    `saved_bytes` grows while walking: for each node, what of the memory that it made is kept for
    some backward pass, its own or a reader's. Each memory counts once, at the node that made it, so
    the sum over any set of nodes is what they keep together. Parameters and buffers do not count.
    """

    def __init__(self, graph: CapturedGraph, module: nn.Module, values: dict[Ref, Any]) -> None:
        self.saved_bytes: dict[str, int] = {}
        self._graph = graph
        self._module = module
        self._values = values
        self._state = {_key(t) for t in (*module.parameters(), *module.buffers())}
        self._tokens: dict[Ref, dict[int, _Token]] = {}
        self._counted: set[_Token] = set()
        outputs = {leaf for leaf in leaves(graph.output) if isinstance(leaf, Ref)}
        self._last = {
            ref: node.id for node in graph.nodes for ref in node.refs if ref not in outputs
        }
        self._used: dict[str, set[_Path]] = {}
        for node in graph.nodes:
            if node.kind == "item":
                self._used.setdefault(node.args[0].name, set()).add(node.path)
        for i, (ref, value) in enumerate(values.items()):
            self._tokens[ref] = {_key(value): ("", i)}

    def walk(self, visit: Callable[[CapturedNode, Run], None]) -> None:
        """Call `visit` for each node that does something; it must run the node at least once."""
        for node in self._graph.nodes:
            ref = Ref("node", node.id)
            if is_view(node):
                with torch.no_grad():
                    result = call_node(node, self._module, self._values)
                packed: list[Tensor] = []
            else:
                result, packed = self._visit(node, visit)
            self._values[ref] = _detached(result)
            self._own(node, ref, packed)
            for seen in (*node.refs, ref):
                if self._last.get(seen, "") == node.id:
                    self._values.pop(seen, None)
                    self._tokens.pop(seen, None)

    def _visit(
        self, node: CapturedNode, visit: Callable[[CapturedNode, Run], None]
    ) -> tuple[Any, list[Tensor]]:
        results: list[Any] = []
        packed: list[Tensor] = []

        def run(probe: Probe) -> None:
            # What is saved is noted once; the hooks would only slow the runs that are timed.
            hooks = nullcontext() if results else saved_tensors_hooks(_noting(packed), _same)
            result = self._run(node, probe, hooks)
            results[:] = [result]

        visit(node, run)
        return results[0], packed

    def _run(self, node: CapturedNode, probe: Probe, hooks: AbstractContextManager[Any]) -> Any:
        fresh = {ref: _detached(self._values[ref]) for ref in node.refs if _flows(ref)}
        with torch.enable_grad():
            # Leaves of autograd cannot be overwritten, so such a node works on a copy.
            made = {r: x.clone() if r in node.mutates else x for r, x in fresh.items()}
            with hooks, probe.forward():
                result = call_node(node, self._module, {**self._values, **made})
            used = self._used.get(node.id)
            ends = [
                leaf
                for path, leaf in with_paths(result)
                if isinstance(leaf, Tensor)
                and leaf.requires_grad
                and (used is None or path in used)
            ]
            inputs = [x for value in fresh.values() for x in _needing_grad([value])]
            wanted = [*inputs, *_needing_grad(self._parameters(node))]
            if ends and wanted:
                gradients = [torch.ones_like(end) for end in ends]
                with probe.backward():
                    torch.autograd.grad(ends, wanted, gradients, allow_unused=True)
        return result

    def _parameters(self, node: CapturedNode) -> Iterable[Tensor]:
        if node.kind == "module":
            return self._module.get_submodule(node.target).parameters()
        return (state_value(self._module, Ref("parameter", name)) for name in node.parameters)

    def _own(self, node: CapturedNode, ref: Ref, packed: list[Tensor]) -> None:
        """Tell whose memory the result is, and count what was kept, at its makers."""
        known = {key: token for tokens in self._tokens.values() for key, token in tokens.items()}
        mine: dict[int, _Token] = {}
        for leaf in leaves(self._values[ref]):
            if isinstance(leaf, Tensor):
                key = _key(leaf)
                mine[key] = known.get(key, (node.id, len(mine)))
        self._tokens[ref] = mine
        internal: dict[int, int] = {}
        for tensor in packed:
            key, size = _key(tensor), int(tensor.untyped_storage().nbytes())
            token = mine.get(key) or known.get(key)
            if key in self._state:
                continue
            if token is None:
                internal[key] = size
            elif token not in self._counted:
                self._counted.add(token)
                self._keep(token[0] or node.id, size)
        self._keep(node.id, sum(internal.values()))

    def _keep(self, node_id: str, size: int) -> None:
        self.saved_bytes[node_id] = self.saved_bytes.get(node_id, 0) + size


def _flows(ref: Ref) -> bool:
    return ref.kind in ("node", "input")


def _detached(result: Any) -> Any:
    return map_leaves(
        lambda x: x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x, result
    )


def _needing_grad(tensors: Iterable[Any]) -> list[Tensor]:
    return [t for t in tensors if isinstance(t, Tensor) and t.requires_grad]


def _noting(packed: list[Tensor]) -> Callable[[Tensor], Tensor]:
    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor)
        return tensor

    return pack


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
