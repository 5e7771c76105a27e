"""What the page shows, as JSON-ready values: every figure is computed here, none in the browser."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipeplan.core.bottleneck import bottleneck, level_limits
from pipeplan.core.codec import PlanFile, plan_to_dict
from pipeplan.core.cost import baseline_fits, baselines, evaluate
from pipeplan.core.levers import levers, on_topology
from pipeplan.core.plan import Plan, Stage
from pipeplan.core.problem import Problem
from pipeplan.validation.palette import STAGE_COLOURS, text_colour
from pipeplan.validation.report.layout import NARROW, WIDE, lay_out
from pipeplan.validation.report.reproduce import cluster_toml, command
from pipeplan.validation.report.why import alternatives, why
from pipeplan.validation.sensitivity import with_value
from pipeplan.validation.simulation import Simulation
from pipeplan.validation.simulation.memory import holdings
from pipeplan.validation.simulation.timeline_svg import shown_ranks, shown_window

__all__ = ["ReportText", "page_data"]

_MAX_BARS: Final = 6000
_MAX_LOADS: Final = 14
_MAX_MEMORY_POINTS: Final = 400
_MOST_ALTERNATIVES: Final = 8


@dataclass(frozen=True, slots=True)
class ReportText:
    """Sentences that the caller has words for already."""

    cluster: str
    question: str
    headline: str
    proof: str
    simulation: tuple[str, ...]
    caveats: tuple[str, ...] = ()


def page_data(file: PlanFile, result: Simulation, text: ReportText) -> dict[str, Any]:
    """All of it; the plan file itself is included, so that the page can give it back."""
    problem, plan, price = file.problem, file.plan, file.evaluation
    graph, cluster = problem.graph, problem.cluster
    base, moved = baselines(problem), alternatives(problem, plan)
    return {
        "name": graph.name or "network",
        "version": file.provenance.version,
        "cluster": text.cluster,
        "question": text.question,
        "headline": text.headline,
        "proof": text.proof,
        "caveats": list(text.caveats),
        "status": file.provenance.status,
        "synchronous": problem.synchronous,
        "objective_ms": price.objective_ms,
        "period_ms": price.period_ms,
        "topology_period_ms": price.topology.period_ms,
        "cost_model": problem.cost_model,
        "scope": problem.scope,
        "bound_ms": file.provenance.bound_ms,
        "one_device_ms": base.one_device_ms,
        "data_parallel_ms": base.data_parallel_ms,
        "one_device_fits": baseline_fits(problem, 1),
        "data_parallel_fits": baseline_fits(problem, cluster.devices),
        "nested": None if plan.nested is None else _by_topology(problem, plan),
        "palette": [[fill, text_colour(s)] for s, fill in enumerate(STAGE_COLOURS)],
        "stages": _stages(file, result),
        "servers": {
            "per_server": cluster.devices_per_server,
            "stage_of_rank": [plan.stage_of_rank.get(rank, -1) for rank in range(cluster.devices)],
            "group": math.prod(x.children for x in cluster.levels[1:2]),
        },
        "why": why(problem, plan, moved),
        "alternatives": [
            {
                "replicas": list(x.replicas),
                "objective_ms": x.objective_ms,
                "limit": x.limit,
                "fits": x.fits,
            }
            for x in moved[: _MOST_ALTERNATIVES if len(plan.stages) <= _MOST_ALTERNATIVES else 4]
        ],
        "limits": _limits(file),
        "loads": _loads(file),
        "levers": [{"text": x.text, "objective_ms": x.objective_ms} for x in levers(problem, plan)],
        "levers_from_ms": evaluate(on_topology(problem), plan).objective_ms,
        "memory_bytes": cluster.memory_bytes,
        "graph": _graph(file),
        "simulation": _simulation(result, text.simulation),
        "price_curve": _price_curve(file),
        "command": command(file),
        "cluster_toml": cluster_toml(cluster),
        "plan": plan_to_dict(file),
    }


def _by_topology(problem: Problem, plan: Plan) -> dict[str, float]:
    """What a nested plan and the baselines take under `topology`, in ms."""
    asked = on_topology(problem)
    base = baselines(asked)
    return {
        "objective_ms": evaluate(asked, Plan(plan.stages)).objective_ms,
        "one_device_ms": base.one_device_ms,
        "data_parallel_ms": base.data_parallel_ms,
    }


def _limits(file: PlanFile) -> list[dict[str, Any]]:
    """What sets the period: sentences under each cost model that prices the plan."""
    problem, plan, price = file.problem, file.plan, file.evaluation
    busiest = bottleneck(problem, plan, price)
    text = f"{busiest.text[0].upper()}{busiest.text[1:]}."
    real = {"model": "topology", "period_ms": busiest.busy_ms, "lines": [text]}
    by_level = level_limits(problem, plan)
    if not by_level:
        return [real]
    own = {"model": problem.cost_model, "period_ms": price.period_ms, "lines": by_level}
    return [own, real]


def _stages(file: PlanFile, result: Simulation) -> list[dict[str, Any]]:
    problem, plan, price = file.problem, file.plan, file.evaluation
    cluster = problem.cluster
    out: list[dict[str, Any]] = []
    for s, (stage, times, memory) in enumerate(
        zip(plan.stages, price.topology.stages, price.memory, strict=True)
    ):
        ids = [problem.graph.layers[v].id for v in stage.layers]
        run = stage.layers[-1] - stage.layers[0] + 1 == len(stage.layers)
        out.append(
            {
                "first": ids[0],
                "last": ids[-1],
                "indices": _ranges(stage.layers) if run else None,
                "layers": len(ids),
                "replicas": stage.replicas,
                "ranks": _ranges(stage.ranks),
                "servers": _ranges(sorted({cluster.server_of(r) for r in stage.ranks})),
                "compute_ms": times.compute_ms,
                "whole_ms": problem.graph.compute_ms(stage.layers),
                "sync_ms": times.sync_ms,
                "full_sync_ms": times.full_sync_ms,
                "transfer_ms": times.transfer_ms,
                "in_flight": memory.in_flight,
                "weight_bytes": memory.weight_bytes,
                "version_bytes": memory.version_bytes,
                "activation_bytes": memory.activation_bytes,
                "peak_bytes": memory.peak_bytes,
                "parameter_bytes": problem.graph.parameter_bytes(stage.layers),
                "bubble": result.stages[s].bubble,
                "cut_bytes": None if s == len(plan.stages) - 1 else price.topology.cut_bytes[s],
            }
        )
    return out


def _ranges(numbers: Sequence[int]) -> str:
    out: list[list[int]] = []
    for number in numbers:
        if out and number == out[-1][1] + 1:
            out[-1][1] = number
        else:
            out.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


def _loads(file: PlanFile) -> list[dict[str, Any]]:
    """The busiest resources under `topology`: devices by stage, ports one by one."""
    problem, cost = file.problem, file.evaluation.topology
    loads = [
        {
            "name": f"GPUs of stage {s}",
            "stage": s,
            "compute_ms": x.compute_ms,
            "sync_ms": 0.0 if problem.overlap_sync else x.sync_ms,
            "transfer_ms": 0.0,
        }
        for s, x in enumerate(cost.stages)
    ]
    alike: dict[tuple[int, float, float], list[int]] = {}
    for port in cost.ports:
        alike.setdefault((port.level, port.sync_ms, port.transfer_ms), []).append(port.child)
    for (level, sync_ms, transfer_ms), children in sorted(alike.items()):
        name = problem.cluster.port_name(level, children[0])
        more = f" and {len(children) - 1} like it" if len(children) > 1 else ""
        loads.append(
            {
                "name": name + more,
                "stage": -1,
                "compute_ms": 0.0,
                "sync_ms": sync_ms,
                "transfer_ms": transfer_ms,
            }
        )

    def busy(load: dict[str, Any]) -> float:
        return float(load["compute_ms"] + load["sync_ms"] + load["transfer_ms"])

    return sorted(loads, key=lambda x: -busy(x))[:_MAX_LOADS]


def _graph(file: PlanFile) -> dict[str, Any]:
    """Edges once, places twice: for a wide screen and for a narrow one."""
    return {
        "edges": [list(edge) for edge in file.problem.graph.edges],
        "wide": _places(file, WIDE),
        "narrow": _places(file, NARROW),
    }


def _places(file: PlanFile, aspect: float) -> dict[str, Any]:
    layout = lay_out(file.problem.graph, file.plan, aspect)
    stage_of, crossing = file.plan.stage_of_layer, file.evaluation.topology.cut_bytes
    return {
        "nodes": [[round(x, 1), round(y, 1), stage_of[v]] for v, (x, y) in enumerate(layout.nodes)],
        "bands": [[x.stage, x.x, x.y, x.width, x.height] for x in layout.bands],
        "cuts": [[x.after_stage, x.x, x.y, x.height, crossing[x.after_stage]] for x in layout.cuts],
        "width": layout.width,
        "height": layout.height,
    }


def _simulation(result: Simulation, sentences: Sequence[str]) -> dict[str, Any]:
    first, last = shown_window(result)
    ranks = shown_ranks(result)
    row = {rank: i for i, rank in enumerate(ranks)}
    log = result.run.operations
    bars = sorted(
        [round(start, 6), round(end, 6), row[rank], kind, m]
        for rank, kind, m, start, end in zip(
            log.rank, log.kind, log.micro_batch, log.start_ms, log.end_ms, strict=True
        )
        if rank in row and start < last
    )[:_MAX_BARS]
    stage_of = result.pipeline.plan.stage_of_rank
    memory = []
    fullest = [share.peak_rank for share in result.stages]
    for s, series in enumerate(holdings(result.pipeline, result.run, fullest)):
        shown = [x for x in series if x.time_ms <= last][:_MAX_MEMORY_POINTS]
        memory.append(
            {
                "stage": s,
                "rank": fullest[s],
                "points": [[round(x.time_ms, 6), x.total_bytes, x.in_flight] for x in shown],
            }
        )
    return {
        "sentences": list(sentences),
        "period_ms": result.period_ms,
        "exact": result.exact,
        "predicted_ms": result.predicted_ms,
        "batch_ms": result.batch_ms,
        "window_ms": [first, last],
        "ranks": [[rank, stage_of[rank]] for rank in ranks],
        "hidden_ranks": len(stage_of) - len(ranks),
        "bars": bars,
        "memory": memory,
        "shares": [[x.forward, x.backward, x.sync, x.bubble] for x in result.stages],
    }


def _price_curve(file: PlanFile) -> dict[str, Any]:
    """The plan, and data parallelism, as the outermost bandwidth changes: priced, not solved."""
    problem = on_topology(file.problem)
    plan = Plan(file.plan.stages)
    everything = tuple(range(len(problem.graph)))
    spread = Plan((Stage(everything, tuple(range(problem.cluster.devices))),))
    outer = len(problem.cluster.levels)
    here = problem.cluster.levels[-1].bandwidth_bytes_per_s
    values = [here * 2 ** (i / 4) for i in range(-20, 21)]
    points = []
    for value in values:
        changed = with_value(problem, f"bandwidth{outer}", value)
        points.append(
            [
                value,
                evaluate(changed, plan).objective_ms,
                evaluate(changed, spread).objective_ms,
            ]
        )
    return {"level": outer, "now": here, "points": points}
