"""What training needs beyond the model: data, loss and optimizer, and the settings of a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pipeplan.runtime.schedule import SyncSchedule

__all__ = ["Recipe", "Settings"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """The functions of a package's train.py.

    `inputs(step, micro_batch)` gives tensors by the names of the network's inputs, `labels(step,
    micro_batch, outputs)` what `loss(outputs, labels)` takes besides the results, and `optimizer`
    takes a list of parameters. A micro-batch's loss is a mean; a step's is the mean of those.
    """

    inputs: Callable[[int, int], Mapping[str, Tensor]]
    labels: Callable[[int, int, tuple[Tensor, ...]], Any]
    loss: Callable[[tuple[Tensor, ...], Any], Tensor]
    optimizer: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run: all ranks have the same."""

    steps: int
    micro_batches: int
    schedule: SyncSchedule = "1f1b"
    seed: int = 0
    dtype: torch.dtype = torch.float32
    recompute: bool = False
