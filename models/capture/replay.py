"""Runs captured nodes again, one at a time, on the module's own weights."""

# ruff: noqa: TID253
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from pipeplan.models.capture.api import ExampleInputs, split_inputs
from pipeplan.models.capture.graph import (
    CapturedGraph,
    CapturedNode,
    DeviceFlag,
    Ref,
    TrainingFlag,
)
from pipeplan.models.capture.names import lookup
from pipeplan.models.capture.values import map_leaves

__all__ = ["call_node", "input_values", "replay", "state_value"]


def replay(graph: CapturedGraph, module: nn.Module, inputs: ExampleInputs) -> Any:
    """The model's result, computed node by node in the order of the capture."""
    values: dict[Ref, Any] = dict(input_values(graph, inputs))
    for node in graph.nodes:
        values[Ref("node", node.id)] = call_node(node, module, values)
    return map_leaves(lambda x: values[x] if isinstance(x, Ref) else x, graph.output)


def input_values(graph: CapturedGraph, inputs: ExampleInputs) -> dict[Ref, Tensor]:
    """The network's input tensors by the refs that name them."""
    whole: Any = split_inputs(inputs)
    values: dict[Ref, Tensor] = {}
    for item in graph.inputs:
        value = whole
        for step in item.path:
            value = value[step]
        values[Ref("input", item.name)] = value
    return values


def call_node(node: CapturedNode, module: nn.Module, values: Mapping[Ref, Any]) -> Any:
    """What one node yields, given the values of the nodes and inputs that it reads."""
    scope = module.get_submodule(node.scope)

    def value_of(leaf: Any) -> Any:
        if isinstance(leaf, Ref):
            known = values.get(leaf)
            return known if known is not None else state_value(module, leaf)
        if isinstance(leaf, DeviceFlag):
            return next((t.device for t in module.parameters()), "cpu")
        return scope.training if isinstance(leaf, TrainingFlag) else leaf

    args = map_leaves(value_of, node.args)
    kwargs = map_leaves(value_of, dict(node.kwargs))
    if node.kind == "item":
        result = args[0]
        for step in node.path:
            result = result[step]
        return result
    if node.kind == "module":
        return module.get_submodule(node.target)(*args, **kwargs)
    function = lookup(node.target)
    if function is None:
        raise LookupError(f"{node.target} is not in this version of torch")
    result = function(*args, **kwargs)
    return result if node.value_argument is None else args[node.value_argument]


def state_value(module: nn.Module, ref: Ref) -> Tensor:
    """A parameter, a buffer or an unregistered tensor of a module, by its qualified name."""
    path, _, attribute = ref.name.rpartition(".")
    value = getattr(module.get_submodule(path), attribute)
    if not isinstance(value, Tensor):
        raise LookupError(f"{ref.name} is not a tensor of this module")
    return value
