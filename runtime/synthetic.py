"""Made-up data and a loss that fits most networks, for trying a pipeline without one's own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeplan.runtime.seeds import DATA, LABELS, seeded

__all__ = ["Input", "cross_entropy", "inputs", "labels"]


@dataclass(frozen=True, slots=True)
class Input:
    """Shape and dtype of an input for one micro-batch; whole numbers are `low` to below `high`."""

    shape: tuple[int, ...]
    dtype: str
    low: int = 0
    high: int | None = None


def inputs(wanted: Mapping[str, Input], step: int, micro_batch: int) -> dict[str, Tensor]:
    """Random tensors, the same for a step and micro-batch in every process."""
    out: dict[str, Tensor] = {}
    with torch.random.fork_rng(devices=[]):
        seeded(0, DATA, step, micro_batch)
        for name, item in wanted.items():
            dtype: torch.dtype = getattr(torch, item.dtype)
            if dtype.is_floating_point or dtype.is_complex:
                # Drawn as float32, so that a run in float64 sees the same numbers.
                out[name] = torch.randn(item.shape).to(dtype)
            else:
                high = item.high if item.high is not None else item.low + 2
                out[name] = torch.randint(item.low, high, item.shape).to(dtype)
    return out


def _classes(output: Tensor) -> int:
    """The dimension that scores run over: channels of a picture, otherwise the last."""
    return 1 if output.dim() == 4 else output.dim() - 1


def labels(outputs: tuple[Tensor, ...], step: int, micro_batch: int) -> tuple[Tensor | None, ...]:
    """A random class for each score vector of each output of a floating type."""
    out: list[Tensor | None] = []
    with torch.random.fork_rng(devices=[]):
        seeded(0, LABELS, step, micro_batch)
        for output in outputs:
            if not output.is_floating_point() or output.dim() == 0:
                out.append(None)
                continue
            dim = _classes(output)
            shape = [*output.shape[:dim], *output.shape[dim + 1 :]]
            out.append(torch.randint(output.shape[dim], shape).to(output.device))
    return tuple(out)


def cross_entropy(outputs: tuple[Tensor, ...], labels: Any) -> Tensor:
    """Sum over the outputs of the mean cross entropy against the labels."""
    losses = [
        F.cross_entropy(output.movedim(_classes(output), -1).flatten(0, -2), label.flatten())
        if output.dim() > 1
        else F.cross_entropy(output, label)
        for output, label in zip(outputs, labels, strict=True)
        if label is not None
    ]
    # A scalar result is a loss already.
    losses += [x for x in outputs if x.is_floating_point() and x.dim() == 0]
    return torch.stack(losses).sum()
