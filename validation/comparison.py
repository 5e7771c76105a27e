"""Several backends over many instances, a row an instance. Who solves is handed in."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pipeplan.core.errors import BackendBugError, BackendUnavailableError, ProblemError
from pipeplan.core.problem import Problem
from pipeplan.solver.options import BackendName
from pipeplan.solver.result import SolveResult, Status
from pipeplan.validation.crosscheck import Claim, Verdict, crosscheck
from pipeplan.validation.performance import Performance, performance

__all__ = ["Find", "Instance", "Row", "ask", "profiles", "rows"]

Find = Callable[[Problem, BackendName], SolveResult]
"""Whoever solves a problem with a backend."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A question with the names that tables give its profile and its cluster."""

    profile: str
    cluster: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class Row:
    """What every backend said of one instance, in the order asked, and whether they agree."""

    instance: Instance
    claims: tuple[Claim, ...]
    verdict: Verdict

    @property
    def compared(self) -> bool:
        """Whether two backends or more found or proved something."""
        return self.verdict.answered > 1

    def proof_seconds(self) -> dict[str, float | None]:
        """Seconds until each backend's proof (an optimum, or that there is no plan); else None."""
        return {claim.backend: _proof_seconds(claim.result) for claim in self.claims}


def _proof_seconds(result: SolveResult | None) -> float | None:
    if result is None or result.status not in (Status.OPTIMAL, Status.INFEASIBLE):
        return None
    return result.stats.seconds


def ask(problem: Problem, backend: BackendName, find: Find) -> Claim:
    """One backend's answer.

    That it cannot run, does not take the question or reached its size is an answer too; so is that
    it claimed what does not hold, which no verdict will call agreement.
    """
    try:
        result = find(problem, backend)
    except (BackendUnavailableError, ProblemError) as refusal:
        return Claim(backend, None, str(refusal))
    except BackendBugError as fault:
        return Claim(backend, None, str(fault), faulty=True)
    answered = result.stats.backend
    if backend != "auto" and not answered.startswith(backend):
        # Another's answer under this name would agree with that other's row and prove nothing.
        return Claim(backend, None, f"the answer came from {answered}, not from {backend}")
    return Claim(backend, result)


def rows(
    instances: Iterable[Instance],
    backends: Sequence[BackendName],
    find: Find,
    told: Callable[[Instance, Claim], None] | None = None,
) -> Iterator[Row]:
    """Ask every backend about every instance; yields a row as soon as it is whole.

    `told` hears of each claim as it comes. What `find` raises beyond refusals and faults of a
    backend, KeyboardInterrupt say, ends the rows.
    """
    for instance in instances:
        claims: list[Claim] = []
        for backend in backends:
            claims.append(ask(instance.problem, backend, find))
            if told is not None:
                told(instance, claims[-1])
        yield Row(instance, tuple(claims), crosscheck(claims))


def profiles(backends: Sequence[str], found: Iterable[Row]) -> Performance:
    """Performance profiles over the rows that agree: elsewhere one of the proofs is none."""
    return performance(backends, [row.proof_seconds() for row in found if row.verdict.agree])
