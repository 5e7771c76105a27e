"""Cost model `pipedream`: the original's recurrence, term by term, over its own states.

DESIGN 4.2. The tables are filled like the original's (prefix first, last stage by itself), each
level from the one below, with matrices over (state before, state after) instead of loops. One
deviation: states must nest (the original compares incomparable states too, which can price a stage
below its layers).
"""

import math

import numpy as np
import numpy.typing as npt

from pipeplan.core.cost import baselines
from pipeplan.core.nested_cost import PipedreamGraph
from pipeplan.core.plan import NestedStage
from pipeplan.core.problem import Problem
from pipeplan.solver.backends.dp.pipedream_states import pipedream_states
from pipeplan.solver.clock import Clock
from pipeplan.solver.minmax import min_over_middle

__all__ = ["PipedreamTables"]

Matrix = npt.NDArray[np.float64]


class PipedreamTables:
    """Tables of one problem; `price` False fills them with least memory instead of least time."""

    def __init__(self, problem: Problem, clock: Clock, *, price: bool = True) -> None:
        self.problem = problem
        self.clock = clock
        self.price = price
        self.view = PipedreamGraph(problem.graph)
        self.states = pipedream_states(problem.graph)
        self.limit = problem.cluster.memory_bytes if price else None
        self.whole = len(self.states.sets) - 1
        # Replicating everything everywhere is a plan, unless memory or straightness forbids it.
        free = price and self.limit is None and not problem.constraints.straight
        self.known = baselines(problem).data_parallel_ms if free else np.inf
        below = (
            self.states.compute
            if price
            else np.where(np.isfinite(self.states.compute), 0.0, np.inf)
        )
        self.inner = [below]
        self.tables: list[list[Matrix]] = []
        levels = len(problem.cluster.levels)
        for level in range(1, levels + 1):
            table = self._fill(level, final=level == levels)
            self.tables.append(table)
            self.inner.append(table[-1])

    @property
    def value(self) -> float:
        """The answer in ms (or bytes); infinite where there is none."""
        return float(self.tables[-1][-1][0, self.whole])

    def _within(self, level: int, stage: Matrix, behind: int, replicas: int) -> Matrix:
        """ceil(machines behind / replicas) copies must fit (the one in flight is forgotten)."""
        if np.isfinite(self.known):
            # Shared by all outer machines it would still be above a plan that is known.
            outer = math.prod(x.children for x in self.problem.cluster.levels[level:])
            stage = np.where(stage > self.known * outer * (1 + 1e-9), np.inf, stage)
        copies = -(-behind // replicas)
        if not copies:
            return stage
        needed = copies * self.states.stashed
        if not self.price:
            return np.maximum(stage, needed)
        return stage if self.limit is None else np.where(needed > self.limit, np.inf, stage)

    def _base(self, level: int, m: int) -> Matrix:
        cluster = self.problem.cluster
        width = cluster.levels[level - 1].children
        inner_width = 1 if level == 1 else cluster.levels[level - 2].children
        return self._within(level, self._stage(level, m, inner_width), width - m, m)

    def _stage(self, level: int, m: int, inner_width: int) -> Matrix:
        """Inner pipeline plus all-reduce, over m machines."""
        below = self.inner[level - 1]
        if not self.price:
            return below
        rate = self.problem.cluster.levels[level - 1].bandwidth_bytes_per_s
        if m == 1:
            return below
        sync = 4 * (m - 1) * self.states.weights / (rate * m * inner_width) * 1e3
        return np.asarray((below + sync) / m)

    def _tail(self, level: int, m: int, replicas: int) -> Matrix:
        """The last of several stages; m is the number of machines up to and with it."""
        cluster = self.problem.cluster
        stage = self._stage(level, replicas, 1)
        ratio = self.problem.activation_compression_ratio
        if self.price and ratio is not None:
            rate = cluster.levels[level - 1].bandwidth_bytes_per_s
            moved = 2 * self.states.output / (rate * replicas * ratio) * 1e3
            after = moved.copy()
            after[self.whole] = 0.0
            stage = np.maximum(np.maximum(stage, moved[:, None]), after[None, :])
        return self._within(level, stage, cluster.levels[level - 1].children - m, replicas)

    def _choices(self, m: int) -> range:
        return range(1, min(m, 2) if self.problem.constraints.straight else m)

    def _fill(self, level: int, *, final: bool) -> list[Matrix]:
        """A[m - 1] for m machines of the level; on the last level, the empty state's row."""
        width = self.problem.cluster.levels[level - 1].children
        straight = self.problem.constraints.straight
        table: list[Matrix] = []
        rows = 1 if final else len(self.states.sets)
        for m in range(1, width + 1):
            if straight and m > 1:
                best = np.full((rows, len(self.states.sets)), np.inf)
            else:
                best = self._base(level, m)[:rows].copy()
            if self.problem.use_fewer_machines and m > 1:
                best = np.minimum(best, table[-1])
            for replicas in self._choices(m):
                self.clock.check()
                tail = self._tail(level, m, replicas)
                min_over_middle(table[m - replicas - 1], tail, best, pause=self.clock.check)
            table.append(best)
        return table

    def plan(self) -> tuple[NestedStage, ...]:
        """The plan behind the answer; of equal choices the first, as the original tries them."""
        return self._walk(len(self.tables), 0, self.whole, self.problem.cluster.levels[-1].children)

    def _walk(self, level: int, i: int, j: int, m: int) -> tuple[NestedStage, ...]:
        table = self.tables[level - 1]
        value = table[m - 1][i, j]
        straight = self.problem.constraints.straight
        if (m == 1 or not straight) and self._base(level, m)[i, j] == value:
            return (self._leaf(level, i, j, m),)
        if self.problem.use_fewer_machines and m > 1 and table[m - 2][i, j] == value:
            return self._walk(level, i, j, m - 1)
        for replicas in self._choices(m):
            both = np.maximum(table[m - replicas - 1][i, :], self._tail(level, m, replicas)[:, j])
            for k in np.flatnonzero(both == value).tolist():
                return (
                    *self._walk(level, i, k, m - replicas),
                    self._leaf(level, k, j, replicas),
                )
        raise AssertionError("a table entry without a reason")

    def _leaf(self, level: int, i: int, j: int, replicas: int) -> NestedStage:
        layers = self.states.sets[j] - self.states.sets[i]
        graph = self.problem.graph
        # Unused tuple items were taken out before planning: each goes where its producer is.
        extra = {v for v in self.view.removed if set(graph.producers[v]) & layers}
        inner: tuple[NestedStage, ...] = ()
        if level > 1:
            width = self.problem.cluster.levels[level - 2].children
            inner = self._walk(level - 1, i, j, width)
        return NestedStage(tuple(sorted(layers | extra)), replicas, inner)
