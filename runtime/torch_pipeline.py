"""Plans whose stages have equally many replicas, run by torch.distributed.pipelining.

Such a plan is r pipelines side by side: a device mesh of (pp, dp), with torch's own schedule along
pp and gradients summed along dp. Uneven plans, which it does not know, are run by `runtime.worker`.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from pipeplan.core.plan import Plan
from pipeplan.runtime.channel import Inbox, Outbox
from pipeplan.runtime.failure import Whereabouts
from pipeplan.runtime.recipe import Settings
from pipeplan.runtime.runner import StageRunner
from pipeplan.runtime.schedule import Pass
from pipeplan.runtime.steplog import Clock, PassLine, StepLog
from pipeplan.runtime.worker import Groups

__all__ = ["TorchWorker", "chains_of", "mesh_of"]

Chains = tuple[tuple[int, ...], ...]


def chains_of(plan: Plan, paths: Sequence[tuple[int, ...]], schedule: str) -> Chains | None:
    """The ranks of each pipeline, first stage first; None where torch's schedules do not apply.

    They apply to two stages or more with equally many replicas, each pipeline in ascending ranks
    (torch numbers a group's members so), micro-batches that divide among the pipelines, and
    under 1f1b at least as many for each as there are stages.
    """
    replicas = plan.stages[0].replicas
    if len(plan.stages) < 2 or any(stage.replicas != replicas for stage in plan.stages):
        return None
    share, rest = divmod(len(paths), replicas)
    chains = tuple(dict.fromkeys(paths))
    if rest or len(chains) != replicas or any(list(x) != sorted(x) for x in chains):
        return None
    if schedule == "1f1b" and share < len(plan.stages):
        return None
    return chains


def mesh_of(chains: Chains, device: torch.device) -> DeviceMesh:
    """The mesh of (pp, dp); every rank of the world has to call it."""
    rows = [list(stage) for stage in zip(*chains, strict=True)]
    return DeviceMesh(device.type, torch.tensor(rows), mesh_dim_names=("pp", "dp"))


class _Called(nn.Module):
    """A stage as torch's schedule calls it: received tensors, and the number of a micro-batch."""

    def __init__(self, runner: StageRunner, own: list[int]) -> None:
        super().__init__()
        self.stage = runner.stage
        self._runner = runner
        self._own = own
        self.step = 0

    def forward(self, *received: Tensor, number: Tensor) -> tuple[Tensor, ...]:
        m = self._own[int(number.item())]
        return self._runner.run(self.step, m, (*received, *self._runner.inputs(self.step, m)))


class _LoggedStage(PipelineStage):
    """torch's stage, which notes when its passes run and says where it is.

    torch exchanges tensors between two passes in one go; all of that counts as waiting.
    """

    clock: Clock
    log: StepLog
    where: Whereabouts
    own: list[int]
    free_s: float

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        began_s = self._begin("F", fwd_chunk_id)
        result = super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)
        self._end("F", fwd_chunk_id, began_s)
        return result

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        began_s = self._begin("B", bwd_chunk_id)
        result = super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)
        self._end("B", bwd_chunk_id, began_s)
        return result

    def extend(self) -> None:
        """The loss, which torch computes apart, belongs to the forward pass that just ended."""
        self.free_s = self.clock.now_s()
        self.log.passes[-1] = self.log.passes[-1]._replace(ended_s=self.free_s)

    def _begin(self, kind: Pass, chunk: int) -> float:
        self.where.doing = f"running {kind} of micro-batch {self.own[chunk]}"
        return self.clock.now_s()

    def _end(self, kind: Pass, chunk: int, began_s: float) -> None:
        ended_s = self.clock.now_s()
        self.log.passes.append(PassLine(kind, self.own[chunk], self.free_s, began_s, ended_s))
        self.free_s = ended_s
        self.where.doing = f"exchanging tensors after {kind} of micro-batch {self.own[chunk]}"


class TorchWorker:
    """Runs batches like `Worker`, by torch's schedule."""

    def __init__(
        self,
        runner: StageRunner,
        plan: Plan,
        paths: Sequence[tuple[int, ...]],
        chains: Chains,
        mesh: DeviceMesh,
        groups: Groups,
        settings: Settings,
        device: torch.device,
        clock: Clock,
        where: Whereabouts,
    ) -> None:
        self._runner = runner
        self._where = where
        self._device = device
        self._clock = clock
        self._settings = settings
        rank = where.rank
        chain = next(x for x in chains if rank in x)
        index = chain.index(rank)
        own = [m for m, path in enumerate(paths) if path == chain]
        self.micro_batches = len(own)
        self._own = own
        self._module = _Called(runner, own)
        received, sent = self._shapes(chain, index, groups)
        self._stage = _LoggedStage(
            self._module,
            index,
            len(plan.stages),
            device,
            input_args=received,
            output_args=sent,
            group=mesh.get_group("pp"),
        )
        self._stage.clock = clock
        self._stage.where = where
        self._stage.own = own
        kind = ScheduleGPipe if settings.schedule == "gpipe" else Schedule1F1B
        # The loss is divided by all micro-batches already.
        self._schedule = kind(
            self._stage, n_microbatches=len(own), loss_fn=self._loss, scale_grads=False
        )

    def _shapes(
        self, chain: tuple[int, ...], index: int, groups: Groups
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """What this stage receives and sends, seen by passing one micro-batch down the pipeline.

        Buffers that the pass changes are put back. Given these, torch runs no passes of its own to
        find out.
        """
        stage = self._runner.stage
        buffers = copy.deepcopy(dict(stage.named_buffers()))
        received: tuple[Tensor, ...] = ()
        if index:
            inbox = Inbox(
                chain[index - 1], len(stage.RECEIVES), groups.forward, self._device, self._where
            )
            inbox.expect([self._own[0]])
            received = inbox.receive(self._own[0])
            for tensor, grad in zip(received, inbox.requires_grad(), strict=True):
                tensor.requires_grad_(grad)
        outputs = self._module(*received, number=torch.tensor(0))
        if index + 1 < len(chain):
            outbox = Outbox(chain[index + 1], groups.forward, self._device, self._where)
            outbox.send(outputs, self._own[0])
            outbox.finish()
        with torch.no_grad():
            for name, buffer in stage.named_buffers():
                buffer.copy_(buffers[name])
        sent = tuple(x.detach().requires_grad_(x.requires_grad) for x in outputs)
        return received, sent

    def _loss(self, outputs: Any, number: Tensor) -> Tensor:
        found = outputs if isinstance(outputs, tuple) else (outputs,)
        loss = self._runner.loss(self._module.step, self._own[int(number.item())], found)
        self._stage.extend()
        return loss

    def run_batch(self, step: int) -> tuple[Tensor, StepLog]:
        """All passes of one batch; the loss summed over this rank's micro-batches, and its log."""
        self._module.step = step
        self._stage.log = log = StepLog()
        self._stage.free_s = self._clock.now_s()
        losses: list[Tensor] = []
        numbers = torch.arange(self.micro_batches)
        target = numbers if self._runner.is_last else None

        def run() -> None:
            self._schedule.step(number=numbers, target=target, losses=losses, return_outputs=False)

        self._where.wait(run, f"beginning step {step}", limited=False)
        log.sent_s = self._clock.now_s()
        loss = torch.zeros((), dtype=torch.float64, device=self._device)
        for part in losses if self._runner.is_last else ():
            loss += part.detach()
        return loss, log
