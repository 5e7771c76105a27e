"""Why a problem has no plan: the memory that would do, or the demands that contradict each other."""

from collections.abc import Callable
from dataclasses import replace

from pipeplan.core.problem import Problem
from pipeplan.core.units import format_bytes
from pipeplan.solver.stopwatch import Stopwatch

__all__ = ["explain"]

Feasible = Callable[[Problem], bool | None]
LeastMemory = Callable[[Problem], tuple[int | None, bool]]


def explain(
    problem: Problem, feasible: Feasible, least_memory: LeastMemory, watch: Stopwatch
) -> tuple[str, int | None]:
    """Words for an infeasible problem, and the smallest memory that would do (None where memory is
    not what is missing, or that was not found out in time)."""
    limit = problem.cluster.memory_bytes
    free = replace(problem, cluster=replace(problem.cluster, memory_bytes=None))
    if limit is not None and feasible(free) is not False:
        head = f"no plan fits {format_bytes(limit)} ({limit} bytes) a device"
        least, proven = (None, False) if watch.over else least_memory(free)
        if least is None:
            return f"{head}; what would do was not found out in time", None
        if not proven:
            return f"{head}; {format_bytes(least)} ({least} bytes) a device would do", None
        return (
            f"{head}; the smallest memory that would do is {format_bytes(least)} ({least} bytes) "
            "a device",
            least,
        )
    return f"these demands contradict each other: {_conflict(free, feasible, watch)}", None


def _conflict(problem: Problem, feasible: Feasible, watch: Stopwatch) -> str:
    """A set of demands none of which can be left out (deletion filter), in words."""
    needed = _demands(problem)
    for name in list(needed):
        if watch.over:
            break
        rest = {n: needed[n] for n in needed if n != name}
        if feasible(_with(problem, rest)) is False:
            needed = rest
    return ", ".join(needed) or "the graph alone has no plan"


Demand = tuple[str, object]


def _demands(problem: Problem) -> dict[str, Demand]:
    """Every demand by its name in words."""
    asked, graph = problem.constraints, problem.graph
    out: dict[str, Demand] = {}
    if asked.straight:
        out["no replicas (straight)"] = ("straight", True)
    if asked.max_stages is not None:
        out[f"at most {asked.max_stages} stages"] = ("max_stages", asked.max_stages)
    for v, stage in asked.pinned:
        out[f"layer {graph.layers[v].id} in stage {stage}"] = ("pinned", (v, stage))
    for cut in asked.forced_cuts:
        out[f"the forced cut after {len(cut)} layers ({_last(problem, cut)})"] = (
            "forced_cuts",
            cut,
        )
    for cut in asked.forbidden_cuts:
        out[f"the forbidden cut after {len(cut)} layers ({_last(problem, cut)})"] = (
            "forbidden_cuts",
            cut,
        )
    for group in asked.together:
        names = ", ".join(graph.layers[v].id for v in group[:4]) + (", ..." if group[4:] else "")
        out[f"{names} together"] = ("together", group)
    if problem.cost_model == "pipedream" and not problem.use_fewer_machines:
        out["every machine in use (cost model pipedream)"] = ("use_fewer_machines", False)
    return out


def _last(problem: Problem, cut: frozenset[int]) -> str:
    return f"up to {problem.graph.layers[max(cut)].id}"


def _with(problem: Problem, demands: dict[str, Demand]) -> Problem:
    """The problem with these demands alone."""
    kinds: dict[str, list[object]] = {}
    for kind, value in demands.values():
        kinds.setdefault(kind, []).append(value)
    constraints = replace(
        problem.constraints,
        straight="straight" in kinds,
        max_stages=kinds.get("max_stages", [None])[0],
        **{
            kind: tuple(kinds.get(kind, ()))
            for kind in ("pinned", "forced_cuts", "forbidden_cuts", "together")
        },
    )
    idle = problem.cost_model == "pipedream" and "use_fewer_machines" not in kinds
    return replace(problem, constraints=constraints, use_fewer_machines=idle)
