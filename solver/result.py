"""What a solve says: what is proven, what was found, and what stopped it."""

from dataclasses import dataclass, field
from enum import Enum

from pipeplan.core.errors import NoPlanError
from pipeplan.core.plan import Plan

__all__ = ["Limit", "SolveResult", "Stats", "Status"]


class Status(Enum):
    """OPTIMAL and INFEASIBLE are proven; FEASIBLE and NO_SOLUTION mean that a limit stopped it."""

    OPTIMAL = "OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    NO_SOLUTION = "NO_SOLUTION"


class Limit(Enum):
    """What stopped a search that proved nothing final."""

    TIME = "time"
    INTERRUPT = "interrupt"
    GAP = "gap"
    SIZE = "size"


@dataclass(frozen=True, slots=True)
class Stats:
    """Effort. `seconds` never enters a plan file, which must not differ from run to run."""

    backend: str
    seconds: float
    ideals: int | None = None
    variables: int | None = None
    constraints: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SolveResult:
    """`objective_ms` is core.cost's price of `plan`; `bound_ms` a proven lower bound (None where
    nothing is proven). `explanation` says in words why a problem is infeasible and what would do.

    `plan` is None or has passed `core.check`.
    """

    status: Status
    stats: Stats
    plan: Plan | None = None
    objective_ms: float | None = None
    bound_ms: float | None = None
    limit: Limit | None = None
    explanation: str = ""
    smallest_memory_bytes: int | None = field(default=None)

    def require_plan(self) -> Plan:
        """The plan; raises NoPlanError with the explanation where there is none."""
        if self.plan is None:
            raise NoPlanError(self.explanation or f"no plan: {self.status.value}")
        return self.plan
