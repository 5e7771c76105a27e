"""Performance profiles: how often a backend is within a factor of the fastest.

After E. D. Dolan and J. J. More, "Benchmarking optimization software with performance profiles",
Mathematical Programming 91 (2002).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Final

__all__ = ["SHORTEST_S", "Curve", "Performance", "performance"]

SHORTEST_S: Final = 0.01
"""Seconds below which times count as equal: their ratios would measure the machine's noise."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One backend's profile.

    `shares[i]` is the share of all instances that it proved within `Performance.factors[i]` times
    the seconds of the fastest proof; `proved` the number that it proved at all. The mean ratios to
    the fastest are geometric: over its own proofs, which favours a backend that proves the easy
    instances alone, and over the instances that every backend proved. None where there is none.
    """

    backend: str
    proved: int
    shares: tuple[float, ...]
    mean_ratio: float | None
    mean_ratio_common: float | None


@dataclass(frozen=True, slots=True)
class Performance:
    """Profiles of all backends over the same instances; `common` counts those that all proved.

    The factors are 1, 2, 4, ... up to where no proof is slower. Instances that nobody proved count
    in every share.
    """

    instances: int
    common: int
    factors: tuple[int, ...]
    curves: tuple[Curve, ...]


def performance(
    backends: Sequence[str], proof_seconds: Sequence[Mapping[str, float | None]]
) -> Performance:
    """The profiles from each backend's seconds until proof on each instance (None: no proof)."""
    ratios = [_ratios(times) for times in proof_seconds]
    worst = max((x for found in ratios for x in found.values()), default=1.0)
    factors = [1]
    while factors[-1] < worst:
        factors.append(2 * factors[-1])
    common = [found for found in ratios if all(name in found for name in backends)]
    return Performance(
        instances=len(ratios),
        common=len(common),
        factors=tuple(factors),
        curves=tuple(_curve(name, ratios, common, factors) for name in backends),
    )


def _ratios(times: Mapping[str, float | None]) -> dict[str, float]:
    """How many times as long as the fastest each backend took that proved something."""
    proofs = {name: max(x, SHORTEST_S) for name, x in times.items() if x is not None}
    return {name: x / min(proofs.values()) for name, x in proofs.items()}


def _curve(
    name: str,
    ratios: Sequence[Mapping[str, float]],
    common: Sequence[Mapping[str, float]],
    factors: Sequence[int],
) -> Curve:
    own = [found[name] for found in ratios if name in found]
    shared = [found[name] for found in common]
    return Curve(
        backend=name,
        proved=len(own),
        shares=tuple(sum(x <= f for x in own) / len(ratios) if ratios else 0.0 for f in factors),
        mean_ratio=geometric_mean(own) if own else None,
        mean_ratio_common=geometric_mean(shared) if shared else None,
    )
