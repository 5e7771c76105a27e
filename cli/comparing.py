"""A comparison on its way, followed on stderr, and as data."""

from collections.abc import Iterator, Sequence
from typing import Any

from pipeplan.cli.progress import announce
from pipeplan.cli.render.comparison import claim_figures
from pipeplan.cli.search import Search, one_of_many
from pipeplan.core.codec import gap
from pipeplan.solver.options import BackendName
from pipeplan.solver.result import SolveResult
from pipeplan.validation.comparison import Instance, Row, profiles, rows
from pipeplan.validation.crosscheck import Claim

__all__ = ["comparison_to_dict", "followed"]


def followed(
    instances: Sequence[Instance], backends: Sequence[BackendName], search: Search
) -> Iterator[Row]:
    """The rows as they are done, with a line on stderr for every answer.

    Raises KeyboardInterrupt on Ctrl-C.
    """
    total = len(instances) * len(backends)
    told = 0

    def tell(instance: Instance, claim: Claim) -> None:
        nonlocal told
        told += 1
        figures = claim_figures(claim)
        parts = [figures.status]
        if claim.result is not None:
            if claim.result.objective_ms is not None:
                parts.append(f"{figures.objective_ms} ms")
            parts.append(f"in {figures.seconds} s")
        where = f"{instance.profile} on {instance.cluster}"
        announce(f"{told} of {total}: {where}: {claim.backend} {' '.join(parts)}")

    with one_of_many(search) as solved:
        yield from rows(instances, backends, solved, tell)


def comparison_to_dict(
    backends: Sequence[BackendName], found: Sequence[Row], asked: int
) -> dict[str, Any]:
    """The document of `compare --json`; `asked` counts instances, finished or not."""
    performance = profiles(backends, found)
    return {
        "agree": all(row.verdict.agree for row in found),
        "asked": asked,
        "instances": [_row(row) for row in found],
        "performance": {
            "instances": performance.instances,
            "proved_by_all": performance.common,
            "factors": list(performance.factors),
            "backends": [
                {
                    "backend": x.backend,
                    "proved": x.proved,
                    "shares": list(x.shares),
                    "mean_ratio": x.mean_ratio,
                    "mean_ratio_common": x.mean_ratio_common,
                }
                for x in performance.curves
            ],
        },
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "profile": row.instance.profile,
        "cluster": row.instance.cluster,
        "disagreements": list(row.verdict.disagreements),
        "backends": [_claim(claim) for claim in row.claims],
    }


def _claim(claim: Claim) -> dict[str, Any]:
    found: SolveResult | None = claim.result
    objective = None if found is None else found.objective_ms
    return {
        "backend": claim.backend,
        "error": claim.error or None,
        "status": None if found is None else found.status.value,
        "limit": None if found is None or found.limit is None else found.limit.value,
        "objective_ms": objective,
        "bound_ms": None if found is None else found.bound_ms,
        "gap": None if found is None or objective is None else gap(objective, found.bound_ms),
        "seconds": None if found is None else found.stats.seconds,
        "variables": None if found is None else found.stats.variables,
        "constraints": None if found is None else found.stats.constraints,
    }
