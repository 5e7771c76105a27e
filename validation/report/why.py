"""Why these replica counts: what each stage has to do, and what one GPU more or less would cost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from pipeplan.core.bottleneck import bottleneck, level_limits
from pipeplan.core.check import violations
from pipeplan.core.cost import baseline_fits, evaluate
from pipeplan.core.errors import PipeplanError
from pipeplan.core.levers import on_topology
from pipeplan.core.plan import NestedStage, Plan, Stage, innermost, joint_plan, nested_plan
from pipeplan.core.problem import Problem
from pipeplan.core.units import format_bytes, format_ms, plural

__all__ = ["Alternative", "alternatives", "why"]

_MOST_TRIED: Final = 40
_MOST_NAMED: Final = 8
"""Stages that get a sentence each; of more, the extremes do."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """The same cuts with one GPU moved: replicas of every stage, objective, what limits it, and
    whether it fits."""

    replicas: tuple[int, ...]
    objective_ms: float
    limit: str
    fits: bool


def why(problem: Problem, plan: Plan, moved: Sequence[Alternative]) -> list[str]:
    """Sentences that lead from the stages' work to the number of their replicas.

    `moved` are the plan's alternatives, best first.
    """
    lines = _work(problem, plan)
    if plan.nested is not None:
        lines += _levels(problem, plan)
    elif plan.copies > 1:
        inner = "-".join(str(stage.replicas // plan.copies) for stage in plan.stages)
        lines.append(
            f"The plan is {plan.copies} identical copies of a pipeline with {inner} GPUs a stage."
        )
    lines += [_next_best(problem, plan, x) for x in moved if x.fits][:1]
    if len(plan.stages) > 1:
        lines.append(_data_parallel(problem))
    return lines


def _work(problem: Problem, plan: Plan) -> list[str]:
    """What each stage computes and holds, as a share of the whole and as what a GPU gets of it."""
    graph = problem.graph
    stages = list(range(len(plan.stages)))
    times = evaluate(on_topology(problem), Plan(plan.stages)).topology.stages
    lines = []
    if len(stages) > _MOST_NAMED:
        busy = [x.compute_ms for x in times]
        most, least = busy.index(max(busy)), busy.index(min(busy))
        lines.append(
            f"Of {len(stages)} stages, stage {most} has the most compute for each of its GPUs and "
            f"stage {least} the least."
        )
        stages = sorted({most, least})
    for s in stages:
        stage = plan.stages[s]
        compute, held = graph.compute_ms(stage.layers), graph.parameter_bytes(stage.layers)
        each = f"On {plural(stage.replicas, 'GPU')} that is {format_ms(times[s].compute_ms)}"
        each += " each" if stage.replicas > 1 else ""
        if times[s].sync_ms:
            each += f", and {format_ms(times[s].sync_ms)} of all-reduce"
        lines.append(
            f"Stage {s} has {_share(compute, graph.total_compute_ms)} of the compute, "
            f"{format_ms(compute)} per micro-batch, and "
            f"{_share(held, graph.total_parameter_bytes)} of the parameters, "
            f"{format_bytes(held)}. {each}."
        )
    return lines


def _next_best(problem: Problem, plan: Plan, other: Alternative) -> str:
    """What the most harmless move of a GPU costs."""
    now, then = evaluate(problem, plan).objective_ms, other.objective_ms
    many = len(other.replicas) > _MOST_NAMED
    named = "" if many else f", {'-'.join(map(str, other.replicas))},"
    return (
        f"With the same cuts and one GPU moved the best that fits{named} takes {format_ms(then)} "
        f"{_per(problem)}, this plan {format_ms(now)}."
    )


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"


def _data_parallel(problem: Problem) -> str:
    """Why not simply all layers everywhere."""
    asked = on_topology(problem)
    devices = problem.cluster.devices
    spread = Plan((Stage(tuple(range(len(problem.graph))), tuple(range(devices))),))
    price = evaluate(asked, spread)
    return (
        f"With all layers on all {devices} GPUs, data parallelism, "
        f"{'it is' if baseline_fits(asked, devices) else 'which does not fit, it would be'} "
        f"{format_ms(price.objective_ms)} by topology: "
        f"{bottleneck(asked, spread, price).text}."
    )


def _per(problem: Problem) -> str:
    return "a batch" if problem.synchronous else "a micro-batch"


def _levels(problem: Problem, plan: Plan) -> list[str]:
    """Replication multiplies over the levels of a nested plan: 7 x 2 = 14 ranks."""
    assert plan.nested is not None
    lines: list[str] = []
    leaves: list[list[int]] = []

    def visit(stages: tuple[NestedStage, ...], level: int, factors: list[int], inside: str) -> None:
        what = {1: "GPU", 2: "server"}.get(level, f"level-{level} group")
        named = list(_named(stages, len(leaves)))
        parts = [f"{n} on {plural(x.replicas, what)}" for n, x in zip(named, stages, strict=True)]
        lines.append(f"Level {level}{inside}: {', '.join(parts)}.")
        for name, stage in zip(named, stages, strict=True):
            own = [*factors, stage.replicas]
            if stage.inner:
                visit(stage.inner, level - 1, own, f", inside each {what} of {name}")
            else:
                leaves.append(own)

    visit(plan.nested, len(problem.cluster.levels), [], "")
    for s, factors in enumerate(leaves):
        if len(factors) > 1:
            product = " x ".join(map(str, factors))
            lines.append(f"Stage {s}: {product} = {plural(plan.stages[s].replicas, 'rank')}.")
    return lines + _bound_together(plan, [prod(factors[:-1]) for factors in leaves])


def _named(stages: tuple[NestedStage, ...], first: int) -> Iterator[str]:
    """Stages of one level by the numbers of the plan's stages inside them."""
    for stage in stages:
        last = first + sum(1 for _ in innermost((stage,))) - 1
        yield f"stage {first}" if first == last else f"stages {first}-{last}"
        first = last + 1


def _bound_together(plan: Plan, copies: list[int]) -> list[str]:
    """That counts of a nested plan come in multiples, with the nearest that it rules out."""
    counts = [stage.replicas for stage in plan.stages]
    most = max(copies)
    bound = [s for s, n in enumerate(copies) if n == most]
    if most == 1 or len(bound) < 2:
        return []
    give = min(bound, key=lambda s: (counts[s], s))
    take = max((s for s in bound if s != give), key=lambda s: (counts[s], -s))
    other = "-".join(str(n + (s == take) - (s == give)) for s, n in enumerate(counts))
    return [
        f"The {most} copies are identical, so these counts change by {most} at a time: "
        f"{other}, for one, is a plan of scope joint alone."
    ]


def alternatives(problem: Problem, plan: Plan) -> tuple[Alternative, ...]:
    """Every plan with the same cuts and one GPU moved from a stage to another, best first.

    Priced under the plan's own cost model. Of many stages, only neighbours are tried.
    """
    seen: set[tuple[int, ...]] = {tuple(x.replicas for x in plan.stages)}
    found: list[Alternative] = []
    for tried in _moved(problem, plan):
        replicas = tuple(x.replicas for x in tried.stages)
        if replicas in seen:
            continue
        seen.add(replicas)
        price = evaluate(problem, tried)
        by_level = level_limits(problem, tried)
        limit = (
            " ".join(by_level)
            if by_level
            else f"Limited by {bottleneck(problem, tried, price).text}."
        )
        fits = not violations(problem, tried, scope=False)
        found.append(Alternative(replicas, price.objective_ms, limit, fits))
        if len(found) == _MOST_TRIED:
            break
    return tuple(sorted(found, key=lambda x: (x.objective_ms, x.replicas)))


def _moved(problem: Problem, plan: Plan) -> Iterator[Plan]:
    if plan.nested is not None:
        for nested in _moved_nested(plan.nested):
            yield nested_plan(problem.cluster, nested)
        return
    counts = [stage.replicas // plan.copies for stage in plan.stages]
    for give, take in _pairs(len(counts)):
        if counts[give] > 1:
            now = [n - (s == give) + (s == take) for s, n in enumerate(counts)]
            layers = (stage.layers for stage in plan.stages)
            try:
                yield joint_plan(problem.cluster, tuple(zip(layers, now, strict=True)), plan.copies)
            except PipeplanError:
                continue  # a plan that a person brought may have any ranks


def _moved_nested(stages: tuple[NestedStage, ...]) -> Iterator[tuple[NestedStage, ...]]:
    for give, take in _pairs(len(stages)):
        if stages[give].replicas > 1:
            yield tuple(
                replace(x, replicas=x.replicas - (s == give) + (s == take))
                for s, x in enumerate(stages)
            )
    for s, stage in enumerate(stages):
        for inner in _moved_nested(stage.inner):
            yield (*stages[:s], replace(stage, inner=inner), *stages[s + 1 :])


def _pairs(count: int) -> Iterator[tuple[int, int]]:
    near = count > 6
    for give in range(count):
        for take in range(count):
            if give != take and (not near or abs(give - take) == 1):
                yield give, take
