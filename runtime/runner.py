"""One stage's forward and backward pass of one micro-batch, on whatever process it runs."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pipeplan.core.errors import PipeplanError
from pipeplan.runtime.recipe import Recipe, Settings
from pipeplan.runtime.seeds import FORWARD, seeded
from pipeplan.runtime.stage import StageModule

__all__ = ["StageRunner"]


@dataclass
class _Pass:
    received: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    loss: Tensor | None


class StageRunner:
    """Runs a stage and keeps what its backward passes need.

    Received tensors become leaves; what is sent back are their gradients. The last stage computes
    the loss, divided by the micro-batches of a step, so that gradients add up to the mean's.
    """

    def __init__(
        self,
        stage: StageModule,
        recipe: Recipe,
        settings: Settings,
        *,
        is_last: bool,
        device: torch.device,
    ) -> None:
        self.stage = stage
        self.is_last = is_last
        self._recipe = recipe
        self._settings = settings
        self._device = device
        self._passes: dict[int, _Pass] = {}

    def inputs(self, step: int, micro_batch: int) -> tuple[Tensor, ...]:
        """The network's inputs that this stage reads, on its device and in the run's precision."""
        if not self.stage.INPUTS:
            return ()
        given = self._recipe.inputs(step, micro_batch)
        missing = [name for name in self.stage.INPUTS if name not in given]
        if missing:
            raise PipeplanError(f"`inputs` in train.py returns no tensor {missing[0]!r}")
        return tuple(
            _like(given[name], self._settings.dtype).to(self._device) for name in self.stage.INPUTS
        )

    def forward(
        self, step: int, micro_batch: int, received: tuple[Tensor, ...], grads: tuple[bool, ...]
    ) -> tuple[Tensor, ...]:
        """What is sent on (in the last stage: nothing); `grads` says which received tensors need
        a gradient."""
        leaves = tuple(
            tensor.requires_grad_() if grad else tensor
            for tensor, grad in zip(received, grads, strict=True)
        )
        outputs = self.run(step, micro_batch, (*leaves, *self.inputs(step, micro_batch)))
        loss = self.loss(step, micro_batch, outputs) if self.is_last else None
        self._passes[micro_batch] = _Pass(leaves, () if self.is_last else outputs, loss)
        return () if self.is_last else outputs

    def run(self, step: int, micro_batch: int, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The stage itself, under the random numbers of this micro-batch."""
        seeded(self._settings.seed, FORWARD, step, micro_batch, self.stage.INDEX)
        if self._settings.recompute and torch.is_grad_enabled():
            found: Any = checkpoint(self.stage, *tensors, use_reentrant=False)
        else:
            found = self.stage(*tensors)
        return tuple(found)

    def loss(self, step: int, micro_batch: int, outputs: tuple[Tensor, ...]) -> Tensor:
        """This micro-batch's part of the step's loss."""
        labels = self._recipe.labels(step, micro_batch, outputs)
        loss = self._recipe.loss(outputs, labels)
        if loss.dim():
            raise PipeplanError(
                f"`loss` in train.py returned a tensor {list(loss.shape)}, not one number"
            )
        return loss / self._settings.micro_batches

    def backward(self, micro_batch: int, grads: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Gradients of the received tensors that need one; `grads` are those of the sent tensors
        that do."""
        done = self._passes.pop(micro_batch)
        if done.loss is not None:
            if done.loss.requires_grad:
                done.loss.backward()  # type: ignore[no-untyped-call]
        else:
            outputs = [x for x in done.outputs if x.requires_grad]
            if outputs:
                torch.autograd.backward(outputs, list(grads))
        return tuple(
            torch.zeros_like(x) if x.grad is None else x.grad
            for x in done.received
            if x.requires_grad
        )

    def loss_of(self, micro_batch: int) -> Tensor:
        """This micro-batch's part of the loss, between its forward and its backward pass."""
        loss = self._passes[micro_batch].loss
        assert loss is not None, "only the last stage has a loss"
        return loss.detach()


def _like(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor
