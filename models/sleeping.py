"""A network of layers that take known times, by sleeping: what a runtime adds of its own shows.

Layers sleep instead of computing, so that any number of ranks runs on few cores, and the profile
need not be measured: `sleeping_profile` states the times that the layers keep.
"""

# ruff: noqa: TID253
import time
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor, nn

from pipeplan.core.errors import ProfileError
from pipeplan.core.graph import LayerGraph
from pipeplan.models.profiler import profile_model

__all__ = ["FACTORY", "sleeping", "sleeping_profile"]

FACTORY: Final = "pipeplan.models.sleeping:sleeping"
_LONGEST_MS: Final = 60_000.0


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, forward_ms: float, backward_ms: float) -> Any:
        ctx.backward_ms = backward_ms
        _sleep(x, forward_ms)
        return x + weight

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        _sleep(grads[0], ctx.backward_ms)
        return grads[0], grads[0].sum(0), None, None


def _sleep(tensor: Tensor, duration_ms: float) -> None:
    """Take this long, but for tensors without memory, by which a capture follows the code."""
    if type(tensor) is Tensor and not tensor.is_meta:
        time.sleep(duration_ms / 1e3)


class Sleeper(nn.Module):
    """Adds its weight to its input, and takes its time over it, forward and backward."""

    def __init__(self, width: int, forward_ms: float, backward_ms: float) -> None:
        super().__init__()
        # Without a weight, nothing would ask the first layer for a gradient.
        self.weight = nn.Parameter(torch.zeros(width))
        self.forward_ms = forward_ms
        self.backward_ms = backward_ms

    def forward(self, x: Tensor) -> Tensor:
        """Of the input's shape."""
        slept: Tensor = _Sleep.apply(x, self.weight, self.forward_ms, self.backward_ms)  # type: ignore[no-untyped-call]
        return slept


def sleeping(
    *, times: str = "10/20,10/20", batch: int = 2, width: int = 16
) -> tuple[nn.Module, tuple[Tensor]]:
    """A chain of sleepers; `times` are FORWARD/BACKWARD in ms of each, and each hands on
    batch x width numbers. Raises ProfileError for other texts."""
    layers = [Sleeper(width, *both) for both in _parsed(times)]
    return nn.Sequential(*layers), (torch.zeros(batch, width),)


def sleeping_profile(times: str, *, batch: int = 2, width: int = 16) -> LayerGraph:
    """The profile of `sleeping`, times as stated and nothing measured."""
    module, inputs = sleeping(times=times, batch=batch, width=width)
    sizes = {"times": times, "batch": batch, "width": width}
    found = profile_model(
        module, inputs, name="sleeping", estimate="v100", factory=FACTORY, sizes=sizes
    )
    metadata = {**found.metadata, "method": "stated", "device": "sleep"}
    return replace(
        found,
        layers=tuple(
            replace(layer, forward_ms=forward_ms, backward_ms=backward_ms)
            for layer, (forward_ms, backward_ms) in zip(found.layers, _parsed(times), strict=True)
        ),
        metadata={k: v for k, v in metadata.items() if k != "assumptions"},
    )


def _parsed(times: str) -> list[tuple[float, float]]:
    try:
        pairs = [tuple(map(float, item.split("/"))) for item in times.split(",")]
        if any(not 0 <= ms <= _LONGEST_MS for pair in pairs for ms in pair):
            raise ValueError
        return [(forward_ms, backward_ms) for forward_ms, backward_ms in pairs]
    except ValueError:
        raise ProfileError(
            f"times are not FORWARD/BACKWARD,FORWARD/BACKWARD,... in ms, from 0 to {_LONGEST_MS:g}",
            text=times,
        ) from None
