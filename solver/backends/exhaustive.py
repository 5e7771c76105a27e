"""Every plan of a small problem, priced by `core.cost`: the oracle that others are tested on.

Written apart from them on purpose: it shares no code with their searches, only the specification
(`core.cost`, `core.check`). It is exponential and refuses anything but toy sizes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pipeplan.core.check import block_sizes, violations
from pipeplan.core.cost import evaluate
from pipeplan.core.errors import PlanError, TooLargeError
from pipeplan.core.memory import stage_memory
from pipeplan.core.plan import NestedStage, Plan, joint_plan, nested_plan
from pipeplan.core.problem import Problem
from pipeplan.core.units import plural
from pipeplan.solver.clock import Clock, OutOfTimeError
from pipeplan.solver.options import SolveOptions
from pipeplan.solver.outcome import Outcome, Progress, ProgressEvent
from pipeplan.solver.result import Limit, Stats, Status

__all__ = ["MAX_PLANS", "solve_exhaustive"]

MAX_PLANS: Final = 100_000
"""Stated limit on plans tried."""

_Ideal = frozenset[int]


@dataclass
class _Tried:
    """What trying plan after plan has come to; `smallest` bytes of memory that would do."""

    plans: int = 0
    best: tuple[float, Plan] | None = None
    smallest: int | None = None


def solve_exhaustive(
    problem: Problem,
    options: SolveOptions | None = None,
    progress: Progress | None = None,
    *,
    limit: int = MAX_PLANS,
) -> Outcome:
    """Try every plan; raises TooLargeError once there are more than `limit`.

    At the time limit, and on Ctrl-C, the best of those tried so far; nothing is proven then.
    """
    clock = Clock(None if options is None else options.time_limit_s)
    tried = _Tried()
    stopped: Limit | None = None
    try:
        _try_all(problem, tried, clock, progress, limit)
    except OutOfTimeError:
        stopped = Limit.TIME
    except KeyboardInterrupt:
        stopped = Limit.INTERRUPT
    stats = Stats("exhaustive", clock.seconds, notes=(plural(tried.plans, "plan"),))
    if tried.best is None:
        if stopped is not None:
            return Outcome(Status.NO_SOLUTION, stats, limit=stopped)
        return Outcome(
            Status.INFEASIBLE,
            stats,
            explanation=f"none of {plural(tried.plans, 'plan')} is valid",
            smallest_memory_bytes=tried.smallest,
        )
    price, plan = tried.best
    return Outcome(
        Status.OPTIMAL if stopped is None else Status.FEASIBLE,
        stats,
        plan=plan,
        claimed_ms=price,
        bound_ms=price if stopped is None else None,
        limit=stopped,
    )


def _try_all(
    problem: Problem, tried: _Tried, clock: Clock, progress: Progress | None, limit: int
) -> None:
    for plan in _plans(problem, clock):
        tried.plans += 1
        if tried.plans > limit:
            raise TooLargeError(
                f"exhaustive search tries every plan, and there are more than {limit}; it is for "
                "toy problems, use --backend dp or cpsat"
            )
        broken = violations(problem, plan)
        if broken:
            if problem.cluster.memory_bytes is not None and _only_memory(problem, plan):
                peak = max(x.peak_bytes for x in stage_memory(problem, plan))
                tried.smallest = peak if tried.smallest is None else min(tried.smallest, peak)
            continue
        price = evaluate(problem, plan).objective_ms
        best = tried.best
        if best is None or (price, plan.key()) < (best[0], best[1].key()):
            tried.best = price, plan
            if progress is not None and (best is None or price < best[0]):
                progress(ProgressEvent(price, None, plan=plan))


def _only_memory(problem: Problem, plan: Plan) -> bool:
    """Whether memory is all that the plan breaks."""
    return problem.cost_model != "pipedream" and all(
        "a rank, but a device has" in text for text in violations(problem, plan)
    )


def _plans(problem: Problem, clock: Clock) -> Iterator[Plan]:
    cluster = problem.cluster
    if problem.scope == "joint":
        for block in block_sizes(problem):
            for stages in _chains(problem, block, clock):
                yield joint_plan(cluster, tuple(stages), cluster.devices // block)
        return
    everything = frozenset(range(len(problem.graph)))
    for nested in _spans(problem, frozenset(), everything, len(cluster.levels), clock):
        try:
            yield nested_plan(cluster, nested)
        except PlanError:
            continue


def _ideals_between(problem: Problem, low: _Ideal, high: _Ideal, clock: Clock) -> Iterator[_Ideal]:
    """Every ideal properly around `low` and inside `high`, by brute force over subsets."""
    free = sorted(high - low)
    for bits in range(1, 1 << len(free)):
        clock.check()
        candidate = low | {v for i, v in enumerate(free) if bits >> i & 1}
        if problem.graph.is_down_closed(candidate):
            yield frozenset(candidate)


def _chains(
    problem: Problem, devices: int, clock: Clock
) -> Iterator[list[tuple[tuple[int, ...], int]]]:
    """Every sequence of stages with replicas that fits some of the devices."""
    everything = frozenset(range(len(problem.graph)))

    def grow(before: _Ideal, left: int) -> Iterator[list[tuple[tuple[int, ...], int]]]:
        if before == everything:
            yield []
            return
        for after in _ideals_between(problem, before, everything, clock):
            for replicas in range(1, left + 1):
                for rest in grow(after, left - replicas):
                    yield [(tuple(sorted(after - before)), replicas), *rest]

    yield from grow(frozenset(), devices)


def _spans(
    problem: Problem, low: _Ideal, high: _Ideal, level: int, clock: Clock
) -> Iterator[tuple[NestedStage, ...]]:
    """Every pipeline of a range at a level, inner pipelines included."""

    def grow(before: _Ideal, left: int) -> Iterator[tuple[NestedStage, ...]]:
        if before == high:
            yield ()
            return
        for after in _ideals_between(problem, before, high, clock):
            layers = tuple(sorted(after - before))
            inners: list[tuple[NestedStage, ...]] = [()]
            if level > 1:
                inners = list(_spans(problem, before, after, level - 1, clock))
            for replicas in range(1, left + 1):
                for inner in inners:
                    stage = NestedStage(layers, replicas, inner)
                    for rest in grow(after, left - replicas):
                        yield (stage, *rest)

    yield from grow(low, problem.cluster.levels[level - 1].children)
