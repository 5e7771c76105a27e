"""What a rank did in a step, and when: a line for every pass, written down as it goes."""

import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from pipeplan.runtime.schedule import Pass

__all__ = ["Clock", "PassLine", "StepLog"]


class Clock:
    """Seconds of the time of day that never step back: ranks of one machine read the same."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._start_s = time.time() - time.perf_counter()

    def now_s(self) -> float:
        """After what the device was given is done."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return self._start_s + time.perf_counter()


class PassLine(NamedTuple):
    """One pass: since when the rank was free for it, when all that it reads had come, and when it
    was computed (in the last stage the loss included), as `Clock` has it."""

    kind: Pass
    micro_batch: int
    free_s: float
    began_s: float
    ended_s: float


@dataclass
class StepLog:
    """The passes of one step in the rank's order, and when its last message was on its way."""

    passes: list[PassLine] = field(default_factory=list)
    sent_s: float = 0.0

    @property
    def forward_s(self) -> float:
        """Seconds in forward passes."""
        return sum(x.ended_s - x.began_s for x in self.passes if x.kind == "F")

    @property
    def backward_s(self) -> float:
        """Seconds in backward passes."""
        return sum(x.ended_s - x.began_s for x in self.passes if x.kind == "B")

    @property
    def wait_s(self) -> float:
        """Seconds in which the rank was free, and waited for what the next pass reads."""
        return sum(x.began_s - x.free_s for x in self.passes)

    @property
    def send_s(self) -> float:
        """Seconds that handing over messages kept the rank from its next pass."""
        free = [*(x.free_s for x in self.passes[1:]), self.sent_s]
        return sum(then - x.ended_s for x, then in zip(self.passes, free, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Lists and numbers."""
        return {"passes": [list(x) for x in self.passes], "sent_s": self.sent_s}

    @staticmethod
    def of(entry: dict[str, Any]) -> "StepLog":
        """From what `to_json` gave."""
        return StepLog([PassLine(*x) for x in entry["passes"]], entry["sent_s"])
