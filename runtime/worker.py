"""One rank of a pipeline: its passes in the order of the schedule, and what goes to whom."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pipeplan.core.plan import Plan
from pipeplan.runtime.channel import Inbox, Outbox, TensorHead
from pipeplan.runtime.failure import Whereabouts
from pipeplan.runtime.runner import StageRunner
from pipeplan.runtime.schedule import Event
from pipeplan.runtime.steplog import Clock, PassLine, StepLog

__all__ = ["Groups", "Worker", "groups_of"]


@dataclass(frozen=True, slots=True)
class Groups:
    """Process groups of a run: of all ranks that hold a stage, one for each direction and one for
    collectives; and one a stage with several replicas (None for others)."""

    active: Any
    forward: Any
    backward: Any
    stages: tuple[Any, ...]


class Worker:
    """Runs the events of one rank, batch after batch."""

    def __init__(
        self,
        runner: StageRunner,
        plan: Plan,
        paths: list[tuple[int, ...]],
        events: dict[int, tuple[Event, ...]],
        groups: Groups,
        device: torch.device,
        clock: Clock,
        where: Whereabouts,
    ) -> None:
        self._runner = runner
        self._events = events
        self._where = where
        self._device = device
        self._clock = clock
        rank = where.rank
        stage = plan.stage_of_rank[rank]
        mine = [m for m, path in enumerate(paths) if path[stage] == rank]
        self.micro_batches = len(mine)
        before = {m: paths[m][stage - 1] for m in mine} if stage else {}
        after = {m: paths[m][stage + 1] for m in mine} if stage + 1 < len(plan.stages) else {}
        self._before, self._after = before, after
        received = len(runner.stage.RECEIVES)
        self._inputs = {
            p: Inbox(p, received, groups.forward, device, where) for p in sorted({*before.values()})
        }
        self._outputs = {
            p: Outbox(p, groups.forward, device, where) for p in sorted({*after.values()})
        }
        self._grads_in = {
            p: Inbox(p, 0, groups.backward, device, where) for p in sorted({*after.values()})
        }
        self._grads_out = {
            p: Outbox(p, groups.backward, device, where) for p in sorted({*before.values()})
        }

    def run_batch(self, step: int) -> tuple[Tensor, StepLog]:
        """All passes of one batch; the loss summed over this rank's micro-batches, and its log."""
        for peer, inbox in self._inputs.items():
            inbox.expect(self._sent_by(peer, "F", self._before))
        for peer, inbox in self._grads_in.items():
            inbox.expect(self._sent_by(peer, "B", self._after))
        loss = torch.zeros((), dtype=torch.float64, device=self._device)
        log = StepLog()
        for event in self._events.get(self._where.rank, ()):
            self._where.doing = (
                f"running {event.kind} of micro-batch {event.micro_batch} in step {step}"
            )
            if event.kind == "F":
                self._forward(step, event, log)
                if self._runner.is_last:
                    loss += self._runner.loss_of(event.micro_batch)
            else:
                self._backward(event, log)
        for outbox in (*self._outputs.values(), *self._grads_out.values()):
            outbox.finish()
        log.sent_s = self._clock.now_s()
        return loss, log

    def _sent_by(self, peer: int, kind: str, peers: dict[int, int]) -> list[int]:
        """Micro-batches that a peer passes to this rank, in the peer's order."""
        return [m for k, m in self._events[peer] if k == kind and peers.get(m) == peer]

    def _forward(self, step: int, event: Event, log: StepLog) -> None:
        m = event.micro_batch
        received: tuple[Tensor, ...] = ()
        grads: tuple[bool, ...] = ()
        free_s = self._clock.now_s()
        if self._before:
            inbox = self._inputs[self._before[m]]
            received = inbox.receive(m)
            grads = inbox.requires_grad()
        began_s = self._clock.now_s()
        outputs = self._runner.forward(step, m, received, grads)
        log.passes.append(PassLine(*event, free_s, began_s, self._clock.now_s()))
        if self._after:
            self._outputs[self._after[m]].send(outputs, m)
            heads = tuple(TensorHead.of(x) for x in outputs if x.requires_grad)
            self._grads_in[self._after[m]].know(heads)

    def _backward(self, event: Event, log: StepLog) -> None:
        m = event.micro_batch
        grads: tuple[Tensor, ...] = ()
        free_s = self._clock.now_s()
        if self._after:
            grads = self._grads_in[self._after[m]].receive(m)
        began_s = self._clock.now_s()
        sent = self._runner.backward(m, grads)
        log.passes.append(PassLine(*event, free_s, began_s, self._clock.now_s()))
        if self._before:
            self._grads_out[self._before[m]].send(sent, m, heads=False)


def groups_of(plan: Plan) -> Groups:
    """Make the process groups; every rank of the world has to call it."""
    active = sorted(plan.stage_of_rank)
    return Groups(
        active=dist.new_group(active),
        forward=dist.new_group(active),
        backward=dist.new_group(active),
        stages=tuple(
            dist.new_group(list(stage.ranks)) if stage.replicas > 1 else None
            for stage in plan.stages
        ),
    )
