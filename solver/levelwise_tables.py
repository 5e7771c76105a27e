"""Cost model `levelwise`: tables over pairs of states, level by level (DESIGN 4.2).

States are cuts in an order in which subsets come first: all ideals, those along a line, or cells of
them. T(level, context)[u] holds, for each pair, the best value of the pipeline between them inside
one group of the level on exactly u devices. Where memory is limited, the in-flight micro-batches of
a stage depend on the devices behind it, wherever they are: the context is the number of devices
behind the group per copy of it, and the number of copies. Without a limit there is one context and
devices are not counted. Plans grow from the last stage to the first, so that what is behind is
known.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pipeplan.core.plan import NestedStage
from pipeplan.core.problem import Problem
from pipeplan.core.schedule import in_flight
from pipeplan.solver.clock import Pause, unhurried
from pipeplan.solver.level_stages import level_period_ms
from pipeplan.solver.minmax import min_over_middle

__all__ = ["LevelwiseTables", "PeakRule", "PeriodRule", "Rule"]

Matrix = npt.NDArray[np.float64]
Leaf = Callable[[int], Matrix]
"""A figure of one device's stage between every two states, infinite where there is none, by the
micro-batches that it holds."""


@dataclass(frozen=True, slots=True)
class _Context:
    """What surrounds a group: devices behind it per copy, and copies of it."""

    behind: Fraction
    copies: int


class Rule(Protocol):
    """What is minimised: values of single stages, combined by their maximum."""

    counts_devices: bool

    def leaf(self, held: int) -> Matrix:
        """Value of one device's stage between two states that holds `held` micro-batches."""

    def lift(self, level: int, replicas: int, inner: Matrix) -> Matrix:
        """Value of a stage of `replicas` machines of a level, each running `inner`."""


class PeriodRule:
    """Least period: `leaf` is a device's compute (ms) where the peak fits, `weights` (of pairs) and
    `crossing` (of states) are bytes. What takes longer than the known period `known_ms` of a plan
    is left out."""

    def __init__(
        self,
        problem: Problem,
        leaf: Leaf,
        weights: Matrix,
        crossing: Matrix,
        known_ms: float = math.inf,
    ) -> None:
        self.problem = problem
        self.counts_devices = problem.cluster.memory_bytes is not None
        self.leaf = leaf
        self._weights = weights
        self._crossing = crossing
        self._known_ms = known_ms

    def lift(self, level: int, replicas: int, inner: Matrix) -> Matrix:
        """The stage's period, on this level."""
        value = level_period_ms(self.problem, level, replicas, inner, self._weights, self._crossing)
        # Shared by all outer machines it would still be above a plan that is known.
        outer = math.prod(x.children for x in self.problem.cluster.levels[level:])
        return np.where(value > self._known_ms * outer * (1 + 1e-9), np.inf, value)


class PeakRule:
    """Least memory: the largest peak of any device, in bytes (`leaf`)."""

    counts_devices = True

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf

    def lift(self, level: int, replicas: int, inner: Matrix) -> Matrix:
        """Copies do not change a peak."""
        return inner


@dataclass(slots=True)
class LevelwiseTables:
    """Tables over `count` states, filled on demand, and the plan behind an entry.

    `between` gives the layers between two states. With `within` a stage may begin and end in the
    same state. `pause` is called now and then and may raise.
    """

    problem: Problem
    count: int
    rule: Rule
    between: Callable[[int, int], tuple[int, ...]]
    within: bool = False
    pause: Pause = unhurried
    _groups: dict[tuple[int, _Context], dict[int, Matrix]] = field(default_factory=dict)
    _spans: dict[tuple[int, _Context], dict[tuple[int, int], Matrix]] = field(default_factory=dict)
    _leaves: dict[int, Matrix] = field(default_factory=dict)
    _kinds: dict[tuple[int, _Context, int, int], list[tuple[int, Matrix]]] = field(
        default_factory=dict
    )

    def solve(self) -> tuple[float, tuple[NestedStage, ...] | None]:
        """Best value over all numbers of devices, and its plan; infinite and None without one."""
        top = len(self.problem.cluster.levels)
        context = _Context(Fraction(0), 1)
        groups = self._group(top, context)
        best_used = min(groups, key=lambda u: (groups[u][0, -1], u))
        value = float(groups[best_used][0, -1])
        if not np.isfinite(value):
            return np.inf, None
        return value, self._walk_group(top, context, best_used, 0, self.count - 1)

    def _group(self, level: int, context: _Context) -> dict[int, Matrix]:
        """Best over machines of the level, by devices used (under 0 where they do not count)."""
        key = (level, context)
        if key not in self._groups:
            out: dict[int, Matrix] = {}
            for (_, used), matrix in sorted(self._span(level, context).items()):
                out[used] = np.minimum(out[used], matrix) if used in out else matrix
            self._groups[key] = out
        return self._groups[key]

    def _stages(
        self, level: int, context: _Context, behind: int, m: int
    ) -> list[tuple[int, Matrix]]:
        """(devices, value) of every kind of stage of m machines with `behind` devices after it."""
        key = (level, context, behind, m)
        if key in self._kinds:
            return self._kinds[key]
        out: list[tuple[int, Matrix]] = []
        if not self.problem.constraints.straight or m == 1:
            if level == 1:
                inner = {1: self._leaf(context, behind, m)}
            else:
                inner = self._group(level - 1, self._inside(context, behind, m))
            for used, matrix in inner.items():
                devices = m * used if self.rule.counts_devices else 0
                out.append((devices, self.rule.lift(level, m, matrix)))
        if not self.rule.counts_devices:
            # One context, and few kinds: each is asked for again and again. With many contexts
            # keeping them would cost more memory than time.
            self._kinds[key] = out
        return out

    def _inside(self, context: _Context, behind: int, m: int) -> _Context:
        if not self.rule.counts_devices:
            return context
        copies = context.copies * m if self.problem.synchronous else 1
        return _Context((context.behind + behind) / m, copies)

    def _leaf(self, context: _Context, behind: int, m: int) -> Matrix:
        held = 1
        if self.rule.counts_devices:
            # Only ratios matter to the asynchronous schedule: clear the denominator. Synchronous
            # ones deal the batch to actual ranks.
            scale = context.copies if self.problem.synchronous else context.behind.denominator
            ranks = int((context.behind + behind + m) * scale)
            held = in_flight(self.problem.schedule, ranks, m * scale, self.problem.micro_batches)
        if held not in self._leaves:
            self._leaves[held] = self.rule.leaf(held)
        return self._leaves[held]

    def _span(self, level: int, context: _Context) -> dict[tuple[int, int], Matrix]:
        """Best by (machines, devices) of the stages of one group, last stage first."""
        key = (level, context)
        if key in self._spans:
            return self._spans[key]
        width = self.problem.cluster.levels[level - 1].children
        count = self.count
        # Only pipelines up to the end are asked of the outermost level.
        final = level == len(self.problem.cluster.levels)
        out: dict[tuple[int, int], Matrix] = {}
        by_machines: dict[int, list[int]] = {0: [0]}
        for total in range(1, width + 1):
            for rest in range(total):
                for behind in by_machines.get(rest, ()):
                    for devices, matrix in self._stages(level, context, behind, total - rest):
                        self.pause()
                        place = (total, behind + devices)
                        if place not in out:
                            out[place] = np.full((count, count), np.inf)
                            by_machines.setdefault(total, []).append(behind + devices)
                        if rest == 0:
                            np.minimum(out[place], matrix, out=out[place])
                        else:
                            min_over_middle(
                                matrix,
                                out[rest, behind],
                                out[place],
                                last=final,
                                within=self.within,
                                pause=self.pause,
                            )
        self._spans[key] = out
        return out

    def _walk_group(
        self, level: int, context: _Context, used: int, i: int, j: int
    ) -> tuple[NestedStage, ...]:
        value = self._group(level, context)[used][i, j]
        for (machines, devices), matrix in sorted(self._span(level, context).items()):
            if devices == used and matrix[i, j] == value:
                return self._walk_span(level, context, machines, devices, i, j)
        raise AssertionError("a table entry without a reason")

    def _walk_span(
        self, level: int, context: _Context, machines: int, devices: int, i: int, j: int
    ) -> tuple[NestedStage, ...]:
        span = self._span(level, context)
        value = span[machines, devices][i, j]
        for rest in range(machines):
            for behind in sorted({d for m, d in span if m == rest} if rest else {0}):
                m = machines - rest
                for own, matrix in self._stages(level, context, behind, m):
                    if behind + own != devices:
                        continue
                    if rest == 0:
                        if matrix[i, j] == value:
                            return (self._stage(level, context, behind, m, own, i, j),)
                        continue
                    both = np.maximum(matrix[i, :], span[rest, behind][:, j])
                    for k in np.flatnonzero(both == value).tolist():
                        return (
                            self._stage(level, context, behind, m, own, i, k),
                            *self._walk_span(level, context, rest, behind, k, j),
                        )
        raise AssertionError("a table entry without a reason")

    def _stage(
        self, level: int, context: _Context, behind: int, m: int, devices: int, i: int, j: int
    ) -> NestedStage:
        layers = self.between(i, j)
        if level == 1:
            return NestedStage(layers, m)
        inside = self._inside(context, behind, m)
        inner = self._walk_group(level - 1, inside, devices // m, i, j)
        return NestedStage(layers, m, inner)
