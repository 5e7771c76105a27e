"""A good plan first: dynamic programs along a few topological orders.

Cuts are restricted to the prefixes of one order, so the result is a plan, not an optimum; on
published profiles it is the optimum or within a few per cent of it, which makes it the hint and the
upper bound of the exact backends. Long lines are first cut at the cheapest position of each slice
of compute, then at more of them, as many as the plan found makes affordable, and last with every
position near the cuts found.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pipeplan.core.check import violations
from pipeplan.core.cost import evaluate
from pipeplan.core.plan import Plan
from pipeplan.core.problem import Problem
from pipeplan.solver.clock import Clock, OutOfTimeError
from pipeplan.solver.line import Line, line_of, topological_orders
from pipeplan.solver.linear_joint import affordable_positions, joint_plans
from pipeplan.solver.linear_nested import nested_plans
from pipeplan.solver.reduce import ReducedGraph, reduce_graph

__all__ = ["linear_plan"]

_NEAR: Final = 6
"""Positions on either side of a cut that a last pass looks at."""
_FINER: Final = 1.5
"""How many times as many positions make another pass worth its time."""
_LEAST_PAIRS: Final = 2e7
_MOST_PAIRS: Final = 16 * _LEAST_PAIRS
"""Pairs of cuts, over all stages of a pipeline, that a pass may look at: ten million take some
tenths of a second."""


def linear_plan(
    problem: Problem,
    reduced: ReducedGraph | None = None,
    clock: Clock | None = None,
    told: Callable[[Plan], None] | None = None,
) -> Plan | None:
    """The best valid plan found along a few orders; None where there was none (no proof). `told`
    hears of each better one as it is found.

    Once a quarter of the clock's time is gone and there is a plan, no further order is tried; once
    all of it is gone, what was found counts.

    Cost model pipedream has no such plan: its states need not follow an order of the layers.
    """
    if problem.cost_model == "pipedream":
        return None
    found = reduced or reduce_graph(problem)

    left = clock or Clock(None)

    def late() -> bool:
        return left.used(0.25)

    def plans(line: Line, upper_ms: float) -> Iterator[Plan]:
        if problem.scope == "joint":
            return joint_plans(problem, line, late, left.check, upper_ms)
        return nested_plans(problem, line, left.check)

    best: _Priced | None = None
    with suppress(OutOfTimeError):
        for order in topological_orders(found):
            left.check()
            if best is not None and late():
                break
            for candidate in _along(problem, line_of(found, order), plans, late):
                if best is None or candidate < best:
                    best = candidate
                    if told is not None:
                        told(best.plan)
    return None if best is None else best.plan


Plans = Callable[[Line, float], Iterator[Plan]]
"""Plans along a line, none of them surely above an objective."""


@dataclass(frozen=True, order=True)
class _Priced:
    """A valid plan with its price in ms: cheaper first, then as plans are preferred."""

    price_ms: float
    key: tuple[object, ...]
    plan: Plan = field(compare=False)


def _along(
    problem: Problem, line: Line, plans: Plans, late: Callable[[], bool]
) -> Iterator[_Priced]:
    """Plans of the whole line, or, where it is long, of a coarse one, of ever finer ones as long as
    a known plan makes them affordable, and of a finer one around the best."""
    best: _Priced | None = None

    def priced(chosen: Line) -> Iterator[_Priced]:
        nonlocal best
        for plan in plans(chosen, math.inf if best is None else best.price_ms):
            if not violations(problem, plan):
                found = _Priced(evaluate(problem, plan).objective_ms, plan.key(), plan)
                best = found if best is None else min(best, found)
                yield found

    count = _positions(problem)
    if len(line) <= count:
        yield from priced(line)
        return
    yield from priced(line.take(line.slices(count)))
    pairs = _LEAST_PAIRS
    while best is not None and problem.scope == "joint" and count < len(line) and not late():
        more = min(affordable_positions(problem, best.price_ms, pairs), len(line))
        if more >= _FINER * count or more == len(line):
            count = more
            yield from priced(line.take(line.slices(count)))
        elif pairs < _MOST_PAIRS:
            pairs *= 2
        else:
            break
    if best is None or late():
        return
    cuts = np.flatnonzero(np.isin(line.layers, [len(prefix) for prefix in best.plan.prefixes]))
    # As far on either side as the program can afford with this many cuts.
    reach = min(_NEAR, count // (2 * max(1, len(cuts))))
    if reach:
        near = {int(i) + d for i in cuts for d in range(-reach, reach + 1)}
        yield from priced(line.take(near | line.slices(max(2, count - len(near)))))


def _positions(problem: Problem) -> int:
    """How many cut positions the dynamic program can afford for this many devices."""
    devices = problem.cluster.devices
    return int(min(600, max(64, 2000 / devices)))
