"""A copy of a module whose tensors have shapes and no memory, and the state of a real one kept."""

# ruff: noqa: TID253
import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from pipeplan.models.capture.values import map_leaves

__all__ = ["fake_inputs", "fake_mode", "preserved", "skeleton"]


def fake_mode() -> FakeTensorMode:
    """Tensors made under it have shape, dtype and device, and no memory."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def skeleton(module: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """A deep copy without the memory of parameters and buffers; the original is untouched.

    Parameters on the meta device become CPU ones, so that a model built there is captured alike.
    """
    memo: dict[int, Any] = {}
    with mode:
        for tensor in (*module.parameters(), *module.buffers()):
            fake = _fake(tensor)
            if isinstance(tensor, nn.Parameter):
                fake = nn.Parameter(fake, requires_grad=tensor.requires_grad)
            memo[id(tensor)] = fake
    return copy.deepcopy(module, memo)


def fake_inputs(inputs: Any, mode: FakeTensorMode) -> Any:
    """The same inputs without their memory."""
    with mode:
        return map_leaves(lambda x: _fake(x) if isinstance(x, Tensor) else x, inputs)


def _fake(tensor: Tensor) -> Tensor:
    made = torch.empty_strided(
        tuple(tensor.shape),
        tensor.stride(),
        dtype=tensor.dtype,
        device="cpu" if tensor.is_meta else tensor.device,
    )
    return made.requires_grad_(tensor.requires_grad and tensor.is_leaf)


@contextmanager
def preserved(module: nn.Module) -> Iterator[None]:
    """Buffers, gradients, random number generators and training flags as they were, afterwards."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    gradients = [(parameter, parameter.grad) for parameter in module.parameters()]
    flags = [(child, child.training) for child in module.modules()]
    devices = sorted({t.device.index or 0 for t in module.parameters() if t.is_cuda})
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for child, training in flags:
            child.training = training
