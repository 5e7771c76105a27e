"""Why these replica counts: what each stage has to do, and what one GPU more or less would cost."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from pipeplan.core.check import violations
from pipeplan.core.cost import evaluate
from pipeplan.core.errors import PipeplanError
from pipeplan.core.plan import NestedStage, Plan, joint_plan, nested_plan
from pipeplan.core.problem import Problem
from pipeplan.core.units import format_ms

__all__ = ["Alternative", "alternatives", "why"]

_MOST_TRIED: Final = 40


@dataclass(frozen=True, slots=True)
class Alternative:
    """The same cuts with one GPU moved: replicas of every stage, objective, and whether it fits."""

    replicas: tuple[int, ...]
    objective_ms: float
    fits: bool


def why(problem: Problem, plan: Plan) -> list[str]:
    """Sentences that lead from the stages' work to the number of their replicas."""
    lines: list[str] = []
    if plan.nested is not None:
        lines += _levels(problem, plan)
    elif plan.copies > 1:
        inner = "-".join(str(stage.replicas // plan.copies) for stage in plan.stages)
        lines.append(
            f"The plan is {plan.copies} identical copies of a pipeline with {inner} GPUs a stage."
        )
    for s, stage in enumerate(plan.stages):
        whole = problem.graph.compute_ms(stage.layers)
        share = format_ms(whole / stage.replicas)
        many = f"{stage.replicas} GPUs" if stage.replicas > 1 else "1 GPU"
        lines.append(
            f"Stage {s} has {format_ms(whole)} of compute per micro-batch; on {many} that is "
            f"{share} each."
        )
    return lines


def _levels(problem: Problem, plan: Plan) -> list[str]:
    """Replication multiplies over the levels of a nested plan: 7 x 2 = 14 ranks."""
    assert plan.nested is not None
    names = {1: "GPUs", 2: "servers"}
    lines: list[str] = []
    leaves: list[list[int]] = []

    def visit(stages: tuple[NestedStage, ...], level: int, factors: list[int]) -> None:
        what = names.get(level, f"level-{level} groups")
        where = "" if level == len(problem.cluster.levels) else ", inside each of these"
        counts = " and ".join(str(x.replicas) for x in stages)
        how = "one stage" if len(stages) == 1 else f"{len(stages)} stages"
        lines.append(f"Level {level}{where}: {how} on {counts} {what}.")
        for stage in stages:
            if stage.inner:
                visit(stage.inner, level - 1, [*factors, stage.replicas])
            else:
                leaves.append([*factors, stage.replicas])

    visit(plan.nested, len(problem.cluster.levels), [])
    for s, factors in enumerate(leaves):
        if len(factors) > 1:
            product = " x ".join(map(str, factors))
            lines.append(f"Stage {s}: {product} = {plan.stages[s].replicas} ranks.")
    return lines


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
        price = evaluate(problem, tried).objective_ms
        fits = not violations(problem, tried, scope=False)
        found.append(Alternative(replicas, price, fits))
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
