"""Simulated against predicted, in words: by how much they differ, why, and what would help."""

from dataclasses import replace

from pipeplan.core.errors import PipeplanError
from pipeplan.core.units import format_bytes, format_ms, plural
from pipeplan.validation.simulation.result import Simulation
from pipeplan.validation.simulation.simulate import enough_in_flight, simulate

__all__ = ["WITHIN", "verdict"]

WITHIN = 0.01
"""Relative difference from the prediction below which the two are called equal."""


def verdict(result: Simulation) -> list[str]:
    """Sentences about the period, each with its figures; runs further simulations to explain."""
    problem, plan = result.pipeline.problem, result.pipeline.plan
    period = result.period_ms
    if period is None:
        held = result.pipeline.endless_limits[0] * plan.stages[0].replicas
        return [
            f"{plural(result.micro_batches, 'micro-batch is', 'micro-batches are')} too few to "
            f"reach a steady state: the pipeline holds {held}. --micro-batches simulates more."
        ]
    if not result.predicted_ms:
        return ["Nothing takes any time in this plan."]
    ratio = period / result.predicted_ms
    about = "" if result.exact else "about "
    lines = [
        f"Steady period {about}{format_ms(period)}, predicted {format_ms(result.predicted_ms)}"
        + (": they agree." if abs(ratio - 1) <= WITHIN else f": {100 * (ratio - 1):+.1f} %.")
    ]
    disturbed = bool(result.options.jitter or result.options.stragglers or result.options.barrier)
    if result.floor_ms > result.predicted_ms * (1 + WITHIN):
        lines.append(
            "gpipe runs all forward passes before any backward pass, so the slowest of each phase "
            f"counts: {format_ms(result.floor_ms)} is the least it can reach."
        )
    if ratio > 1 + WITHIN and not disturbed and period > result.floor_ms * (1 + WITHIN):
        lines.append(_room(result))
    if not problem.synchronous and not disturbed and not problem.overlap_sync:
        lines += _blocking(result, period)
    return lines


def _room(result: Simulation) -> str:
    """Whether more micro-batches in flight would hide the wait, and what memory that takes."""
    problem, plan = result.pipeline.problem, result.pipeline.plan
    better = enough_in_flight(problem, plan, result.options, within=WITHIN)
    if better is None or better.period_ms is None:
        return (
            "More micro-batches in flight do not help: messages and all-reduces that want the same "
            "port at the same time delay each other."
        )
    fullest = max(better.stages, key=lambda share: share.peak_bytes)
    now = max(share.peak_bytes for share in result.stages)
    extra = better.options.extra_in_flight - result.options.extra_in_flight
    more = plural(extra, "more micro-batch")
    return (
        "The schedule's in-flight limit leaves no room to hide transfers and waiting: with "
        f"{more} in flight per GPU the period is "
        f"{format_ms(better.period_ms)}, and the fullest GPU holds "
        f"{format_bytes(fullest.peak_bytes)} instead of {format_bytes(now)}."
    )


def _blocking(result: Simulation, period_ms: float) -> list[str]:
    """What an all-reduce that makes replicas wait for each other would cost."""
    if not any(result.pipeline.sync_steps):
        return []
    problem, plan = result.pipeline.problem, result.pipeline.plan
    try:
        blocking = simulate(problem, plan, replace(result.options, barrier=True))
    except PipeplanError:
        return [
            "A runtime whose all-reduce blocks until all replicas join would stand still: replicas "
            "wait for peers whose micro-batches they hold up."
        ]
    if blocking.period_ms is None or blocking.period_ms <= period_ms * (1 + WITHIN):
        return []
    return [
        "A runtime whose all-reduce blocks until all replicas join would need "
        f"{format_ms(blocking.period_ms)} ({100 * (blocking.period_ms / period_ms - 1):+.0f} %): "
        "replicas are fed one after the other and would wait for the last."
    ]
