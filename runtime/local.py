"""A whole run on this machine: torchrun started, its losses and times read back."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import torch

from pipeplan.core.errors import PipeplanError
from pipeplan.runtime.measured import MeasuredRun, read_run
from pipeplan.runtime.package import LoadedPackage, load_recipe
from pipeplan.runtime.recipe import Settings
from pipeplan.runtime.schedule import SyncSchedule
from pipeplan.runtime.single import train_alone

__all__ = ["LOSS_TOLERANCES", "RunOptions", "largest_gap", "losses_alone", "run_here"]

LOSS_TOLERANCES: Final = {"float64": 1e-6, "float32": 1e-3}
"""Largest accepted difference of a step's loss from single-process training, relative to it."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run a package here; `timeout_s` is how long a rank waits for another, `threads` what
    each rank computes with on the CPU (None: this machine's cores, shared out)."""

    steps: int
    micro_batches: int
    schedule: SyncSchedule
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["float64", "float32"] = "float32"
    seed: int = 0
    timeout_s: float = 600.0
    threads: int | None = None


def run_here(
    package: LoadedPackage, options: RunOptions, *, extra: Sequence[str] = ()
) -> MeasuredRun:
    """Start every rank of the cluster on this machine and wait for them.

    What the ranks print goes to stderr. Raises PipeplanError where the run fails.
    """
    with tempfile.TemporaryDirectory(prefix="pipeplan-") as folder:
        metrics = Path(folder) / "metrics"
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone",
            f"--nproc-per-node={package.plan_file.problem.cluster.devices}",
            str(package.directory / "train.py"),
            f"--steps={options.steps}", f"--micro-batches={options.micro_batches}",
            f"--schedule={options.schedule}", f"--device={options.device}",
            f"--dtype={options.dtype}", f"--seed={options.seed}",
            f"--timeout={options.timeout_s}", f"--metrics={metrics}", *extra,
        ]  # fmt: skip
        # Ranks share the cores: torch's default of all cores for each would make them wait.
        shared = max(1, (os.cpu_count() or 1) // package.plan_file.problem.cluster.devices)
        environment = {"OMP_NUM_THREADS": str(shared), **os.environ}
        if options.threads is not None:
            environment["OMP_NUM_THREADS"] = str(options.threads)
        process = subprocess.Popen(command, stdout=sys.stderr.fileno(), env=environment)
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        if code:
            raise PipeplanError(f"the run failed (exit code {code}); the ranks said why above")
        return read_run(metrics, package.plan_file)


def losses_alone(package: LoadedPackage, options: RunOptions) -> list[float]:
    """The same steps in this process."""
    settings = Settings(
        steps=options.steps,
        micro_batches=options.micro_batches,
        seed=options.seed,
        dtype=getattr(torch, options.dtype),
        recompute=package.plan_file.problem.recompute,
    )
    with torch.random.fork_rng(devices=[]):
        return train_alone(package, load_recipe(package), settings)[0]


def largest_gap(found: Sequence[float], expected: Sequence[float]) -> float:
    """Largest relative difference of two lists of losses; infinite where one is no number."""
    gaps = [abs(a - b) / abs(b) if b else abs(a - b) for a, b in zip(found, expected, strict=True)]
    return max((x if x == x else float("inf") for x in gaps), default=0.0)
