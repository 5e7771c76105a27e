"""Plans as versioned JSON, `pipeplan.plan/1`: the decision, its price, and every input behind it.

A plan file holds the whole question (profile, cluster, options), so that it can be shown, priced,
simulated and generated from alone. Reading one prices it again: a file whose figures are not those
of its own plan is refused.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipeplan.core.bottleneck import bottleneck
from pipeplan.core.check import violations
from pipeplan.core.cluster import Cluster, Level
from pipeplan.core.cost import Evaluation, baselines, evaluate
from pipeplan.core.errors import PipeplanError, PlanError
from pipeplan.core.graph import LayerGraph
from pipeplan.core.plan import NestedStage, Plan, Stage
from pipeplan.core.problem import Constraints, Problem
from pipeplan.core.profile_codec import graph_from_dict, graph_to_dict
from pipeplan.core.routing import routes

__all__ = [
    "PLAN_SCHEMA",
    "PlanFile",
    "Provenance",
    "cluster_from_dict",
    "cluster_to_dict",
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


def cluster_to_dict(cluster: Cluster) -> dict[str, Any]:
    """A cluster as JSON-ready values."""
    return {
        "levels": [
            {
                "children": x.children,
                "bandwidth_bytes_per_s": x.bandwidth_bytes_per_s,
                "latency_ms": x.latency_ms,
                **({"name": x.name} if x.name else {}),
            }
            for x in cluster.levels
        ],
        "memory_bytes": cluster.memory_bytes,
        "duplex": cluster.duplex,
    }


def problem_to_dict(problem: Problem) -> dict[str, Any]:
    """The question without its graph, as JSON-ready values."""
    asked = problem.constraints
    ids = [layer.id for layer in problem.graph.layers]
    return {
        "scope": problem.scope,
        "cost_model": problem.cost_model,
        "schedule": problem.schedule,
        "micro_batches": problem.micro_batches,
        "recompute": problem.recompute,
        "overlap_sync": problem.overlap_sync,
        "weight_copies": problem.weight_copies,
        "activation_compression_ratio": problem.activation_compression_ratio,
        "use_fewer_machines": problem.use_fewer_machines,
        "constraints": {
            "straight": asked.straight,
            "max_stages": asked.max_stages,
            "forced_cuts": [[ids[v] for v in sorted(cut)] for cut in asked.forced_cuts],
            "forbidden_cuts": [[ids[v] for v in sorted(cut)] for cut in asked.forbidden_cuts],
            "pinned": [[ids[v], s] for v, s in asked.pinned],
            "together": [[ids[v] for v in group] for group in asked.together],
        },
        "cluster": cluster_to_dict(problem.cluster),
    }


def plan_to_dict(file: PlanFile) -> dict[str, Any]:
    """A plan file as JSON-ready values; same file, same bytes."""
    problem, plan, price, origin = file.problem, file.plan, file.evaluation, file.provenance
    graph = problem.graph
    limit = bottleneck(problem, plan, price)
    base = baselines(problem)
    seen: set[str] = set()
    stages = []
    for stage, times, memory in zip(plan.stages, price.topology.stages, price.memory, strict=True):
        ids = [graph.layers[v].id for v in stage.layers]
        # A network input belongs to the first stage that reads it.
        fresh = [
            x.id for x in graph.inputs if x.id not in seen and not set(ids).isdisjoint(x.consumers)
        ]
        seen.update(fresh)
        stages.append(
            {
                "layers": ids,
                "inputs": fresh,
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

    Raises PlanError (or ProfileError, ClusterError, ProblemError of its parts) where anything is
    missing, malformed, invalid for the problem, or priced differently from what the file says.
    """
    top = _Reader(data, "the plan")
    if top.data.get("schema") != PLAN_SCHEMA:
        raise PlanError(f"schema is {top.data.get('schema')!r}; this version reads {PLAN_SCHEMA!r}")
    graph, _ = graph_from_dict(top.data.get("profile"))
    if top.data.get("profile_digest") != graph.digest:
        raise PlanError("the profile inside the plan is not the one that its digest names")
    problem = _problem(_Reader(top.data.get("problem"), "problem"), graph)
    stages = tuple(
        Stage(_indices(graph, x.texts("layers"), x.where), tuple(sorted(x.integers("ranks"))))
        for x in top.objects("stages")
    )
    raw = top.data.get("nested")
    nested = None
    if raw is not None:
        nested = tuple(_nested(graph, x, 1) for x in top.objects("nested"))
    plan = Plan(stages, top.integer("copies"), nested)
    given = top.data.get("status") == "GIVEN"
    broken = violations(problem, plan, scope=not given)
    if broken:
        raise PlanError("; ".join(broken[:5]))
    price = evaluate(problem, plan)
    claimed = top.number("objective_ms")
    if not math.isclose(claimed, price.objective_ms, rel_tol=1e-9, abs_tol=1e-12):
        raise PlanError(
            f"the plan says it costs {claimed!r} ms, but it costs {price.objective_ms!r} ms"
        )
    bound = top.optional_number("bound_ms")
    origin = Provenance(
        status=top.text("status"),
        backend=top.optional_text("backend"),
        version=top.text("version"),
        bound_ms=bound,
        limit=top.optional_text("limit"),
        seed=top.integer("seed"),
        workers=top.integer("workers"),
    )
    if origin.status not in ("OPTIMAL", "FEASIBLE", "GIVEN"):
        raise PlanError(f"status is {origin.status!r}; a plan is OPTIMAL, FEASIBLE or GIVEN")
    return PlanFile(problem, plan, price, origin)


class _Reader:
    """Typed access to one JSON object; every complaint names the place."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, dict):
            raise PlanError(f"{where} is not an object", text=repr(data))
        self.data: Mapping[str, Any] = data
        self.where = where

    def _get(self, key: str, kinds: type | tuple[type, ...], what: str) -> Any:
        value = self.data.get(key)
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            raise PlanError(f"{self.where}: {key} is not {what}", text=repr(value))
        return value

    def text(self, key: str) -> str:
        return str(self._get(key, str, "text"))

    def optional_text(self, key: str) -> str | None:
        return None if self.data.get(key) is None else self.text(key)

    def integer(self, key: str) -> int:
        value = int(self._get(key, int, "a whole number"))
        if abs(value) > 2**62:
            raise PlanError(f"{self.where}: {key} is out of range", text=repr(value))
        return value

    def optional_integer(self, key: str) -> int | None:
        return None if self.data.get(key) is None else self.integer(key)

    def number(self, key: str) -> float:
        value = self._get(key, (int, float), "a number")
        try:
            return float(value)
        except OverflowError:
            raise PlanError(f"{self.where}: {key} is too large", text=repr(value)) from None

    def optional_number(self, key: str) -> float | None:
        return None if self.data.get(key) is None else self.number(key)

    def flag(self, key: str) -> bool:
        return bool(self._get(key, bool, "true or false"))

    def items(self, key: str) -> list[Any]:
        return list(self._get(key, list, "a list"))

    def objects(self, key: str) -> list["_Reader"]:
        return [_Reader(x, f"{self.where}: {key}[{i}]") for i, x in enumerate(self.items(key))]

    def texts(self, key: str) -> list[str]:
        items = self.items(key)
        if not all(isinstance(x, str) for x in items):
            raise PlanError(f"{self.where}: {key} is not a list of layer ids", text=repr(items))
        return items

    def integers(self, key: str) -> list[int]:
        items = self.items(key)
        if not all(isinstance(x, int) and not isinstance(x, bool) for x in items):
            raise PlanError(f"{self.where}: {key} is not a list of whole numbers", text=repr(items))
        return items


def _indices(graph: LayerGraph, ids: list[str], where: str) -> tuple[int, ...]:
    for x in ids:
        if x not in graph.index:
            raise PlanError(f"{where}: the profile has no layer", text=x)
    return tuple(sorted(graph.index[x] for x in ids))


def _nested(graph: LayerGraph, entry: _Reader, depth: int) -> NestedStage:
    if depth > 8:
        raise PlanError("the plan's level-wise structure is nested too deeply")
    replicas = entry.integer("replicas")
    if "inner" in entry.data:
        inner = tuple(_nested(graph, x, depth + 1) for x in entry.objects("inner"))
        return NestedStage(tuple(sorted(v for x in inner for v in x.layers)), replicas, inner)
    return NestedStage(_indices(graph, entry.texts("layers"), entry.where), replicas)


def cluster_from_dict(entry: "_Reader") -> Cluster:
    """A cluster from its JSON object; raises PlanError or ClusterError."""
    levels = tuple(
        Level(
            x.integer("children"),
            x.number("bandwidth_bytes_per_s"),
            x.number("latency_ms"),
            x.optional_text("name") or "",
        )
        for x in entry.objects("levels")
    )
    duplex = entry.text("duplex")
    return Cluster(
        levels, entry.optional_integer("memory_bytes"), "half" if duplex == "half" else "full"
    )


def _problem(entry: _Reader, graph: LayerGraph) -> Problem:
    asked = _Reader(entry.data.get("constraints"), "constraints")

    def groups(key: str) -> list[tuple[int, ...]]:
        out = []
        for group in asked.items(key):
            if not isinstance(group, list) or not all(isinstance(x, str) for x in group):
                raise PlanError(f"constraints: {key} is not a list of lists of layer ids")
            out.append(_indices(graph, group, f"constraints: {key}"))
        return out

    pinned = []
    for pair in asked.items("pinned"):
        if (
            not isinstance(pair, list)
            or len(pair) != 2
            or not isinstance(pair[0], str)
            or not isinstance(pair[1], int)
        ):
            raise PlanError("constraints: pinned is not a list of pairs of a layer id and a stage")
        pinned.append((_indices(graph, [pair[0]], "constraints: pinned")[0], pair[1]))
    try:
        return Problem(
            graph=graph,
            cluster=cluster_from_dict(_Reader(entry.data.get("cluster"), "cluster")),
            scope=entry.text("scope"),  # type: ignore[arg-type]  # Problem checks the names
            cost_model=entry.text("cost_model"),  # type: ignore[arg-type]
            schedule=entry.text("schedule"),  # type: ignore[arg-type]
            micro_batches=entry.optional_integer("micro_batches"),
            recompute=entry.flag("recompute"),
            overlap_sync=entry.flag("overlap_sync"),
            weight_copies=entry.integer("weight_copies"),
            activation_compression_ratio=entry.optional_number("activation_compression_ratio"),
            use_fewer_machines=entry.flag("use_fewer_machines"),
            constraints=Constraints(
                straight=asked.flag("straight"),
                max_stages=asked.optional_integer("max_stages"),
                forced_cuts=tuple(frozenset(x) for x in groups("forced_cuts")),
                forbidden_cuts=tuple(frozenset(x) for x in groups("forbidden_cuts")),
                pinned=tuple(pinned),
                together=tuple(groups("together")),
            ),
        )
    except PlanError:
        raise
    except PipeplanError as error:
        raise PlanError(f"problem: {error}") from None
