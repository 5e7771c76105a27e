"""Times of each node's forward and backward pass, measured where the module is."""

# ruff: noqa: TID253
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from statistics import median, quantiles

import torch
from torch import Tensor, nn

from pipeplan.core.errors import PipeplanError
from pipeplan.core.units import plural
from pipeplan.models.capture import (
    CapturedGraph,
    CapturedNode,
    ExampleInputs,
    input_values,
    split_inputs,
)
from pipeplan.models.capture.skeleton import preserved
from pipeplan.models.capture.values import leaves
from pipeplan.models.profiler.figures import NodeFigures
from pipeplan.models.profiler.walk import Run, Walker

__all__ = ["device_of", "measure_nodes", "threads_of"]

Progress = Callable[[int, int, str], None]


class _Stopwatch:
    """A probe that times both passes: CUDA events on a GPU, the process's clock on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self.forward_ms: list[float] = []
        self.backward_ms: list[float] = []
        self._device = device

    def forward(self) -> AbstractContextManager[object]:
        return self._timed(self.forward_ms)

    def backward(self) -> AbstractContextManager[object]:
        return self._timed(self.backward_ms)

    def figures(self, saved_bytes: int) -> NodeFigures:
        """Medians of what was timed, and how far the repeats lie apart."""
        backward_ms = self.backward_ms or [0.0] * len(self.forward_ms)
        whole_ms = [a + b for a, b in zip(self.forward_ms, backward_ms, strict=True)]
        scatter = None
        if len(whole_ms) > 2:
            lower, _, upper = quantiles(whole_ms, n=4, method="inclusive")
            scatter = upper - lower
        return NodeFigures(median(self.forward_ms), median(backward_ms), saved_bytes, scatter)

    @contextmanager
    def _timed(self, times: list[float]) -> Iterator[None]:
        if self._device.type != "cuda":
            start = time.perf_counter()
            yield
            times.append(1000 * (time.perf_counter() - start))
            return
        first, second = (_event() for _ in range(2))
        torch.cuda.synchronize(self._device)
        first.record()
        yield
        second.record()
        torch.cuda.synchronize(self._device)
        times.append(first.elapsed_time(second))


def measure_nodes(
    graph: CapturedGraph,
    module: nn.Module,
    inputs: ExampleInputs,
    *,
    warm_up: int,
    repeats: int,
    progress: Progress | None = None,
) -> dict[str, NodeFigures]:
    """Figures of each node by id; views and items have none. The module is left as it was.

    Raises PipeplanError for a module without memory and for counts that are too small.
    """
    if warm_up < 0 or repeats < 1:
        raise PipeplanError(f"{warm_up} warm-up runs and {repeats} repeats: at least 0 and 1")
    if any(tensor.is_meta for tensor in (*module.parameters(), *module.buffers())):
        raise PipeplanError("the model has no memory (meta device): estimate it instead")
    device = _device(module, inputs)
    times: dict[str, _Stopwatch] = {}

    def visit(node: CapturedNode, run: Run) -> None:
        ignored, watch = _Stopwatch(device), _Stopwatch(device)
        for _ in range(warm_up):
            run(ignored)
        for _ in range(repeats):
            run(watch)
        times[node.id] = watch
        if progress is not None:
            progress(len(times), len(graph.nodes), node.id)

    with preserved(module):
        walker = Walker(graph, module, dict(input_values(graph, inputs)))
        walker.walk(visit)
    return {
        node_id: watch.figures(walker.saved_bytes.get(node_id, 0))
        for node_id, watch in times.items()
    }


def device_of(module: nn.Module, inputs: ExampleInputs) -> str:
    """What the module runs on, in words."""
    device = _device(module, inputs)
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"{device.type} ({platform.machine()}, {plural(torch.get_num_threads(), 'thread')})"


def threads_of(module: nn.Module, inputs: ExampleInputs) -> int | None:
    """Threads that an operator runs on; None where it does not run on the CPU."""
    return torch.get_num_threads() if _device(module, inputs).type == "cpu" else None


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _device(module: nn.Module, inputs: ExampleInputs) -> torch.device:
    given = (x for x in leaves(split_inputs(inputs)) if isinstance(x, Tensor))
    found = next(chain(module.parameters(), given), None)
    return torch.device("cpu") if found is None else found.device
