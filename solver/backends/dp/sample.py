"""A better plan where there are too many ideals to list: the exact search over a sample of them.

The sample is spanned by a few topological orders: their prefixes, and unions and intersections of
prefixes that are about as long. Of those, each slice of compute keeps the ones that least crosses.
What is found is a plan like any other; nothing is proven by it.
"""

from itertools import combinations
from typing import Final

import numpy as np

from pipeplan.core.cost import evaluate
from pipeplan.core.plan import Plan
from pipeplan.core.problem import Problem
from pipeplan.solver.backends.dp.clock import Clock, OutOfTimeError
from pipeplan.solver.backends.dp.joint_search import JointState, search_joint
from pipeplan.solver.backends.dp.pairs import usable
from pipeplan.solver.ideals import IdealTable, table_of
from pipeplan.solver.line import topological_orders
from pipeplan.solver.reduce import ReducedGraph

__all__ = ["improved_plan"]

_OFFSETS: Final = (-24, -12, -6, -3, 0, 3, 6, 12, 24)
_SLICES: Final = 300
_PER_SLICE: Final = 90
_MOST: Final = 150_000


def improved_plan(
    problem: Problem,
    reduced: ReducedGraph,
    plan: Plan,
    limit_s: float,
) -> Plan:
    """The best joint plan over a sample of ideals, or the given one where that is no worse."""
    clock = Clock(limit_s)
    state = JointState(best=plan)
    try:
        table = usable(problem, _sample(reduced))
        if table is not None:
            search_joint(problem, table, state, gap=0.0, clock=clock, progress=None)
    except OutOfTimeError:
        pass
    found = state.best
    if found is None or _price(problem, found) >= _price(problem, plan):
        return plan
    return found


def _price(problem: Problem, plan: Plan) -> float:
    return evaluate(problem, plan).objective_ms


def _sample(reduced: ReducedGraph) -> IdealTable:
    chains: list[list[int]] = []
    for order in topological_orders(reduced):
        chain = [0]
        for block in order:
            chain.append(chain[-1] | 1 << block)
        chains.append(chain)
    found = {mask: None for chain in chains for mask in chain}
    last = len(reduced)
    for a, b in combinations(chains, 2):
        for at in range(last + 1):
            for offset in _OFFSETS:
                other = b[min(max(at + offset, 0), last)]
                # Unions and intersections of ideals are ideals.
                found[a[at] | other] = None
                found[a[at] & other] = None
        if len(found) > _MOST:
            break
    table = table_of(reduced, list(found))
    share = table.compute_ms / max(float(table.compute_ms[-1]), 1e-300)
    slices = np.minimum((share * _SLICES).astype(np.int64), _SLICES - 1)
    by_cut = np.lexsort((np.arange(len(table)), table.cut_bytes, slices))
    first = np.searchsorted(slices[by_cut], slices[by_cut], side="left")
    keep = np.zeros(len(table), dtype=np.bool_)
    keep[by_cut[np.arange(len(table)) - first < _PER_SLICE]] = True
    keep[[0, -1]] = True
    return table.take(keep)
