"""What the replicas of a stage agree on: initial state, gradients, buffers, tied weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipeplan.core.plan import Plan
from pipeplan.runtime.failure import Whereabouts
from pipeplan.runtime.package import LoadedPackage
from pipeplan.runtime.stage import StageModule

__all__ = ["Replicas", "TiedGroup", "tied_across"]

_BUCKET_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class TiedGroup:
    """Names of one parameter in the original that several stages hold, and the ranks that do."""

    names: frozenset[str]
    ranks: tuple[int, ...]


def tied_across(package: LoadedPackage, plan: Plan) -> tuple[TiedGroup, ...]:
    """Tied parameters that a plan parts: their gradients are summed over all those stages."""
    out: list[TiedGroup] = []
    for names in package.tied:
        holders = [
            s
            for s in range(package.stages)
            if any(_held(name, package.state_names[s].values()) for name in names)
        ]
        if len(holders) > 1:
            ranks = tuple(sorted(r for s in holders for r in plan.stages[s].ranks))
            out.append(TiedGroup(frozenset(names), ranks))
    return tuple(out)


def _held(name: str, originals: Any) -> bool:
    return any(name == x or name.startswith(f"{x}.") for x in originals)


class Replicas:
    """This rank's share in the state of its stage.

    Gradients are summed over the replicas: each holds the sum over its own micro-batches, already
    divided by the micro-batches of a step, so uneven shares weigh right by themselves. Parameters
    tied across stages are summed over the ranks of all those stages. Buffers of a floating type
    (running statistics) are averaged, weighted by the micro-batches that each replica has seen;
    whole numbers (counters) add what each replica has counted.
    """

    def __init__(
        self,
        stage: StageModule,
        group: Any,
        first_rank: int,
        tied: Sequence[tuple[frozenset[str], Any, int]],
        where: Whereabouts,
    ) -> None:
        self._stage = stage
        self._group = group
        self._first = first_rank
        self._where = where
        names: dict[nn.Parameter, set[str]] = {}
        for own, parameter in stage.named_parameters(remove_duplicate=False):
            names.setdefault(parameter, set()).add(stage.original_name(own))
        self._tied: list[tuple[nn.Parameter, Any, int]] = []
        parted: set[nn.Parameter] = set()
        for group_names, tied_group, first in tied:
            for parameter, own_names in names.items():
                if own_names & group_names and parameter not in parted:
                    self._tied.append((parameter, tied_group, first))
                    parted.add(parameter)
        self._own = [p for p in names if p not in parted and p.requires_grad]
        self._before: dict[str, Tensor] = {}

    def agree_at_start(self) -> None:
        """Everyone starts from what the first replica has."""
        with torch.no_grad():
            if self._group is not None:
                for tensor in (*self._stage.parameters(), *self._stage.buffers()):
                    self._broadcast(tensor, self._first, self._group)
            for parameter, group, first in self._tied:
                self._broadcast(parameter, first, group)

    def _broadcast(self, tensor: Tensor, source: int, group: Any) -> None:
        data = tensor.detach().contiguous()
        self._wait(dist.broadcast(data, source, group=group, async_op=True), "first state")
        tensor.detach().copy_(data)

    def begin_step(self) -> None:
        """Note what counters stand at."""
        if self._group is not None:
            self._before = {
                name: buffer.clone()
                for name, buffer in self._stage.named_buffers()
                if not buffer.is_floating_point()
            }

    def sum_gradients(self) -> None:
        """After the last backward pass of a step."""
        for parameter, group, _ in self._tied:
            self._sum([_gradient(parameter)], group)
        if self._group is None:
            return
        bucket: list[Tensor] = []
        size = 0
        for parameter in self._own:
            grad = _gradient(parameter)
            if bucket and (size > _BUCKET_BYTES or grad.dtype != bucket[0].dtype):
                self._sum(bucket, self._group)
                bucket, size = [], 0
            bucket.append(grad)
            size += grad.numel() * grad.element_size()
        if bucket:
            self._sum(bucket, self._group)

    def _sum(self, tensors: list[Tensor], group: Any) -> None:
        flat = torch.cat([x.reshape(-1) for x in tensors])
        self._wait(dist.all_reduce(flat, group=group, async_op=True), "gradients")
        at = 0
        for tensor in tensors:
            tensor.copy_(flat[at : at + tensor.numel()].view_as(tensor))
            at += tensor.numel()

    def agree_on_buffers(self, micro_batches: int, all_micro_batches: int) -> None:
        """After a step in which this replica has seen some of all micro-batches."""
        if self._group is None:
            return
        share = micro_batches / all_micro_batches
        with torch.no_grad():
            for name, buffer in self._stage.named_buffers():
                if not buffer.numel():
                    continue
                if buffer.is_floating_point() or buffer.is_complex():
                    weighted = buffer * share
                elif buffer.dtype == torch.bool:
                    continue
                else:
                    weighted = buffer - self._before[name]
                self._wait(dist.all_reduce(weighted, group=self._group, async_op=True), "buffers")
                counted = not (buffer.is_floating_point() or buffer.is_complex())
                buffer.copy_(weighted + self._before[name] if counted else weighted)

    def _wait(self, work: Any, what: str) -> None:
        self._where.wait_for(work, f"summing {what} with the other replicas")


def _gradient(parameter: nn.Parameter) -> Tensor:
    """A parameter's gradient; zero where no micro-batch of this replica used it."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
