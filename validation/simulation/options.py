"""What to simulate beyond the plan itself: how long, how unevenly, and with how much in flight."""

import math
from dataclasses import dataclass

from pipeplan.core.errors import PipeplanError

__all__ = ["SimulationOptions"]


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """Conditions of one simulation.

    `micro_batches` is how many are fed to measure the steady state, None for as many as it takes.
    `jitter` is the coefficient of variation of every forward and backward pass (log-normal, mean
    1); `stragglers` are pairs (rank, factor) by which a rank's compute is slower. `extra_in_flight`
    lets every rank begin that many micro-batches more than the schedule's own limit. `barrier`
    makes a replica wait for its peers after each backward pass, as a blocking all-reduce does.
    Raises PipeplanError for values without meaning.
    """

    micro_batches: int | None = None
    jitter: float = 0.0
    stragglers: tuple[tuple[int, float], ...] = ()
    extra_in_flight: int = 0
    barrier: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.micro_batches is not None and not 1 <= self.micro_batches <= 10**6:
            raise PipeplanError(
                f"{self.micro_batches} micro-batches to simulate; 1 to 1000000 make sense"
            )
        if not (math.isfinite(self.jitter) and 0 <= self.jitter <= 2):
            raise PipeplanError(f"jitter is {self.jitter}; it must be from 0 to 2")
        seen: set[int] = set()
        for rank, factor in self.stragglers:
            if not (math.isfinite(factor) and 0.01 <= factor <= 1000):
                raise PipeplanError(
                    f"rank {rank} is slower by {factor}; a factor from 0.01 to 1000 makes sense"
                )
            if rank in seen:
                raise PipeplanError(f"rank {rank} is given two straggler factors")
            seen.add(rank)
        if not 0 <= self.extra_in_flight <= 1000:
            raise PipeplanError(
                f"{self.extra_in_flight} extra micro-batches in flight; 0 to 1000 make sense"
            )
        if not 0 <= self.seed < 2**31:
            raise PipeplanError(f"the seed is {self.seed}; it must be from 0 to 2**31 - 1")
