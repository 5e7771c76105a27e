"""A captured graph as data for code generation, which has no torch: see `core.captured`."""

# ruff: noqa: TID253
import re
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

from pipeplan.core.captured import (
    CapturedCall,
    CapturedInput,
    CapturedModel,
    CapturedModule,
    CapturedState,
    CapturedTensor,
    Named,
    TrainingFlag,
    capture_to_dict,
)
from pipeplan.core.captured import Ref as DataRef
from pipeplan.models.capture import graph as g
from pipeplan.models.capture.replay import state_value
from pipeplan.models.capture.values import leaves, map_leaves

__all__ = ["capture_data"]

_MAX_TEXT: Final = 400


def capture_data(
    graph: g.CapturedGraph,
    module: nn.Module,
    factory: str,
    sizes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """JSON-ready values of a capture of `module`, which `factory` (MODULE:FACTORY) makes again when
    it is called with these sizes.

    Raises ProfileError where an argument of some call is no data.
    """
    paths = dict.fromkeys(node.target for node in graph.nodes if node.kind == "module")
    return capture_to_dict(
        CapturedModel(
            factory=factory,
            sizes=dict(sizes or {}),
            training=graph.training,
            inputs=tuple(CapturedInput(x.name, x.path, _tensor(x.spec)) for x in graph.inputs),
            calls=tuple(map(_call, graph.nodes)),
            output=map_leaves(_leaf, graph.output),
            modules=tuple(_module(path, module.get_submodule(path)) for path in paths),
            state=tuple(_states(graph, module)),
            tied=dict(graph.tied),
        )
    )


def _tensor(spec: g.TensorSpec) -> CapturedTensor:
    return CapturedTensor(spec.shape, spec.dtype, spec.requires_grad)


def _call(node: g.CapturedNode) -> CapturedCall:
    return CapturedCall(
        id=node.id,
        kind=node.kind,
        target=node.target,
        args=tuple(map_leaves(_leaf, x) for x in node.args),
        kwargs={key: map_leaves(_leaf, x) for key, x in node.kwargs.items()},
        outputs=tuple(map(_tensor, node.outputs)),
        is_tuple=node.is_tuple,
        parameters=node.parameters,
        path=node.path,
        mutates=tuple(map(_ref, node.mutates)),
        alias_of=None if node.alias_of is None else _ref(node.alias_of),
        value_argument=node.value_argument,
        is_constant=node.is_constant,
    )


def _ref(ref: g.Ref) -> DataRef:
    return DataRef(ref.kind, ref.name)


def _leaf(value: Any) -> Any:
    """A leaf of an argument without torch's own objects."""
    match value:
        case g.Ref():
            return _ref(value)
        case g.TrainingFlag():
            return TrainingFlag()
        case g.DeviceFlag():
            return Named("device", "cpu")
        case torch.dtype():
            return Named("dtype", str(value).removeprefix("torch."))
        case torch.device():
            return Named("device", value.type)
        case torch.layout():
            return Named("layout", str(value).removeprefix("torch."))
        case torch.memory_format():
            return Named("memory_format", str(value).removeprefix("torch."))
    return value


def _module(path: str, module: nn.Module) -> CapturedModule:
    kind = type(module)
    text = re.sub(r"\s+", " ", repr(module))
    return CapturedModule(
        path, f"{kind.__module__}.{kind.__qualname__}", text if len(text) <= _MAX_TEXT else ""
    )


def _states(graph: g.CapturedGraph, module: nn.Module) -> list[CapturedState]:
    """Tensors that calls read directly, not through a module that is called whole."""
    found = dict.fromkeys(
        leaf
        for node in graph.nodes
        for leaf in (*leaves((node.args, dict(node.kwargs))), *node.mutates)
        if isinstance(leaf, g.Ref) and leaf.kind in ("parameter", "buffer", "constant")
    )
    kept = set(module.state_dict(keep_vars=True))
    out = []
    for ref in found:
        value: Tensor = state_value(module, ref)
        spec = CapturedTensor(
            tuple(map(int, value.shape)),
            str(value.dtype).removeprefix("torch."),
            value.requires_grad,
        )
        kind: Any = ref.kind
        out.append(CapturedState(ref.name, kind, spec, ref.name in kept))
    return out
