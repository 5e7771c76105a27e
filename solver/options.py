"""How hard and how reproducibly to look for a plan."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from pipeplan.core.errors import ProblemError

__all__ = ["BACKENDS", "MILP_SOLVERS", "BackendName", "MilpSolver", "SolveOptions"]

BackendName = Literal["auto", "cpsat", "milp", "dp", "exhaustive"]
BACKENDS: Final[tuple[BackendName, ...]] = get_args(BackendName)
MilpSolver = Literal["highs", "gscip", "cpsat"]
MILP_SOLVERS: Final[tuple[MilpSolver, ...]] = get_args(MilpSolver)


@dataclass(frozen=True, slots=True)
class SolveOptions:
    """Limits and reproducibility.

    `time_limit_s` None is no limit. `gap` is the relative distance from the bound at which to stop.
    Same problem, seed and workers: same plan, unless the time limit stopped the search.
    `milp_solver` is the solver that backend milp runs.
    """

    time_limit_s: float | None = None
    workers: int = 2
    seed: int = 0
    gap: float = 0.0
    log: bool = False
    milp_solver: MilpSolver = "highs"

    def __post_init__(self) -> None:
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            raise ProblemError(f"the time limit is {self.time_limit_s} s; it must be above 0")
        if not 1 <= self.workers <= 1024:
            raise ProblemError(f"{self.workers} workers; 1 to 1024 make sense")
        if not 0 <= self.seed < 2**31:
            raise ProblemError(f"the seed is {self.seed}; it must be from 0 to 2**31 - 1")
        if not 0 <= self.gap < 1:
            raise ProblemError(f"the gap is {self.gap}; it must be from 0 to below 1")
        if self.milp_solver not in MILP_SOLVERS:
            raise ProblemError(
                f"there is no MILP solver {self.milp_solver!r}; choose from "
                f"{', '.join(MILP_SOLVERS)}"
            )
