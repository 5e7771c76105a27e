"""Cost models `levelwise` and `pipedream`: the price of a nested plan, one level at a time (DESIGN 4.2)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from pipeplan.core.errors import PlanError
from pipeplan.core.graph import LayerGraph
from pipeplan.core.plan import NestedStage, Plan
from pipeplan.core.problem import Problem

__all__ = ["PipedreamGraph", "evaluate_nested", "pipedream_data_parallel_ms", "walk"]


def walk(plan: Plan, levels: int) -> Iterator[tuple[int, frozenset[int], tuple[NestedStage, ...]]]:
    """Every span of a nested plan, outermost first: its level, the layers before it, its stages.

    Raises PlanError where the plan has no level-wise structure.
    """
    if plan.nested is None:
        raise PlanError(
            "the plan has no level-wise structure, so levelwise and pipedream cannot price it"
        )
    pending = [(levels, frozenset[int](), plan.nested)]
    while pending:
        level, before, stages = pending.pop()
        yield level, before, stages
        for stage in stages:
            if stage.inner:
                pending.append((level - 1, before, stage.inner))
            before = before | frozenset(stage.layers)


def evaluate_nested(problem: Problem, plan: Plan) -> float:
    """Period in ms of a nested plan under its problem's own cost model."""
    if plan.nested is None:
        raise PlanError(
            "the plan has no level-wise structure, so levelwise and pipedream cannot price it"
        )
    top = len(problem.cluster.levels)
    if problem.cost_model == "pipedream":
        return _Pipedream(problem).price(plan.nested, top, frozenset())
    return _levelwise(problem, plan.nested, top, frozenset())


def _levelwise(
    problem: Problem, stages: tuple[NestedStage, ...], level: int, before: frozenset[int]
) -> float:
    """The recurrence of the original with its quirks mended.

    A stage a..b of level l on m machines of U devices each costs
    max((T_{l-1}(a, b) + 4(m-1)/(m U) W / B_l) / m, 2 O_a / (B_l m), 2 O_b / (B_l m)), where the
    all-reduce is left out under synchronous schedules and transfers at both ends of the network.
    """
    graph, cluster = problem.graph, problem.cluster
    rate = cluster.levels[level - 1].bandwidth_bytes_per_s
    inner_width = cluster.group_sizes[level - 1]
    worst = 0.0
    entering = graph.cut_bytes(before) if before else 0
    for stage in stages:
        m = stage.replicas
        after = before | frozenset(stage.layers)
        leaving = graph.cut_bytes(after) if len(after) < len(graph) else 0
        busy = (
            _levelwise(problem, stage.inner, level - 1, before)
            if stage.inner
            else graph.compute_ms(stage.layers)
        )
        if not problem.synchronous:
            weights = graph.parameter_bytes(stage.layers)
            busy += 4 * (m - 1) * weights / (rate * m * inner_width) * 1e3
        moved = 2 * max(entering, leaving) / (rate * m * problem.compression) * 1e3
        worst = max(worst, busy / m, moved)
        before, entering = after, leaving
    return worst


@dataclass(frozen=True)
class PipedreamGraph:
    """The graph as the original sees it: unused tuple items are removed in one pass, states start at
    the first source, and the output of a state over-counts the true cut."""

    graph: LayerGraph

    @cached_property
    def removed(self) -> frozenset[int]:
        """Sinks whose text starts with __getitem__, which the original takes out before planning."""
        graph = self.graph
        return frozenset(
            v
            for v, layer in enumerate(graph.layers)
            if not graph.consumers[v] and layer.description.startswith("__getitem__")
        )

    @cached_property
    def kept(self) -> frozenset[int]:
        """The layers it plans."""
        return frozenset(range(len(self.graph))) - self.removed

    @cached_property
    def reachable(self) -> frozenset[int]:
        """The first source and everything behind it: its states are the closures of antichains here."""
        first = next(
            v for v in range(len(self.graph)) if v in self.kept and not self.graph.producers[v]
        )
        seen = {first}
        for v in range(first + 1, len(self.graph)):
            if v in self.kept and any(u in seen for u in self.graph.producers[v]):
                seen.add(v)
        return frozenset(seen)

    def output_bytes(self, state: frozenset[int]) -> int:
        """O of a state: outputs of its *augmented* antichain.

        aug(X) = X + {p before some u in X: a reader of p is neither before u nor u itself}. It counts
        a producer all of whose readers are inside, where they sit behind different members.
        """
        graph = self.graph
        members = [v for v in state if not any(w in state for w in graph.consumers[v])]
        counted = set(members)
        for u in members:
            ancestors = graph.down_closure([u]) - {u}
            counted |= {
                p
                for p in ancestors
                if any(w not in ancestors and w != u and w in self.kept for w in graph.consumers[p])
            }
        return sum(graph.layers[v].output_bytes for v in counted)

    def whole(self) -> frozenset[int]:
        """The last state. Layers that it lacks are dropped by the original without a word."""
        return self.graph.down_closure(self.reachable)


class _Pipedream:
    """The original's recurrence, term by term, for a given plan."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.view = PipedreamGraph(problem.graph)

    def price(self, stages: tuple[NestedStage, ...], level: int, before: frozenset[int]) -> float:
        """max over the span's stages: the first by the base term, the others by the recursion."""
        problem, view = self.problem, self.view
        graph, cluster = problem.graph, problem.cluster
        rate = cluster.levels[level - 1].bandwidth_bytes_per_s
        ratio = problem.activation_compression_ratio
        inner_width = 1 if level == 1 else cluster.levels[level - 2].children
        worst = 0.0
        for position, stage in enumerate(stages):
            m = stage.replicas
            own = frozenset(stage.layers) - view.removed
            busy = (
                self.price(stage.inner, level - 1, before) if stage.inner else graph.compute_ms(own)
            )
            # The base divides the all-reduce by the inner width, the recursion does not (quirk 2).
            width = inner_width if position == 0 else 1
            weights = graph.parameter_bytes(own)
            busy = (busy + 4 * (m - 1) * weights / (rate * m * width) * 1e3) / m
            after = before | own
            if ratio is not None and position > 0:
                busy = max(busy, 2 * view.output_bytes(before) / (rate * m * ratio) * 1e3)
                if not view.kept <= after:
                    busy = max(busy, 2 * view.output_bytes(after) / (rate * m * ratio) * 1e3)
            worst = max(worst, busy)
            before = after
        return worst


def pipedream_data_parallel_ms(problem: Problem) -> float:
    """The original's data-parallel baseline: every level replicates everything, u_l as printed."""
    cluster = problem.cluster
    view = PipedreamGraph(problem.graph)
    weights = problem.graph.parameter_bytes(view.kept)
    time_ms = problem.graph.compute_ms(view.kept)
    width = 1
    for level in cluster.levels:
        m = level.children
        sync_ms = 4 * (m - 1) * weights / (level.bandwidth_bytes_per_s * m * width) * 1e3
        time_ms = math.fsum([time_ms, sync_ms]) / m
        width = m
    return time_ms
