"""From a captured graph and its figures to the layer graph that planning reads."""

# ruff: noqa: TID253
from collections.abc import Mapping
from typing import Any

from torch import nn

from pipeplan.core.graph import GraphInput, Layer, LayerGraph, Together, natural_key
from pipeplan.models.capture import CapturedGraph, CapturedNode, TensorSpec
from pipeplan.models.profiler.figures import NodeFigures

__all__ = ["assemble"]


def assemble(
    graph: CapturedGraph,
    figures: Mapping[str, NodeFigures],
    module: nn.Module,
    *,
    name: str,
    metadata: Mapping[str, Any],
) -> LayerGraph:
    """One layer a node, under the node's id.

    A parameter counts at the first node that uses it. A constant that several layers read can be
    remade by each, so its output counts no bytes; which these are is in `metadata["constants"]`.
    """
    readers: dict[str, int] = {}
    for producer, _ in graph.edges():
        readers[producer] = readers.get(producer, 0) + 1
    free = [n.id for n in graph.nodes if n.is_constant and readers.get(n.id, 0) != 1]
    sizes = {
        key: parameter.numel() * parameter.element_size()
        for key, parameter in module.named_parameters()
    }
    layers: list[Layer] = []
    for node in graph.nodes:
        weights = sum(sizes.pop(key, 0) for key in node.parameters)
        found = figures.get(node.id, NodeFigures())
        layers.append(
            Layer(
                id=node.id,
                forward_ms=found.forward_ms,
                backward_ms=found.backward_ms,
                output_bytes=0 if node.id in free else sum(spec.bytes for spec in node.outputs),
                parameter_bytes=weights,
                saved_bytes=found.saved_bytes,
                description=node.description,
                tensors=tuple(map(_tensor, node.outputs)),
            )
        )
    constants = {"constants": sorted(free, key=natural_key)} if free else {}
    return LayerGraph.build(
        layers,
        graph.edges(),
        inputs=_inputs(graph),
        together=[Together(ids, reason) for ids, reason in graph.together],
        name=name,
        metadata={
            **metadata,
            **constants,
            "layers": len(layers),
            "parameter_bytes": sum(layer.parameter_bytes for layer in layers),
        },
    )


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"bytes": spec.bytes, "dtype": spec.dtype, "shape": list(spec.shape)}


def _inputs(graph: CapturedGraph) -> list[GraphInput]:
    readers: dict[str, list[CapturedNode]] = {}
    for node in graph.nodes:
        for ref in node.refs:
            if ref.kind == "input":
                readers.setdefault(ref.name, []).append(node)
    return [
        GraphInput(
            id=item.name,
            output_bytes=item.spec.bytes,
            consumers=tuple(
                sorted((node.id for node in readers.get(item.name, [])), key=natural_key)
            ),
            description="input",
            tensors=(_tensor(item.spec),),
        )
        for item in graph.inputs
    ]
