"""Tensors from rank to rank: several at once, with their dtypes, in the order they are sent in.

The first message of a sender to a receiver says the shape, dtype and need of a gradient of each
tensor; after that only data travel, and a tensor of another shape is an error. Messages between two
ranks in one direction are received in the order in which they are sent, which both know from the
schedule: NCCL has no tags. Forward and backward have a process group each, so that neither waits
for the other.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from pipeplan.core.errors import PipeplanError
from pipeplan.runtime.failure import Whereabouts

__all__ = ["Inbox", "Outbox", "TensorHead", "greet"]

_DTYPES: Final = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64,
    torch.complex128, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
)  # fmt: skip
_MAX_DIMS: Final = 12
_HEAD: Final = 3 + _MAX_DIMS


@dataclass(frozen=True, slots=True)
class TensorHead:
    """What a receiver has to know of a tensor before it comes."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool

    @staticmethod
    def of(tensor: Tensor) -> "TensorHead":
        """The head of a tensor; raises PipeplanError for what cannot be sent."""
        if tensor.dtype not in _DTYPES or tensor.dim() > _MAX_DIMS:
            raise PipeplanError(f"a tensor of {tensor.dtype}{list(tensor.shape)} cannot be sent")
        return TensorHead(tuple(tensor.shape), tensor.dtype, tensor.requires_grad)

    def numbers(self) -> list[int]:
        """As numbers of a fixed count."""
        padding = [0] * (_MAX_DIMS - len(self.shape))
        code = _DTYPES.index(self.dtype)
        return [code, int(self.requires_grad), len(self.shape), *self.shape, *padding]

    @staticmethod
    def read(numbers: Sequence[int]) -> "TensorHead":
        """From its numbers."""
        code, grad, dims, *shape = numbers
        return TensorHead(tuple(shape[:dims]), _DTYPES[code], bool(grad))


def _pieces(tensor: Tensor) -> Tensor:
    """Contiguous memory of a tensor, in a type that every backend sends."""
    flat = tensor.detach().contiguous()
    if flat.is_complex():
        flat = torch.view_as_real(flat)
    return flat.to(torch.uint8) if flat.dtype == torch.bool else flat


class Outbox:
    """Messages to one rank in one direction."""

    def __init__(self, peer: int, group: Any, device: torch.device, where: Whereabouts) -> None:
        self._peer = peer
        self._group = group
        self._device = device
        self._where = where
        self._heads: tuple[TensorHead, ...] | None = None
        self._pending: list[tuple[Any, Tensor, int]] = []

    def send(self, tensors: Sequence[Tensor], micro_batch: int, *, heads: bool = True) -> None:
        """Begin to send; without `heads` the receiver knows the shapes (gradients)."""
        if heads:
            found = tuple(map(TensorHead.of, tensors))
            if self._heads is None:
                numbers = [x for head in found for x in head.numbers()]
                self._begin(torch.tensor(numbers, device=self._device), micro_batch)
            elif found != self._heads:
                raise PipeplanError(
                    f"{self._where.who}: micro-batch {micro_batch} has tensors {_shown(found)}, "
                    f"but earlier ones had {_shown(self._heads)}: all must be alike"
                )
            self._heads = found
        for tensor in tensors:
            self._begin(_pieces(tensor), micro_batch)

    def _begin(self, data: Tensor, micro_batch: int) -> None:
        if data.numel():
            work = dist.isend(data, self._peer, group=self._group)
            self._pending.append((work, data, micro_batch))

    def finish(self) -> None:
        """Wait until everything is on its way."""
        for work, _, micro_batch in self._pending:
            what = f"sending micro-batch {micro_batch} to rank {self._peer}"
            self._where.wait_for(work, what)
        self._pending.clear()


class Inbox:
    """Messages from one rank in one direction, announced in the order in which they are sent."""

    def __init__(
        self, peer: int, count: int, group: Any, device: torch.device, where: Whereabouts
    ) -> None:
        self._peer = peer
        self._count = count
        self._group = group
        self._device = device
        self._where = where
        self._heads: tuple[TensorHead, ...] | None = None
        self._expected: deque[int] = deque()
        self._posted: dict[int, list[tuple[Any, Tensor, TensorHead]]] = {}

    def expect(self, micro_batches: Iterable[int]) -> None:
        """Announce the micro-batches of a batch, in the sender's order."""
        self._expected.extend(micro_batches)

    def know(self, heads: tuple[TensorHead, ...]) -> None:
        """The shapes to come, where no message says them."""
        self._heads = heads

    def receive(self, micro_batch: int) -> tuple[Tensor, ...]:
        """The tensors of a micro-batch; raises PeerError naming both ranks and the micro-batch."""
        what = f"waiting for micro-batch {micro_batch} from rank {self._peer}"
        while micro_batch not in self._posted:
            self._post(what)
        tensors = []
        for work, data, head in self._posted.pop(micro_batch):
            if work is not None:
                self._where.wait_for(work, what)
            if head.dtype.is_complex:
                data = torch.view_as_complex(data)
            tensors.append(data.to(head.dtype).reshape(head.shape))
        # The next message travels while this one is computed with.
        if self._expected:
            self._post(what)
        return tuple(tensors)

    def requires_grad(self) -> tuple[bool, ...]:
        """Which tensors of a message need a gradient, once one has come."""
        return tuple(head.requires_grad for head in self._heads or ())

    def _post(self, what: str) -> None:
        if self._heads is None:
            numbers = torch.zeros(self._count * _HEAD, dtype=torch.int64, device=self._device)
            if self._count:
                self._where.wait_for(dist.irecv(numbers, self._peer, group=self._group), what)
            values = numbers.tolist()
            self._heads = tuple(
                TensorHead.read(values[i * _HEAD : (i + 1) * _HEAD]) for i in range(self._count)
            )
        posted: list[tuple[Any, Tensor, TensorHead]] = []
        for head in self._heads:
            data = _pieces(torch.empty(head.shape, dtype=head.dtype, device=self._device))
            work = dist.irecv(data, self._peer, group=self._group) if data.numel() else None
            posted.append((work, data, head))
        self._posted[self._expected.popleft()] = posted


def greet(
    pairs: Sequence[tuple[int, int]],
    rank: int,
    groups: Sequence[Any],
    device: torch.device,
    where: Whereabouts,
) -> None:
    """One message each way between every pair, pair after pair in the same order on all ranks.

    NCCL connects two ranks at their first message, and waits for both to come: met in the order
    of a schedule, such waits could form a circle.
    """
    for group in groups:
        for a, b in sorted(pairs):
            if rank not in (a, b):
                continue
            peer = b if rank == a else a
            what = f"greeting rank {peer}"
            data = torch.zeros(1, device=device)
            for sender in (a, b):
                begin = dist.isend if rank == sender else dist.irecv
                where.wait_for(begin(data, peer, group=group), what)


def _shown(heads: tuple[TensorHead, ...]) -> str:
    return ", ".join(f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}" for x in heads)
