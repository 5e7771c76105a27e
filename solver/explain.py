"""Why a problem has no plan: the memory that would do, or the demands that contradict."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pipeplan.core.problem import Problem
from pipeplan.core.units import format_bytes, plural
from pipeplan.solver.clock import Clock

__all__ = ["does_not_fit", "explain", "would_do"]

Feasible = Callable[[Problem], bool | None]
LeastMemory = Callable[[Problem], tuple[int | None, bool]]


def explain(
    problem: Problem, feasible: Feasible, least_memory: LeastMemory, watch: Clock
) -> tuple[str, int | None]:
    """Words for an infeasible problem, and the smallest memory that would do (None where memory is
    not what is missing, or that was not found out in time)."""
    limit = problem.cluster.memory_bytes
    free = replace(problem, cluster=replace(problem.cluster, memory_bytes=None))
    if limit is not None and feasible(free) is not False:
        head = does_not_fit(limit)
        least, proven = (None, False) if watch.over else least_memory(free)
        if least is None:
            return f"{head}; what would do was not found out in time", None
        if not proven:
            return f"{head}; {format_bytes(least)} ({least} bytes) a device would do", None
        return would_do(limit, least), least
    return f"these demands contradict each other: {_conflict(free, feasible, watch)}", None


def does_not_fit(limit: int) -> str:
    """No plan fits a device memory of `limit` bytes, in words."""
    return f"no plan fits {format_bytes(limit)} ({limit} bytes) a device"


def would_do(limit: int, least: int) -> str:
    """The same, with the smallest memory in bytes that would do."""
    return (
        f"{does_not_fit(limit)}; the smallest memory that would do is {format_bytes(least)} "
        f"({least} bytes) a device"
    )


def _conflict(problem: Problem, feasible: Feasible, watch: Clock) -> str:
    """A set of demands none of which can be left out (deletion filter), in words."""
    without = problem
    needed: list[str] = []
    for name, drop in _demands(problem).items():
        fewer = drop(without)
        if not watch.over and feasible(fewer) is False:
            without = fewer
        else:
            needed.append(name)
    return ", ".join(needed) or "the graph alone has no plan"


Drop = Callable[[Problem], Problem]


def _demands(problem: Problem) -> dict[str, Drop]:
    """Every demand in words, with the function that takes it out of a problem."""
    asked, graph = problem.constraints, problem.graph
    out: dict[str, Drop] = {}
    if asked.straight:
        out["no replicas (straight)"] = _setting(straight=False)
    if asked.max_stages is not None:
        out[f"at most {plural(asked.max_stages, 'stage')}"] = _setting(max_stages=None)
    for layer, stage in asked.pinned:
        name = f"layer {graph.layers[layer].id} in stage {stage}"
        out[name] = _removing("pinned", (layer, stage))
    for cut in asked.forced_cuts:
        out[f"the forced cut after {_cut(problem, cut)}"] = _removing("forced_cuts", cut)
    for cut in asked.forbidden_cuts:
        out[f"the forbidden cut after {_cut(problem, cut)}"] = _removing("forbidden_cuts", cut)
    for group in asked.together:
        names = ", ".join(graph.layers[v].id for v in group[:4]) + (", ..." if group[4:] else "")
        out[f"{names} together"] = _removing("together", group)
    if problem.cost_model == "pipedream" and not problem.use_fewer_machines:
        name = "every machine in use (cost model pipedream)"
        out[name] = lambda p: replace(p, use_fewer_machines=True)
    return out


def _setting(**fields: Any) -> Drop:
    """Set fields of the constraints."""
    return lambda p: replace(p, constraints=replace(p.constraints, **fields))


def _removing(field: str, item: object) -> Drop:
    """Take one item out of a field of the constraints."""

    def drop(problem: Problem) -> Problem:
        rest = tuple(x for x in getattr(problem.constraints, field) if x != item)
        return _setting(**{field: rest})(problem)

    return drop


def _cut(problem: Problem, cut: frozenset[int]) -> str:
    names = problem.graph.layers
    return f"{plural(len(cut), 'layer')} (up to {names[max(cut)].id})"
