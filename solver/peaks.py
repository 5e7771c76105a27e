"""Peak memory of many stages at once: `core.memory.peak_bytes` for arrays (DESIGN 4.3).

Floats, exact up to 2**53 bytes: for candidates and bounds, not for the dp's exact answer.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeplan.core.problem import Problem
from pipeplan.core.schedule import in_flight

__all__ = ["Peaks", "held_behind", "peaks_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def peaks_of(
    problem: Problem,
    *,
    weights: Floats,
    kept: Floats,
    entering: Floats | float,
    held: Ints | int,
) -> Floats:
    """Peak bytes of stages with these weights, kept activations and inputs (from the stage before
    and from outside; all in bytes), each holding `held` micro-batches; arrays broadcast."""
    sets = problem.weight_copies + (0 if problem.synchronous else held - 1)
    if problem.recompute:
        return np.asarray(sets * weights + kept + held * entering)
    return np.asarray(sets * weights + held * kept)


def held_behind(problem: Problem, behind: Ints, replicas: int) -> Ints:
    """Micro-batches that a stage of so many replicas holds, with so many ranks behind it."""
    count = [
        in_flight(problem.schedule, n + replicas, replicas, problem.micro_batches)
        for n in range(int(behind.max(initial=0)) + 1)
    ]
    return np.array(count, dtype=np.int64)[behind]


@dataclass(frozen=True)
class Peaks:
    """Peak bytes of stages between every two states, infinite for `barred` pairs.

    `weights[i,j]`, `kept[i,j]` and `entering` (bytes; broadcast to pairs) are as in `peaks_of`.
    """

    problem: Problem
    weights: Floats
    kept: Floats
    entering: Floats
    barred: Bools

    def __len__(self) -> int:
        return len(self.barred)

    def __call__(self, held: Ints | int) -> Floats:
        """Of stages that hold so many micro-batches (a number, or broadcast to pairs)."""
        need = peaks_of(
            self.problem,
            weights=self.weights,
            kept=self.kept,
            entering=self.entering,
            held=held,
        )
        need[self.barred] = np.inf
        return need
