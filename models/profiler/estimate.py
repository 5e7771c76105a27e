"""Times from operator counts and a device's peaks, on tensors without memory."""

# ruff: noqa: TID253
from collections.abc import Callable
from contextlib import AbstractContextManager

from torch import nn

from pipeplan.models.capture import CapturedGraph, CapturedNode, ExampleInputs, input_values
from pipeplan.models.capture.skeleton import fake_inputs, fake_mode, preserved, skeleton
from pipeplan.models.profiler.devices import Device
from pipeplan.models.profiler.figures import NodeFigures
from pipeplan.models.profiler.operators import OperatorCounter, time_ms
from pipeplan.models.profiler.recurrent import recurrent_costs
from pipeplan.models.profiler.walk import Run, Walker

__all__ = ["estimate_nodes"]

Progress = Callable[[int, int, str], None]


class _Counting:
    """A probe that counts the operators of both passes."""

    def __init__(self) -> None:
        self.forward_pass = OperatorCounter()
        self.backward_pass = OperatorCounter()

    def forward(self) -> AbstractContextManager[object]:
        return self.forward_pass

    def backward(self) -> AbstractContextManager[object]:
        return self.backward_pass


def estimate_nodes(
    graph: CapturedGraph,
    module: nn.Module,
    inputs: ExampleInputs,
    device: Device,
    progress: Progress | None = None,
) -> dict[str, NodeFigures]:
    """Figures of each node by id; views and items have none.

    Both passes of a node are run operator by operator, and their times added up as in
    `operators.time_ms`. Nodes whose code depends on values run on the module's own tensors, since
    no values exist without memory; the module is left as it was.
    """
    mode = fake_mode()
    if graph.needs_values:
        with preserved(module):
            return _walk(graph, module, inputs, device, progress)
    copy = skeleton(module, mode)
    made = fake_inputs(inputs, mode)
    with mode:
        return _walk(graph, copy, made, device, progress)


def _walk(
    graph: CapturedGraph,
    module: nn.Module,
    inputs: ExampleInputs,
    device: Device,
    progress: Progress | None,
) -> dict[str, NodeFigures]:
    times: dict[str, tuple[float, float]] = {}
    walker = Walker(graph, module, dict(input_values(graph, inputs)))

    def visit(node: CapturedNode, run: Run) -> None:
        probe = _Counting()
        run(probe)
        called = module.get_submodule(node.target) if node.kind == "module" else None
        costs = (probe.forward_pass.costs, probe.backward_pass.costs)
        if isinstance(called, nn.RNNBase):
            costs = recurrent_costs(called, node)
        # Nanoseconds: more digits would be no truth of an estimate.
        forward_ms, backward_ms = (round(time_ms(each, device), 6) for each in costs)
        times[node.id] = (forward_ms, backward_ms)
        if progress is not None:
            progress(len(times), len(graph.nodes), node.id)

    walker.walk(visit)
    return {
        node_id: NodeFigures(*both, walker.saved_bytes.get(node_id, 0))
        for node_id, both in times.items()
    }
