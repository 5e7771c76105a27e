"""Plans as versioned JSON, `pipeplan.plan/1`: the decision, its price, and every input behind it.

A plan file holds the whole question (profile, cluster, options), so that it can be shown, priced,
simulated and generated from alone. Reading one prices it again: a file whose figures are not those
of its own plan is refused.
"""

import math
from dataclasses import dataclass
from typing import Any, Final

from pipeplan.core.bottleneck import bottleneck
from pipeplan.core.check import violations
from pipeplan.core.cluster import MAX_LEVELS
from pipeplan.core.cost import Evaluation, baselines, evaluate
from pipeplan.core.cuts import first_read_inputs
from pipeplan.core.errors import PlanError, ProfileError, shown
from pipeplan.core.graph import LayerGraph
from pipeplan.core.jsontext import not_json
from pipeplan.core.plan import NestedStage, Plan, Stage
from pipeplan.core.problem import Problem
from pipeplan.core.problem_codec import (
    cluster_from_dict,
    cluster_to_dict,
    layer_indices,
    problem_from_dict,
    problem_to_dict,
)
from pipeplan.core.profile_codec import graph_from_dict, graph_to_dict
from pipeplan.core.reader import Reader
from pipeplan.core.routing import routes

__all__ = [
    "PLAN_SCHEMA",
    "PlanFile",
    "Provenance",
    "cluster_from_dict",
    "cluster_to_dict",
    "gap",
    "plan_from_dict",
    "plan_to_dict",
    "problem_to_dict",
]

PLAN_SCHEMA: Final = "pipeplan.plan/1"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Who found the plan and what is proven of it; a plan that a person brought has no backend.

    `status` is OPTIMAL, FEASIBLE or GIVEN; `bound_ms` is a proven lower bound of the objective over
    all plans of the scope.
    """

    status: str
    backend: str | None = None
    version: str = ""
    bound_ms: float | None = None
    limit: str | None = None
    seed: int = 0
    workers: int = 1


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan with its question, its price and its origin."""

    problem: Problem
    plan: Plan
    evaluation: Evaluation
    provenance: Provenance


def gap(objective_ms: float, bound_ms: float | None) -> float | None:
    """Relative distance of an objective from its bound; None without a bound."""
    if bound_ms is None:
        return None
    return 0.0 if objective_ms <= bound_ms else (objective_ms - bound_ms) / objective_ms


def plan_to_dict(file: PlanFile) -> dict[str, Any]:
    """A plan file as JSON-ready values; same file, same bytes."""
    problem, plan, price, origin = file.problem, file.plan, file.evaluation, file.provenance
    graph = problem.graph
    limit = bottleneck(problem, plan, price)
    base = baselines(problem)
    fresh = first_read_inputs(graph, [stage.layers for stage in plan.stages])
    stages = []
    for stage, inputs, times, memory in zip(
        plan.stages, fresh, price.topology.stages, price.memory, strict=True
    ):
        stages.append(
            {
                "layers": [graph.layers[v].id for v in stage.layers],
                "inputs": [x.id for x in inputs],
                "replicas": stage.replicas,
                "ranks": list(stage.ranks),
                "compute_ms": times.compute_ms,
                "sync_ms": times.sync_ms,
                "transfer_ms": times.transfer_ms,
                "peak_bytes": memory.peak_bytes,
                "in_flight": memory.in_flight,
            }
        )
    return {
        "schema": PLAN_SCHEMA,
        "version": origin.version,
        "backend": origin.backend,
        "seed": origin.seed,
        "workers": origin.workers,
        "status": origin.status,
        "limit": origin.limit,
        "objective_ms": price.objective_ms,
        "bound_ms": origin.bound_ms,
        "gap": gap(price.objective_ms, origin.bound_ms),
        "period_ms": price.period_ms,
        "topology_period_ms": price.topology.period_ms,
        "batch_ms": price.topology.batch_ms,
        "baselines": {
            "one_device_ms": base.one_device_ms,
            "data_parallel_ms": base.data_parallel_ms,
        },
        "bottleneck": {
            "kind": limit.kind,
            "stage": limit.stage,
            "level": limit.level,
            "child": limit.child,
            "busy_ms": limit.busy_ms,
            "text": limit.text,
        },
        "stages": stages,
        "rank_map": {str(s): list(stage.ranks) for s, stage in enumerate(plan.stages)},
        "routing": [
            {
                "from_stage": s,
                "to_stage": s + 1,
                "pairs": [
                    [x.source, x.target, f"{x.share.numerator}/{x.share.denominator}"]
                    for x in routes(problem.cluster, a.ranks, b.ranks)
                ],
            }
            for s, (a, b) in enumerate(zip(plan.stages, plan.stages[1:], strict=False))
        ],
        "copies": plan.copies,
        "nested": None if plan.nested is None else [_nested_to_dict(graph, x) for x in plan.nested],
        "problem": problem_to_dict(problem),
        "profile_digest": graph.digest,
        "profile": graph_to_dict(graph),
    }


def _nested_to_dict(graph: LayerGraph, stage: NestedStage) -> dict[str, Any]:
    if stage.inner:
        return {
            "replicas": stage.replicas,
            "inner": [_nested_to_dict(graph, x) for x in stage.inner],
        }
    return {"replicas": stage.replicas, "layers": [graph.layers[v].id for v in stage.layers]}


def plan_from_dict(data: Any) -> PlanFile:
    """Read, validate and price a plan file.

    Raises PlanError where anything is missing, malformed, unknown or invalid for the problem, and
    where any figure differs from what pricing the plan again gives.
    """
    complaint = not_json(data)
    if complaint is not None:
        raise PlanError(f"plan: {complaint}")
    top = Reader(data, "plan", PlanError)
    if top.data.get("schema") != PLAN_SCHEMA:
        if "schema" not in top.data:
            top.fail(f"schema is missing; it should be {PLAN_SCHEMA!r}")
        top.fail(f"schema is not {PLAN_SCHEMA!r}", top.data["schema"])
    try:
        graph, _ = graph_from_dict(top.data.get("profile"))
    except ProfileError as error:
        raise PlanError(f"plan: {error}") from None
    if top.data.get("profile_digest") != graph.digest:
        top.fail("the profile inside is not the one that profile_digest names")
    problem = problem_from_dict(top.data.get("problem"), graph)
    stages = tuple(
        Stage(_sorted_layers(graph, x), tuple(sorted(x.integers("ranks"))))
        for x in top.objects("stages")
    )
    nested = None
    if top.data.get("nested") is not None:
        nested = tuple(_nested(graph, x, 1) for x in top.objects("nested"))
    plan = Plan(stages, top.integer("copies"), nested)
    origin = _provenance(top)
    broken = violations(problem, plan, scope=origin.status != "GIVEN")
    if broken:
        raise PlanError("; ".join(broken[:5]))
    file = PlanFile(problem, plan, evaluate(problem, plan), origin)
    _check_bound(file)
    difference = _difference(data, plan_to_dict(file), "plan")
    if difference is not None:
        raise PlanError(difference)
    return file


def _provenance(top: Reader) -> Provenance:
    status = top.text("status")
    if status not in ("OPTIMAL", "FEASIBLE", "GIVEN"):
        top.fail("status is not OPTIMAL, FEASIBLE or GIVEN", status)
    return Provenance(
        status=status,
        backend=top.optional_text("backend"),
        version=top.text("version"),
        bound_ms=top.optional_number("bound_ms"),
        limit=top.optional_text("limit"),
        seed=top.integer("seed"),
        workers=top.integer("workers"),
    )


def _check_bound(file: PlanFile) -> None:
    """A bound holds for all plans of the scope, so for this one, unless a person brought it."""
    bound, objective = file.provenance.bound_ms, file.evaluation.objective_ms
    if bound is None:
        if file.provenance.status == "OPTIMAL":
            raise PlanError("plan: status is OPTIMAL, but no bound says so")
        return
    if bound < 0 or (file.provenance.status != "GIVEN" and bound > objective * (1 + 1e-9) + 1e-12):
        raise PlanError(
            f"plan: bound_ms is {bound!r}; it must be from 0 to the plan's {objective!r} ms"
        )


def _difference(given: Any, right: Any, where: str) -> str | None:
    """Where a file departs from what its own plan implies; None where it does not.

    Figures may differ by rounding. What another version may word differently is left alone, and the
    profile is vouched for by its digest.
    """
    if isinstance(right, dict) and isinstance(given, dict):
        for key in (*right, *given):
            place = f"{where}: {key if key in right else shown(key)}"
            if key not in right:
                return f"{place} is not a field of a plan"
            if key not in given:
                return f"{place} is missing"
            if place in ("plan: profile", "plan: bottleneck: text"):
                continue
            found = _difference(given[key], right[key], place)
            if found is not None:
                return found
        return None
    if isinstance(right, list) and isinstance(given, list) and len(right) == len(given):
        for i, (x, y) in enumerate(zip(given, right, strict=True)):
            found = _difference(x, y, f"{where}[{i}]")
            if found is not None:
                return found
        return None
    if isinstance(right, float) and isinstance(given, int | float) and not isinstance(given, bool):
        same = _close(given, right)
    else:
        same = type(given) is type(right) and given == right
    return None if same else f"{where} is {shown(given)}, but the plan makes it {shown(right)}"


def _close(given: float, right: float) -> bool:
    try:
        return math.isclose(given, right, rel_tol=1e-9, abs_tol=1e-12)
    except OverflowError:  # a whole number beyond all floats
        return False


def _sorted_layers(graph: LayerGraph, entry: Reader) -> tuple[int, ...]:
    return tuple(sorted(layer_indices(graph, entry.texts("layers"), entry)))


def _nested(graph: LayerGraph, entry: Reader, depth: int) -> NestedStage:
    if depth > MAX_LEVELS:
        entry.fail(f"stages are nested more than {MAX_LEVELS} deep")
    replicas = entry.integer("replicas")
    if "inner" in entry.data:
        inner = tuple(_nested(graph, x, depth + 1) for x in entry.objects("inner"))
        return NestedStage(tuple(sorted(v for x in inner for v in x.layers)), replicas, inner)
    return NestedStage(_sorted_layers(graph, entry), replicas)
