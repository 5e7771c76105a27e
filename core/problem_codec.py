"""Questions and clusters as JSON-ready values, the way a plan file holds them."""

from typing import Any, Final

from pipeplan.core.cluster import Cluster, Level
from pipeplan.core.errors import PipeplanError, PlanError
from pipeplan.core.graph import LayerGraph
from pipeplan.core.problem import Constraints, Problem
from pipeplan.core.reader import Reader

__all__ = [
    "cluster_from_dict",
    "cluster_to_dict",
    "layer_indices",
    "problem_from_dict",
    "problem_to_dict",
]

_FIELDS: Final = (
    "scope",
    "cost_model",
    "schedule",
    "micro_batches",
    "recompute",
    "overlap_sync",
    "weight_copies",
    "activation_compression_ratio",
    "use_fewer_machines",
    "constraints",
    "cluster",
)
_CONSTRAINTS: Final = (
    "straight",
    "max_stages",
    "forced_cuts",
    "forbidden_cuts",
    "pinned",
    "together",
)


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


def cluster_from_dict(data: Any) -> Cluster:
    """A cluster from its JSON object; raises PlanError or ClusterError."""
    entry = Reader(data, "cluster", PlanError)
    entry.only("levels", "memory_bytes", "duplex")
    for level in entry.objects("levels"):
        level.only("children", "bandwidth_bytes_per_s", "latency_ms", "name")
    levels = tuple(
        Level(
            x.integer("children"),
            x.number("bandwidth_bytes_per_s"),
            x.number("latency_ms"),
            x.text("name", ""),
        )
        for x in entry.objects("levels")
    )
    duplex: Any = entry.text("duplex")  # Cluster checks the name
    return Cluster(levels, entry.optional_integer("memory_bytes"), duplex)


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


def problem_from_dict(data: Any, graph: LayerGraph) -> Problem:
    """The question about a graph, from its JSON object; raises PlanError."""
    entry = Reader(data, "problem", PlanError)
    entry.only(*_FIELDS)
    names: dict[str, Any] = {  # Problem checks them
        key: entry.text(key) for key in ("scope", "cost_model", "schedule")
    }
    try:
        return Problem(
            graph=graph,
            cluster=cluster_from_dict(entry.data.get("cluster")),
            micro_batches=entry.optional_integer("micro_batches"),
            recompute=entry.flag("recompute"),
            overlap_sync=entry.flag("overlap_sync"),
            weight_copies=entry.integer("weight_copies"),
            activation_compression_ratio=entry.optional_number("activation_compression_ratio"),
            use_fewer_machines=entry.flag("use_fewer_machines"),
            constraints=_constraints(entry.object("constraints"), graph),
            **names,
        )
    except PlanError:
        raise
    except PipeplanError as error:
        raise PlanError(f"problem: {error}") from None


def _constraints(asked: Reader, graph: LayerGraph) -> Constraints:
    asked.only(*_CONSTRAINTS)

    def groups(key: str) -> list[tuple[int, ...]]:
        out = []
        for ids in asked.items(key):
            if not isinstance(ids, list) or not all(isinstance(x, str) for x in ids):
                asked.fail(f"{key} is not a list of lists of layer ids", ids)
            out.append(layer_indices(graph, ids, asked))
        return out

    pinned = []
    for pair in asked.items("pinned"):
        match pair:
            case [str(layer), int(stage)] if not isinstance(stage, bool):
                pinned.append((layer_indices(graph, [layer], asked)[0], stage))
            case _:
                asked.fail("pinned is not a list of pairs of a layer id and a stage", pair)
    return Constraints(
        straight=asked.flag("straight"),
        max_stages=asked.optional_integer("max_stages"),
        forced_cuts=tuple(frozenset(x) for x in groups("forced_cuts")),
        forbidden_cuts=tuple(frozenset(x) for x in groups("forbidden_cuts")),
        pinned=tuple(pinned),
        together=tuple(groups("together")),
    )


def layer_indices(graph: LayerGraph, ids: list[str], place: Reader) -> tuple[int, ...]:
    """Indices of layers in the order given; an unknown id is an error of the place."""
    for x in ids:
        if x not in graph.index:
            place.fail("the profile has no such layer", x)
    return tuple(graph.index[x] for x in ids)
