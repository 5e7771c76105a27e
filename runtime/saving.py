"""Checkpoints: one file a stage, complete or not there."""

import os
import re
from pathlib import Path
from typing import Any, Final

import torch

from pipeplan.core.errors import PipeplanError
from pipeplan.runtime.stage import StageModule

__all__ = ["Checkpoints"]

_STEP: Final = re.compile(r"[0-9]{1,12}")


class Checkpoints:
    """A folder of `step_N/stage_S.pt`, and `latest` with the N of the last complete one.

    A stage's file holds its own names of parameters and buffers, and the optimizer's state. With
    ranks on several machines the folder has to be one that all of them see.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def _file(self, step: int, stage: int) -> Path:
        return self._directory / f"step_{step}" / f"stage_{stage}.pt"

    def save(self, step: int, stage: StageModule, optimizer: torch.optim.Optimizer | None) -> None:
        """Write one stage's file; `step` counts the finished steps. One replica calls it."""
        path = self._file(step, stage.INDEX)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".partial")
        state = {
            "step": step,
            "stage": stage.state_dict(),
            "optimizer": None if optimizer is None else optimizer.state_dict(),
        }
        torch.save(state, temporary)
        temporary.replace(path)

    def complete(self, step: int) -> None:
        """Point `latest` at a step of which all stages are written. One rank calls it."""
        temporary = self._directory / f".latest.{os.getpid()}"
        temporary.write_text(f"{step}\n")
        temporary.replace(self._directory / "latest")

    def latest(self) -> int:
        """Finished steps of the last complete checkpoint; raises PipeplanError for none."""
        path = self._directory / "latest"
        try:
            text = path.read_text().strip()
        except OSError:
            raise PipeplanError(f"{self._directory} holds no complete checkpoint") from None
        if not _STEP.fullmatch(text):
            raise PipeplanError(f"{path} holds {text[:40]!r}, not a step")
        return int(text)

    def load(
        self,
        step: int,
        stage: StageModule,
        optimizer: torch.optim.Optimizer | None,
        device: torch.device,
    ) -> None:
        """Put one stage back to where it was. Every replica calls it."""
        path = self._file(step, stage.INDEX)
        try:
            state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
            stage.load_state_dict(state["stage"])
            if optimizer is not None:
                optimizer.load_state_dict(state["optimizer"])
        except Exception as error:
            reason = str(error).strip().split("\n", 1)[0][:300]
            raise PipeplanError(f"{path} cannot be loaded: {reason}") from None
