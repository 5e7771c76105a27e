"""The answer in a few sentences: how fast, how sure, against what."""

from pipeplan.cli.render.words import joined, percent, ranges, times
from pipeplan.core.cluster import Cluster
from pipeplan.core.codec import PlanFile, gap
from pipeplan.core.cost import baseline_fits, baselines, evaluate
from pipeplan.core.levers import on_topology
from pipeplan.core.plan import Plan
from pipeplan.core.problem import Problem
from pipeplan.core.units import format_bytes, format_ms, format_rate, plural

__all__ = [
    "baseline_lines",
    "cluster_line",
    "headline",
    "proof_line",
    "question_line",
    "two_figures",
]

_MOST_NAMED = 24
"""Stages whose replicas are listed in the headline."""

_LIMITS = {
    "time": "the time limit",
    "interrupt": "Ctrl-C",
    "gap": "the gap asked for",
    "size": "a limit on size",
}


def cluster_line(cluster: Cluster) -> str:
    """The cluster in words: 2 servers of 8 GPUs; ports ..."""
    if cluster.servers == 1:
        who = plural(cluster.devices, "GPU")
    else:
        who = f"{cluster.servers} servers of {plural(cluster.devices_per_server, 'GPU')}"
    ports = []
    for number, level in enumerate(cluster.levels, 1):
        name = f" ({level.name})" if level.name else ""
        latency = f" + {format_ms(level.latency_ms)}" if level.latency_ms else ""
        rate = format_rate(level.bandwidth_bytes_per_s)
        ports.append(f"{rate}{latency} a {_child(cluster, number)}{name}")
    memory = (
        "no memory limit"
        if cluster.memory_bytes is None
        else f"{format_bytes(cluster.memory_bytes)} a GPU"
    )
    return f"{who}; ports: {', '.join(ports)}, {cluster.duplex} duplex; {memory}"


def _child(cluster: Cluster, level: int) -> str:
    """Whose port the bandwidth of a level is."""
    if level <= 2:
        return "GPU" if level == 1 else "server"
    size = cluster.group_sizes[level - 1] // cluster.devices_per_server
    return f"group of {plural(size, 'server')}"


def question_line(problem: Problem) -> str:
    """What counts as a plan and as its price."""
    graph = problem.graph
    parts = [
        plural(len(graph), "layer"),
        f"{format_ms(graph.total_compute_ms)} of compute a micro-batch",
        f"{format_bytes(graph.total_parameter_bytes)} of parameters",
        f"scope {problem.scope}",
        f"cost model {problem.cost_model}",
        f"schedule {problem.schedule}",
    ]
    if problem.micro_batches is not None:
        parts.append(f"{plural(problem.micro_batches, 'micro-batch')} a batch")
    flags = (("recompute", problem.recompute), ("overlapped all-reduce", problem.overlap_sync))
    parts += [name for name, given in flags if given]
    asked = problem.constraints
    if asked.straight:
        parts.append("straight")
    if asked.max_stages is not None:
        parts.append(f"at most {plural(asked.max_stages, 'stage')}")
    demands = len(asked.forced_cuts) + len(asked.forbidden_cuts) + len(asked.pinned)
    demands += len(asked.together)
    if demands:
        parts.append(plural(demands, "further constraint"))
    return ", ".join(parts)


def headline(file: PlanFile) -> str:
    """Stages, GPUs and time in one sentence, with the number of replicas of each stage."""
    problem, plan, price = file.problem, file.plan, file.evaluation
    devices = problem.cluster.devices
    if plan.devices < devices:
        used = f"{plan.devices} of {devices} GPUs"
    else:
        used = f"all {devices} GPUs" if devices > 1 else "the one GPU"
    idle = [rank for rank in range(devices) if rank not in plan.stage_of_rank]
    unused = ""
    if idle:
        pieces = ranges(idle)
        shown = ", ".join(pieces[:8]) + (", ..." if len(pieces) > 8 else "")
        unused = f" (idle: {'rank' if len(idle) == 1 else 'ranks'} {shown})"
    time = (
        f"{format_ms(price.objective_ms)} a batch of "
        f"{plural(problem.micro_batches or 0, 'micro-batch')}, "
        f"{format_ms(price.period_ms)} a micro-batch in steady state"
        if problem.synchronous and problem.scope == "joint"
        else f"{format_ms(price.period_ms)} a micro-batch"
    )
    return (
        f"{plural(len(plan.stages), 'stage')} on {used}{unused}{_replicas(plan)}. "
        f"{time[0].upper()}{time[1:]} by cost model {_priced_by(file)}."
    )


def _replicas(plan: Plan) -> str:
    """How often each stage is there, as long as a sentence can hold it."""
    counts = [stage.replicas for stage in plan.stages]
    if len(counts) <= 4:
        return ": " + joined([f"stage {s} x{count}" for s, count in enumerate(counts)])
    if len(counts) <= _MOST_NAMED:
        return ", replicated " + "-".join(map(str, counts))
    low, high = min(counts), max(counts)
    return f", each on {plural(high, 'GPU')}" if low == high else f", each on {low} to {high} GPUs"


def _priced_by(file: PlanFile) -> str:
    return file.problem.cost_model if file.plan.nested is not None else "topology"


def proof_line(file: PlanFile) -> str:
    """How good the plan is known to be."""
    origin, objective = file.provenance, file.evaluation.objective_ms
    scope = f"{file.problem.scope} plan"
    who = f" ({origin.backend})" if origin.backend else ""
    if origin.status == "GIVEN":
        return "A plan that was brought, not searched for: nothing is proven of it."
    if origin.status == "OPTIMAL":
        return (
            f"Proven optimal{who}: no {scope} is below {format_ms(origin.bound_ms or objective)}."
        )
    stopped = _LIMITS.get(origin.limit or "", "a limit")
    far = gap(objective, origin.bound_ms)
    if far is None:
        return f"The best plan found until {stopped} ended the search{who}; no bound is proven."
    return (
        f"The best plan found until {stopped} ended the search{who}: no {scope} is below "
        f"{format_ms(origin.bound_ms or 0.0)}, so at most {percent(far)} could be gained."
    )


def baseline_lines(file: PlanFile) -> list[str]:
    """One GPU and pure data parallelism, each with the plan's speed-up over it.

    A nested plan is compared under both of its figures: they can disagree on which is faster.
    """
    problem, price = file.problem, file.evaluation
    if file.plan.nested is None:
        return _against(on_topology(problem), file.plan, price.objective_ms, "")
    return [
        *_against(problem, file.plan, price.objective_ms, f", by {problem.cost_model}"),
        *_against(
            on_topology(problem),
            file.plan,
            evaluate(on_topology(problem), file.plan).objective_ms,
            ", by topology",
        ),
    ]


def _against(problem: Problem, plan: Plan, objective_ms: float, by: str) -> list[str]:
    base = baselines(problem)
    devices = problem.cluster.devices

    def line(name: str, baseline_ms: float, ranks: int) -> str:
        same = len(plan.stages) == 1 and plan.devices == ranks
        said = (
            "that is the plan"
            if same
            else f"the plan is {times(baseline_ms, objective_ms)} as fast"
        )
        limit = problem.cluster.memory_bytes or 0
        lack = "" if baseline_fits(problem, ranks) else f" (does not fit {format_bytes(limit)})"
        return f"{name}{by}: {format_ms(baseline_ms)}{lack}; {said}"

    lines = [line("one GPU", base.one_device_ms, 1)]
    if devices > 1:
        lines.append(line(f"data parallel on {devices} GPUs", base.data_parallel_ms, devices))
    return lines


def two_figures(file: PlanFile) -> str | None:
    """For a nested plan: its own figure, the one under topology, and why they differ."""
    if file.plan.nested is None:
        return None
    model = file.problem.cost_model
    own, real = file.evaluation.period_ms, file.evaluation.topology.period_ms
    said = (
        f"Two figures: {format_ms(own)} by {model}, {format_ms(real)} by topology. {model} prices "
        "one level at a time, as if its ports and GPUs carried nothing else; topology adds up all "
        "that every GPU and port carries, and is closer to what the hardware will do."
    )
    asked = on_topology(file.problem)
    spread = baselines(asked).data_parallel_ms
    fits = baseline_fits(asked, asked.cluster.devices)
    if fits and spread < evaluate(asked, Plan(file.plan.stages)).objective_ms:
        said += (
            f" By topology plain data parallelism, at {format_ms(spread)}, beats this plan; scope "
            "joint searches for the best plan by topology."
        )
    return said
