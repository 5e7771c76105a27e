"""A good plan first: dynamic programs along a few topological orders.

Cuts are restricted to the prefixes of one order, so the result is a plan, not an optimum; on
published profiles it is the optimum or within a few per cent of it, which makes it the hint and the
upper bound of the exact backends. Long lines are first cut at the cheapest position of each slice
of compute, then again with every position near the cuts found.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import numpy as np

from pipeplan.core.check import violations
from pipeplan.core.cost import evaluate
from pipeplan.core.plan import Plan
from pipeplan.core.problem import Problem
from pipeplan.solver.clock import Clock, OutOfTimeError
from pipeplan.solver.line import Line, line_of, topological_orders
from pipeplan.solver.linear_joint import joint_plans
from pipeplan.solver.linear_nested import nested_plans
from pipeplan.solver.reduce import ReducedGraph, reduce_graph

__all__ = ["linear_plan"]

_NEAR: Final = 6
"""Positions on either side of a cut that a second pass looks at."""


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

    def plans(asked: Problem, line: Line) -> Iterator[Plan]:
        if problem.scope == "joint":
            return joint_plans(asked, line, late, left.check)
        return nested_plans(asked, line, left.check)

    best: tuple[float, tuple[object, ...], Plan] | None = None
    with suppress(OutOfTimeError):
        for order in topological_orders(found):
            left.check()
            if best is not None and late():
                break
            for plan in _along(problem, line_of(found, order), plans):
                if violations(problem, plan):
                    continue
                candidate = (evaluate(problem, plan).objective_ms, plan.key(), plan)
                if best is None or candidate[:2] < best[:2]:
                    best = candidate
                    if told is not None:
                        told(plan)
    return None if best is None else best[2]


Plans = Callable[[Problem, Line], Iterator[Plan]]


def _along(problem: Problem, line: Line, plans: Plans) -> Iterator[Plan]:
    """Plans of the whole line, or, where it is long, of a coarse one and a finer one around it."""
    most = _positions(problem)
    if len(line) <= most:
        yield from plans(problem, line)
        return
    found = list(plans(problem, line.take(_slices(line, most))))
    yield from found
    valid = [plan for plan in found if not violations(problem, plan)]
    if valid:
        best = min(valid, key=lambda plan: (evaluate(problem, plan).objective_ms, plan.key()))
        cuts = np.flatnonzero(np.isin(line.layers, [len(prefix) for prefix in best.prefixes]))
        # As far on either side as the program can afford with this many cuts.
        reach = min(_NEAR, most // (2 * max(1, len(cuts))))
        if not reach:
            return
        near = {int(i) + d for i in cuts for d in range(-reach, reach + 1)}
        yield from plans(problem, line.take(near | _slices(line, max(2, most - len(near)))))


def _positions(problem: Problem) -> int:
    """How many cut positions the dynamic program can afford for this many devices."""
    devices = problem.cluster.devices
    return int(min(600, max(64, 2000 / devices)))


def _slices(line: Line, count: int) -> set[int]:
    """The position where least crosses, in each of `count` slices of about equal compute."""
    share = line.compute_ms + line.compute_ms[-1] * np.arange(len(line)) / (4 * len(line)) + 1e-300
    bucket = np.minimum((share / share[-1] * count).astype(int), count - 1)
    order = np.lexsort((np.arange(len(line)), line.crossing, bucket))
    first = np.unique(bucket[order], return_index=True)[1]
    return {int(i) for i in order[first]}
