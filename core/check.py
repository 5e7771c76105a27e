"""Whether a plan is one: every rule that makes a plan valid, each in words. Knows no solver."""

from collections.abc import Iterator
from itertools import accumulate, count

from pipeplan.core.errors import PlanError, shown
from pipeplan.core.memory import stage_memory
from pipeplan.core.nested_cost import PipedreamGraph
from pipeplan.core.plan import NestedStage, Plan, joint_plan, nested_plan
from pipeplan.core.problem import Problem
from pipeplan.core.units import format_bytes, plural

__all__ = ["block_sizes", "check", "violations"]


def check(problem: Problem, plan: Plan) -> None:
    """Raise PlanError with every violated rule if the plan is not valid for the problem."""
    found = violations(problem, plan)
    if found:
        raise PlanError("; ".join(found[:20]))


def violations(problem: Problem, plan: Plan, *, scope: bool = True) -> tuple[str, ...]:
    """Every rule the plan breaks, in words; empty for a valid plan.

    With `scope` False the plan may have any ranks (a plan that a person brings), not only those
    that the problem's scope can produce; copies and level-wise structure, where it has them, must
    be true all the same.
    """
    found = _partition(problem, plan)
    if found:
        return tuple(found)
    found += _ranks(problem, plan)
    found += _constraints(problem, plan)
    if found:
        return tuple(found)
    if scope and problem.scope == "joint":
        found += _joint(problem, plan)
    elif scope or plan.nested is not None:
        found += _nested(problem, plan, scope=scope)
    if any(stage.replicas % plan.copies for stage in plan.stages):
        found.append(f"the plan is not made of {plan.copies} identical copies")
    found += _memory(problem, plan)
    return tuple(found)


def _partition(problem: Problem, plan: Plan) -> list[str]:
    """Every layer in exactly one stage, and no edge backwards: prefixes are nested ideals."""
    graph = problem.graph
    times = [0] * len(graph)
    for s, stage in enumerate(plan.stages):
        for v in stage.layers:
            if not 0 <= v < len(graph):
                return [
                    f"stage {s} names layer index {shown(v)}, but the graph has "
                    f"{plural(len(graph), 'layer')}"
                ]
            times[v] += 1
    found = [
        f"layer {graph.layers[v].id} is in {'no stage' if n == 0 else plural(n, 'stage')}"
        for v, n in enumerate(times)
        if n != 1
    ]
    if not found:
        stage_of = plan.stage_of_layer
        found = [
            f"layer {graph.layers[v].id} (stage {stage_of[v]}) reads layer {graph.layers[u].id} of "
            f"the later stage {stage_of[u]}"
            for u, v in graph.edges
            if stage_of[u] > stage_of[v]
        ]
    return found


def _ranks(problem: Problem, plan: Plan) -> list[str]:
    """Ranks exist and hold one stage each."""
    found: list[str] = []
    owner: dict[int, int] = {}
    for s, stage in enumerate(plan.stages):
        for rank in stage.ranks:
            if not 0 <= rank < problem.cluster.devices:
                found.append(
                    f"stage {s} is on rank {shown(rank)}, but ranks are 0 to "
                    f"{problem.cluster.devices - 1}"
                )
            if rank in owner:
                found.append(f"rank {shown(rank)} holds stage {owner[rank]} and stage {s}")
            owner[rank] = s
    return found


def _constraints(problem: Problem, plan: Plan) -> list[str]:
    graph, asked = problem.graph, problem.constraints
    stage_of = plan.stage_of_layer
    found: list[str] = []
    if asked.max_stages is not None and len(plan.stages) > asked.max_stages:
        found.append(
            f"{plural(len(plan.stages), 'stage')}, but at most "
            f"{plural(asked.max_stages, 'is', 'are')} allowed"
        )
    if asked.straight:
        found += [
            f"stage {s} has {stage.replicas} replicas, but a straight pipeline has one of each"
            for s, stage in enumerate(plan.stages)
            if stage.replicas != 1
        ]
    for group in problem.together:
        if len({stage_of[v] for v in group}) > 1:
            names = ", ".join(graph.layers[v].id for v in group[:6])
            found.append(f"layers {names} must share a stage")
    for v, s in asked.pinned:
        if stage_of[v] != s:
            found.append(
                f"layer {graph.layers[v].id} is in stage {stage_of[v]}, but is pinned to stage {s}"
            )
    ends = dict(zip(accumulate(len(stage.layers) for stage in plan.stages), count(), strict=False))

    def at_boundary(cut: frozenset[int]) -> bool:
        last = ends.get(len(cut))
        return last is not None and all(stage_of[v] <= last for v in cut)

    found += [
        f"no stage ends with the forced cut after {plural(len(cut), 'layer')}"
        for cut in asked.forced_cuts
        if not at_boundary(cut)
    ]
    found += [
        f"a stage ends with the forbidden cut after {plural(len(cut), 'layer')}"
        for cut in asked.forbidden_cuts
        if at_boundary(cut)
    ]
    return found


def block_sizes(problem: Problem) -> tuple[int, ...]:
    """Block sizes of a joint plan, largest first: they divide the devices, and each is a multiple
    or a divisor of every group of the hierarchy. Straight pipelines have one copy alone."""
    cluster = problem.cluster
    sizes = [
        size
        for size in range(cluster.devices, 0, -1)
        if cluster.devices % size == 0
        and all(size % g == 0 or g % size == 0 for g in cluster.group_sizes)
    ]
    return tuple(sizes[:1]) if problem.constraints.straight else tuple(sizes)


def _joint(problem: Problem, plan: Plan) -> list[str]:
    """Copies in blocks, and stages on consecutive ranks inside each copy."""
    if plan.nested is not None:
        return ["a joint plan has no level-wise structure"]
    block, rest = divmod(problem.cluster.devices, plan.copies)
    if rest or block not in block_sizes(problem):
        return [
            f"{plural(plan.copies, 'copy is', 'copies are')} not blocks of whole groups of the "
            "cluster"
        ]
    if any(stage.replicas % plan.copies for stage in plan.stages):
        return []  # said elsewhere, of plans of any scope
    wanted = joint_plan(
        problem.cluster,
        tuple((stage.layers, stage.replicas // plan.copies) for stage in plan.stages),
        plan.copies,
    )
    return [
        f"stage {s} is on ranks {shown(stage.ranks)}, not on {shown(right.ranks)} as {plan.copies} "
        "copies of stages on consecutive ranks would be"
        for s, (stage, right) in enumerate(zip(plan.stages, wanted.stages, strict=True))
        if stage.ranks != right.ranks
    ]


def _nested(problem: Problem, plan: Plan, *, scope: bool) -> list[str]:
    """The level-wise structure accounts for the stages, and uses what it must."""
    if plan.nested is None:
        return ["a nested plan needs its level-wise structure"]
    try:
        flat = nested_plan(problem.cluster, plan.nested)
    except PlanError as error:
        return [str(error)]
    if flat.stages != plan.stages:
        return ["the stages are not those of the plan's level-wise structure"]
    found: list[str] = []
    for level, stages in _spans(plan.nested, len(problem.cluster.levels)):
        for stage in stages:
            inside = sorted(v for part in stage.inner for v in part.layers)
            if stage.inner and tuple(inside) != stage.layers:
                found.append(f"a level-{level} stage and its inner stages hold different layers")
        if scope and problem.cost_model == "pipedream":
            found += _pipedream_span(problem, level, stages)
    return found


def _spans(
    stages: tuple[NestedStage, ...], level: int
) -> Iterator[tuple[int, tuple[NestedStage, ...]]]:
    """Every span of a level-wise structure, outermost first, with its level."""
    yield level, stages
    for stage in stages:
        if stage.inner:
            yield from _spans(stage.inner, level - 1)


def _pipedream_span(problem: Problem, level: int, stages: tuple[NestedStage, ...]) -> list[str]:
    """The original's own rules: all machines used, and its memory rule (quirks 14 to 16)."""
    cluster, graph = problem.cluster, problem.graph
    width = cluster.levels[level - 1].children
    used = sum(stage.replicas for stage in stages)
    found: list[str] = []
    if used != width and not problem.use_fewer_machines:
        found.append(f"{used} of the {width} machines of level {level} are used")
    if cluster.memory_bytes is None:
        return found
    removed = PipedreamGraph(graph).removed
    taken = 0
    for position, stage in enumerate(stages):
        taken += stage.replicas
        if position == 1:
            # The rule counts machines up to the table's column, and a plan of fewer machines is
            # carried to later columns as it is: idle machines are best met after the first stage.
            taken += width - used
        layers = [v for v in stage.layers if v not in removed]
        stashed = sum(
            graph.layers[v].output_bytes + graph.layers[v].parameter_bytes for v in layers
        )
        if -(-(width - taken) // stage.replicas) * stashed > cluster.memory_bytes:
            found.append(f"a level-{level} stage breaks the original's memory rule")
    return found


def _memory(problem: Problem, plan: Plan) -> list[str]:
    """No rank holds more than its memory (cost model pipedream has a rule of its own instead)."""
    limit = problem.cluster.memory_bytes
    if limit is None or problem.cost_model == "pipedream":
        return []
    return [
        f"stage {s} needs {format_bytes(memory.peak_bytes)} ({memory.peak_bytes} bytes) a rank, "
        f"but a device has {format_bytes(limit)} ({limit} bytes)"
        for s, memory in enumerate(stage_memory(problem, plan))
        if memory.peak_bytes > limit
    ]
