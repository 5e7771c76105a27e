"""What a backend hands over, before anyone has believed it, and how it reports on the way."""

from collections.abc import Callable
from dataclasses import dataclass

from pipeplan.core.plan import Plan
from pipeplan.solver.result import Limit, Stats, Status

__all__ = ["Outcome", "Progress", "ProgressEvent"]


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """A search's state: best objective and bound so far in ms, None where there is none yet.

    `plan` comes with the event that tells of it: a valid plan that costs `incumbent_ms` by
    `core.cost`, whose bound is then proven for every plan of the problem.
    """

    incumbent_ms: float | None
    bound_ms: float | None
    text: str = ""
    plan: Plan | None = None


Progress = Callable[[ProgressEvent], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A backend's claim.

    `claimed_ms` is the plan's objective as the backend computed it by its own arithmetic, and
    `tolerance` the relative error that its quantisation can cause (1e-9 for floating point alone).
    `bound_ms` is a lower bound claimed for all plans.
    """

    status: Status
    stats: Stats
    plan: Plan | None = None
    claimed_ms: float | None = None
    bound_ms: float | None = None
    tolerance: float = 1e-9
    limit: Limit | None = None
    explanation: str = ""
    smallest_memory_bytes: int | None = None
