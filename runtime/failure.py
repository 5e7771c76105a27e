"""Waiting with a limit and with a name: who waited for whom, and in which micro-batch."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from types import FrameType
from typing import Any, NoReturn

import torch

from pipeplan.core.errors import PipeplanError

__all__ = ["EXIT_STOPPED", "PeerError", "Whereabouts", "stop_on_signals"]

EXIT_STOPPED = 143
"""As a shell reports a program ended by SIGTERM."""


class PeerError(PipeplanError):
    """A peer did not answer in time, or is gone."""


class Whereabouts:
    """What this rank is doing, in words, and the waits that it does."""

    def __init__(
        self, rank: int, stage: int | None, replica: int, timeout_s: float, device: torch.device
    ) -> None:
        self.rank = rank
        self.device = device
        role = "idle" if stage is None else f"stage {stage}, replica {replica}"
        self.who = f"rank {rank} ({role})"
        self.doing = "starting"
        self.timeout = timedelta(seconds=timeout_s)
        self._tasks: SimpleQueue[tuple[Callable[[], Any], dict[str, Any], threading.Event]]
        self._tasks = SimpleQueue()
        # Waits happen in a thread of their own: a wait inside torch holds back signal handlers.
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        while True:
            task, answer, done = self._tasks.get()
            try:
                answer["value"] = task()
            except BaseException as error:
                answer["error"] = error
            done.set()

    def wait(self, task: Callable[[], Any], doing: str, *, limited: bool = True) -> Any:
        """Run a blocking task and return its result.

        Raises PeerError, naming this rank and what it was doing, where the task fails or, if it is
        `limited`, takes longer than the limit. A task may say more exactly what it is `doing`.
        """
        before, self.doing = self.doing, doing
        answer: dict[str, Any] = {}
        done = threading.Event()
        self._tasks.put((task, answer, done))
        # The task has a limit of its own in most cases, and a better message: it goes first.
        limit_s = self.timeout.total_seconds() + 5
        waited_s = 0.0
        while not done.wait(0.2):
            waited_s += 0.2
            if limited and waited_s > limit_s:
                seconds = self.timeout.total_seconds()
                raise PeerError(f"{self.who}: no answer within {seconds:g} s while {self.doing}")
        if "error" in answer:
            reason = str(answer["error"]).strip().split("\n", 1)[0][:300]
            raise PeerError(f"{self.who}: failed while {self.doing}: {reason}") from answer["error"]
        self.doing = before
        return answer["value"]

    def wait_for(self, work: Any, doing: str) -> None:
        """Wait for a piece of communication (see `wait`)."""
        self.wait(lambda: self._finish(work), doing)

    def _finish(self, work: Any) -> None:
        if self.device.type == "cuda":
            # There `wait` only makes the stream wait: time is kept by asking.
            deadline = time.monotonic() + self.timeout.total_seconds()
            while not work.is_completed():
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no answer within {self.timeout.total_seconds():g} s")
                time.sleep(1e-4)
        work.wait(self.timeout)


def stop_on_signals(whereabouts: Whereabouts) -> None:
    """On SIGTERM, by which a launcher stops the other ranks, say where this one was and end."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        name = signal.Signals(number).name
        print(
            f"{whereabouts.who}: stopped by {name} while {whereabouts.doing}",
            file=sys.stderr,
            flush=True,
        )
        os._exit(EXIT_STOPPED)

    signal.signal(signal.SIGTERM, stop)
