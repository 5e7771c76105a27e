"""Every plan of a small problem, priced by `core.cost`: the oracle that others are tested on.

Written apart from them on purpose: it shares no code with their searches, only the specification
(`core.cost`, `core.check`). It is exponential and refuses anything but toy sizes.
"""

from collections.abc import Iterator
from typing import Final

from pipeplan.core.check import block_sizes, violations
from pipeplan.core.cost import evaluate
from pipeplan.core.errors import PlanError, TooLargeError
from pipeplan.core.memory import stage_memory
from pipeplan.core.plan import NestedStage, Plan, joint_plan, nested_plan
from pipeplan.core.problem import Problem
from pipeplan.core.units import plural
from pipeplan.solver.outcome import Outcome
from pipeplan.solver.result import Stats, Status

__all__ = ["MAX_PLANS", "solve_exhaustive"]

MAX_PLANS: Final = 100_000
"""Stated limit on plans tried."""

_Ideal = frozenset[int]


def solve_exhaustive(problem: Problem, *, limit: int = MAX_PLANS) -> Outcome:
    """Try every plan; raises TooLargeError once there are more than `limit`."""
    best: Plan | None = None
    best_ms = 0.0
    smallest: int | None = None
    tried = 0
    for plan in _plans(problem):
        tried += 1
        if tried > limit:
            raise TooLargeError(
                f"exhaustive search tries every plan, and there are more than {limit}; it is for "
                "toy problems, use --backend dp or cpsat"
            )
        broken = violations(problem, plan)
        if broken:
            if problem.cluster.memory_bytes is not None and _only_memory(problem, plan):
                peak = max(x.peak_bytes for x in stage_memory(problem, plan))
                smallest = peak if smallest is None else min(smallest, peak)
            continue
        price = evaluate(problem, plan).objective_ms
        if best is None or (price, plan.key()) < (best_ms, best.key()):
            best, best_ms = plan, price
    stats = Stats("exhaustive", 0.0, notes=(plural(tried, "plan"),))
    if best is None:
        return Outcome(
            Status.INFEASIBLE,
            stats,
            explanation=f"none of {plural(tried, 'plan')} is valid",
            smallest_memory_bytes=smallest,
        )
    return Outcome(Status.OPTIMAL, stats, plan=best, claimed_ms=best_ms, bound_ms=best_ms)


def _only_memory(problem: Problem, plan: Plan) -> bool:
    """Whether memory is all that the plan breaks."""
    return problem.cost_model != "pipedream" and all(
        "a rank, but a device has" in text for text in violations(problem, plan)
    )


def _plans(problem: Problem) -> Iterator[Plan]:
    cluster = problem.cluster
    if problem.scope == "joint":
        for block in block_sizes(problem):
            for stages in _chains(problem, block):
                yield joint_plan(cluster, tuple(stages), cluster.devices // block)
        return
    everything = frozenset(range(len(problem.graph)))
    for nested in _spans(problem, frozenset(), everything, len(cluster.levels)):
        try:
            yield nested_plan(cluster, nested)
        except PlanError:
            continue


def _ideals_between(problem: Problem, low: _Ideal, high: _Ideal) -> Iterator[_Ideal]:
    """Every ideal properly around `low` and inside `high`, by brute force over subsets."""
    free = sorted(high - low)
    for bits in range(1, 1 << len(free)):
        candidate = low | {v for i, v in enumerate(free) if bits >> i & 1}
        if problem.graph.is_down_closed(candidate):
            yield frozenset(candidate)


def _chains(problem: Problem, devices: int) -> Iterator[list[tuple[tuple[int, ...], int]]]:
    """Every sequence of stages with replicas that fits some of the devices."""
    everything = frozenset(range(len(problem.graph)))

    def grow(before: _Ideal, left: int) -> Iterator[list[tuple[tuple[int, ...], int]]]:
        if before == everything:
            yield []
            return
        for after in _ideals_between(problem, before, everything):
            for replicas in range(1, left + 1):
                for rest in grow(after, left - replicas):
                    yield [(tuple(sorted(after - before)), replicas), *rest]

    yield from grow(frozenset(), devices)


def _spans(
    problem: Problem, low: _Ideal, high: _Ideal, level: int
) -> Iterator[tuple[NestedStage, ...]]:
    """Every pipeline of a range at a level, inner pipelines included."""

    def grow(before: _Ideal, left: int) -> Iterator[tuple[NestedStage, ...]]:
        if before == high:
            yield ()
            return
        for after in _ideals_between(problem, before, high):
            layers = tuple(sorted(after - before))
            inners: list[tuple[NestedStage, ...]] = [()]
            if level > 1:
                inners = list(_spans(problem, before, after, level - 1))
            for replicas in range(1, left + 1):
                for inner in inners:
                    stage = NestedStage(layers, replicas, inner)
                    for rest in grow(after, left - replicas):
                        yield (stage, *rest)

    yield from grow(low, problem.cluster.levels[level - 1].children)
