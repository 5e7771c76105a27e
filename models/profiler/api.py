"""From a module to its profile."""

# ruff: noqa: TID253
import datetime
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import fsum
from typing import Any

import torch
from torch import Tensor, nn

from pipeplan.core.captured import CAPTURE_KEY
from pipeplan.core.graph import LayerGraph
from pipeplan.models.capture import CapturedGraph, ExampleInputs, capture, split_inputs
from pipeplan.models.capture.data import capture_data
from pipeplan.models.capture.values import leaves
from pipeplan.models.formats.suspicions import SCATTER_KEY
from pipeplan.models.profiler.assemble import assemble
from pipeplan.models.profiler.devices import device_named
from pipeplan.models.profiler.estimate import estimate_nodes
from pipeplan.models.profiler.figures import NodeFigures
from pipeplan.models.profiler.measure import device_of, measure_nodes, threads_of
from pipeplan.models.profiler.operators import ASSUMPTIONS

__all__ = ["profile_model"]

Progress = Callable[[int, int, str], None]


def profile_model(
    module: nn.Module,
    example_inputs: ExampleInputs,
    *,
    name: str,
    estimate: str | None = None,
    description: str = "",
    factory: str = "",
    sizes: Mapping[str, Any] | None = None,
    keep_whole: Sequence[str] = (),
    warm_up: int = 2,
    repeats: int = 5,
    progress: Progress | None = None,
    date: str | None = None,
) -> LayerGraph:
    """Profile one micro-batch, the example inputs, in the module's present training mode.

    `estimate` names a device (v100, a100, h100, h200) to compute the times for, without using it;
    otherwise each layer is timed where the module is: `warm_up` runs, then the median of `repeats`.
    `factory` (MODULE:FACTORY) and `sizes` make the module again; where they are given, the profile
    holds the capture, so that stages can be generated from it. `keep_whole` names modules, by path,
    to keep as one layer. `progress` is called with layers done, layers in all, and the layer's id.
    The module is left as it was: weights, buffers, gradients, training flags, and random number
    generators. Raises CaptureError where the model cannot be captured, and PipeplanError for
    unknown devices.
    """
    device = None if estimate is None else device_named(estimate)
    graph = capture(module, example_inputs, keep_whole=keep_whole)
    if device is None:
        figures = measure_nodes(
            graph, module, example_inputs, warm_up=warm_up, repeats=repeats, progress=progress
        )
        method: dict[str, Any] = {
            "method": "measured",
            "device": device_of(module, example_inputs),
            "warm_up": warm_up,
            "repeats": repeats,
        }
        threads = threads_of(module, example_inputs)
        method |= {} if threads is None else {"threads": threads}
        method |= _scatter(figures)
    else:
        figures = estimate_nodes(graph, module, example_inputs, device, progress)
        method = {"method": "estimated", "device": device.name, "assumptions": dict(ASSUMPTIONS)}
    metadata = {
        "description": description,
        **method,
        "batch": _batch(graph, example_inputs),
        "dtype": _dtype(module),
        "training": graph.training,
        "date": date or datetime.date.today().isoformat(),
        "torch": str(torch.__version__).partition("+")[0],
        **({"messages": list(graph.messages)} if graph.messages else {}),
        **({CAPTURE_KEY: capture_data(graph, module, factory, sizes)} if factory else {}),
    }
    return assemble(graph, figures, module, name=name, metadata=metadata)


def _scatter(figures: Mapping[str, NodeFigures]) -> dict[str, Any]:
    """How far repeats lie apart, over the median: of each layer, and weighed by time of all."""
    timed = {
        node_id: (x.scatter_ms, x.compute_ms)
        for node_id, x in figures.items()
        if x.scatter_ms is not None and x.compute_ms > 0
    }
    if not timed:
        return {}
    layers = {node_id: round(scatter / whole, 4) for node_id, (scatter, whole) in timed.items()}
    total = fsum(x for x, _ in timed.values()) / fsum(x for _, x in timed.values())
    return {SCATTER_KEY: {"total": round(total, 4), "layers": layers}}


def _batch(graph: CapturedGraph, inputs: ExampleInputs) -> int:
    """Samples of a micro-batch: the first dimension of the first input that has one."""
    tensors = [x for x in leaves(split_inputs(inputs)) if isinstance(x, Tensor)]
    return next((int(t.shape[0]) for t in tensors if t.dim() > 0), 1)


def _dtype(module: nn.Module) -> str:
    """The type of most parameters."""
    sizes: Counter[str] = Counter()
    for parameter in module.parameters():
        sizes[str(parameter.dtype).removeprefix("torch.")] += parameter.numel()
    return sizes.most_common(1)[0][0] if sizes else "float32"
