"""Random numbers that do not depend on who draws them: one seed a purpose, step and micro-batch.

A stage's dropout masks are those of (seed, step, micro-batch, stage), whichever replica runs it and
in whatever order, so a pipeline draws what one process would.
"""

import hashlib
from typing import Final

import torch

__all__ = ["DATA", "FORWARD", "INITIAL", "LABELS", "seeded"]

DATA: Final = 1
LABELS: Final = 2
FORWARD: Final = 3
INITIAL: Final = 4


def seeded(seed: int, purpose: int, step: int, number: int, stage: int = 0) -> None:
    """Seed torch's generators, of the CPU and of GPUs in use."""
    text = f"{seed} {purpose} {step} {number} {stage}".encode()
    value = int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1
    # Not torch.manual_seed, which queues a call for every device not in use, and keeps them all.
    torch.default_generator.manual_seed(value)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(value)
