"""Cost models `levelwise` and `pipedream`: a nested plan's price, level by level (DESIGN 4.2)."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

from pipeplan.core.cuts import crossing_bytes
from pipeplan.core.errors import PlanError
from pipeplan.core.graph import LayerGraph
from pipeplan.core.plan import NestedStage, Plan, innermost
from pipeplan.core.problem import Problem

__all__ = [
    "LevelTime",
    "PipedreamGraph",
    "evaluate_nested",
    "limiting_stages",
    "pipedream_data_parallel_ms",
]


@dataclass(frozen=True, slots=True)
class LevelTime:
    """One stage of one level, by a level-wise model; times in ms per micro-batch of one replica.

    `inside_ms` is the period of the level below, or on level 1 the compute; `all_reduce_ms` is the
    one between the replicas. `transfer_ms` is what the ends of the stage take on all its replicas.
    The stage covers the innermost stages `first`..`last` of the plan.
    """

    level: int
    stage: NestedStage
    first: int
    last: int
    inside_ms: float
    all_reduce_ms: float
    transfer_ms: float

    @property
    def period_ms(self) -> float:
        """The larger of both: work is shared by the replicas, and transfers overlap with it."""
        return max((self.inside_ms + self.all_reduce_ms) / self.stage.replicas, self.transfer_ms)


def evaluate_nested(problem: Problem, plan: Plan) -> float:
    """Period in ms of a nested plan under its problem's own cost model.

    Raises PlanError where the plan has no level-wise structure. The structure's depth must be the
    cluster's, and its innermost stages the plan's.
    """
    nested = _nested(plan)
    return _recurrence(problem, nested).span(nested, len(problem.cluster.levels), 0)


def limiting_stages(problem: Problem, plan: Plan) -> tuple[LevelTime, ...]:
    """What sets the period of a nested plan: the slowest stage of the outermost level, inside it
    the slowest of the next, and so on, until a transfer or compute is what is slow.

    Raises PlanError as `evaluate_nested` does.
    """
    nested = _nested(plan)
    return _recurrence(problem, nested).limiting(nested, len(problem.cluster.levels), 0)


def _nested(plan: Plan) -> tuple[NestedStage, ...]:
    if plan.nested is None:
        raise PlanError(
            "the plan has no level-wise structure, so levelwise and pipedream cannot price it"
        )
    return plan.nested


def _recurrence(problem: Problem, nested: tuple[NestedStage, ...]) -> "_Recurrence":
    return (_Pipedream if problem.cost_model == "pipedream" else _Levelwise)(problem, nested)


def _leaves(stage: NestedStage) -> int:
    """Number of innermost stages of a stage: how many boundaries lie between its two ends."""
    return sum(map(_leaves, stage.inner)) if stage.inner else 1


class _Recurrence(ABC):
    """Boundaries are counted between innermost stages, from 0 before the first."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @abstractmethod
    def time(
        self, stage: NestedStage, level: int, start: int, end: int, position: int
    ) -> LevelTime:
        """A stage between boundaries `start` and `end`, at `position` within its group."""

    def times(self, stages: tuple[NestedStage, ...], level: int, start: int) -> Iterator[LevelTime]:
        """The stages of one group of a level, of which the first follows boundary `start`."""
        for position, stage in enumerate(stages):
            end = start + _leaves(stage)
            yield self.time(stage, level, start, end, position)
            start = end

    def span(self, stages: tuple[NestedStage, ...], level: int, start: int) -> float:
        """Period of a group: that of its slowest stage."""
        return max((x.period_ms for x in self.times(stages, level, start)), default=0.0)

    def limiting(
        self, stages: tuple[NestedStage, ...], level: int, start: int
    ) -> tuple[LevelTime, ...]:
        """The slowest stage of a group, and what is slowest inside it."""
        slowest = max(self.times(stages, level, start), key=attrgetter("period_ms"))
        if slowest.period_ms == slowest.transfer_ms or not slowest.stage.inner:
            return (slowest,)
        return (slowest, *self.limiting(slowest.stage.inner, level - 1, slowest.first))


class _Levelwise(_Recurrence):
    """The recurrence of the original with its quirks mended.

    A stage a..b of level l on m machines of U devices each costs
    max((T_{l-1}(a, b) + 4(m-1)/(m U) W / B_l) / m, 2 O_a / (B_l m), 2 O_b / (B_l m)), where the
    all-reduce is left out under synchronous schedules and transfers at both ends of the network.
    As in the original every link carries both directions; latency and duplex do not enter.
    """

    def __init__(self, problem: Problem, nested: tuple[NestedStage, ...]) -> None:
        super().__init__(problem)
        leaves = [stage.layers for stage in innermost(nested)]
        self.crossing = (0, *crossing_bytes(problem.graph, leaves), 0)

    def time(
        self, stage: NestedStage, level: int, start: int, end: int, position: int
    ) -> LevelTime:
        problem = self.problem
        graph, cluster = problem.graph, problem.cluster
        rate = cluster.levels[level - 1].bandwidth_bytes_per_s
        m = stage.replicas
        inside = (
            self.span(stage.inner, level - 1, start)
            if stage.inner
            else graph.compute_ms(stage.layers)
        )
        sync = 0.0
        if not problem.synchronous:
            weights = graph.parameter_bytes(stage.layers)
            sync = 4 * (m - 1) * weights / (rate * m * cluster.group_sizes[level - 1]) * 1e3
        crossing = max(self.crossing[start], self.crossing[end])
        moved = 2 * crossing / (rate * m * problem.compression) * 1e3
        return LevelTime(level, stage, start, end - 1, inside, sync, moved)


@dataclass(frozen=True)
class PipedreamGraph:
    """The graph as the original sees it: unused tuple items are removed in one pass, states start
    at the first source, and the output of a state over-counts the true cut."""

    graph: LayerGraph

    @cached_property
    def removed(self) -> frozenset[int]:
        """Sinks whose text starts with __getitem__: the original takes them out before planning."""
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
    def first(self) -> int:
        """The first source, where the original's states begin."""
        return min(v for v in self.kept if not self.graph.producers[v])

    def output_bytes(self, state: frozenset[int]) -> int:
        """O of a state: outputs of its *augmented* antichain.

        aug(X) = X + {p before some u in X: a reader of p is neither before u nor u itself}. It
        counts a producer all of whose readers are inside, where they sit behind different members.
        """
        graph = self.graph
        members = [v for v in state if not any(w in state for w in graph.consumers[v])]
        counted = set(members).union(*(self._brought(u) for u in members))
        return sum(graph.layers[v].output_bytes for v in counted)

    def _brought(self, u: int) -> frozenset[int]:
        """What a layer, as a member of an antichain, brings with it besides itself.

        Kept once found, but found for the layers asked about alone: sets of all ancestors of all
        layers would be quadratic in the graph.
        """
        if u not in self._found:
            consumers, kept = self.graph.consumers, self.kept
            above = self.graph.down_closure([u]) - {u}
            self._found[u] = frozenset(
                p
                for p in above
                if any(w not in above and w != u and w in kept for w in consumers[p])
            )
        return self._found[u]

    @cached_property
    def _found(self) -> dict[int, frozenset[int]]:
        return {}

    def whole(self) -> frozenset[int]:
        """The last state: grown from the first source by layers that read something in it, each
        with all that is before it. Layers that it lacks are dropped by the original without a word.
        """
        graph = self.graph
        state: set[int] = set()
        queue = [self.first]
        while queue:
            v = queue.pop()
            if v not in state:
                state.add(v)
                queue += graph.producers[v]
                queue += [w for w in graph.consumers[v] if w in self.kept]
        return frozenset(state)


class _Pipedream(_Recurrence):
    """The original's recurrence, term by term, for a given plan."""

    def __init__(self, problem: Problem, nested: tuple[NestedStage, ...]) -> None:
        super().__init__(problem)
        self.view = PipedreamGraph(problem.graph)
        self.ratio = problem.activation_compression_ratio
        self.crossing = () if self.ratio is None else self._crossing(nested)

    def _crossing(self, nested: tuple[NestedStage, ...]) -> tuple[int, ...]:
        """O of the state at each boundary between innermost stages; 0 before the first layer, and
        wherever all layers are behind."""
        out = [0]
        state: frozenset[int] = frozenset()
        for stage in innermost(nested):
            state |= frozenset(stage.layers) - self.view.removed
            out.append(0 if self.view.kept <= state else self.view.output_bytes(state))
        return tuple(out)

    def time(
        self, stage: NestedStage, level: int, start: int, end: int, position: int
    ) -> LevelTime:
        graph, cluster = self.problem.graph, self.problem.cluster
        rate = cluster.levels[level - 1].bandwidth_bytes_per_s
        m = stage.replicas
        own = frozenset(stage.layers) - self.view.removed
        inside = self.span(stage.inner, level - 1, start) if stage.inner else graph.compute_ms(own)
        # The base divides the all-reduce by the inner width, the recursion does not (quirk 2).
        inner_width = 1 if level == 1 else cluster.levels[level - 2].children
        width = inner_width if position == 0 else 1
        sync = 4 * (m - 1) * graph.parameter_bytes(own) / (rate * m * width) * 1e3
        # The first stage of a span is charged for no transfer (quirk 5).
        moved = 0.0
        if self.ratio is not None and position > 0:
            crossing = max(self.crossing[start], self.crossing[end])
            moved = 2 * crossing / (rate * m * self.ratio) * 1e3
        return LevelTime(level, stage, start, end - 1, inside, sync, moved)


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
