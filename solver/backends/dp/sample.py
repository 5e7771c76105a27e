"""A better plan where there are too many ideals to list: the exact search over a sample of them.

The sample holds the cuts that least crosses for every amount of compute placed before, and their
neighbours, which balance the stages. The neighbourhood of the best plan's cuts is then searched
again and again, as long as that finds a better plan. What is found is a plan like any other;
nothing is proven by it.
"""

import contextlib
from typing import Final

from pipeplan.core.cost import evaluate
from pipeplan.core.plan import Plan
from pipeplan.core.problem import Problem
from pipeplan.solver.backends.dp.joint_search import JointState, search_joint
from pipeplan.solver.backends.dp.pairs import usable
from pipeplan.solver.cells import Crossing, affordable_cells
from pipeplan.solver.clock import Clock, OutOfTimeError
from pipeplan.solver.ideals import table_of
from pipeplan.solver.neighbours import Neighbours
from pipeplan.solver.reduce import ReducedGraph

__all__ = ["improved_plan"]

_SPREAD: Final = 25_000
"""Neighbours of all minimum cuts together."""
_MOST_SPREAD: Final = 50
"""Neighbours of each."""
_AROUND: Final = 2_000
"""Neighbours of every cut of the best plan."""
_REACH: Final = 0.6
"""How far a neighbour may be away, in times of the least period that compute allows."""
_BETTER: Final = 1 - 1e-4
"""A search that gains less is the last one."""


def improved_plan(
    problem: Problem,
    reduced: ReducedGraph,
    plan: Plan,
    limit_s: float,
) -> tuple[Plan, Crossing | None]:
    """The best joint plan over samples of ideals, or the given one where that is no worse; and what
    was found out of the cuts that least crosses, if there was time for it."""
    search = _Search(problem, reduced, plan, Clock(limit_s))
    with contextlib.suppress(OutOfTimeError):
        search.run()
    return search.plan, search.crossing


class _Search:
    def __init__(self, problem: Problem, reduced: ReducedGraph, plan: Plan, clock: Clock) -> None:
        self.problem = problem
        self.reduced = reduced
        self.clock = clock
        self.plan = plan
        self.price_ms = evaluate(problem, plan).objective_ms
        self.neighbours = Neighbours(reduced)
        self.crossing: Crossing | None = None
        self.reach_ms = _REACH * problem.graph.total_compute_ms / problem.cluster.devices

    def run(self) -> None:
        """The wide sample, then the surroundings of what was found."""
        self.clock.check()
        cells = affordable_cells(self.reduced)
        self.crossing = Crossing(self.reduced, cells, self.clock.check)
        centres = self.crossing.ideals
        self._among(centres, min(_MOST_SPREAD, _SPREAD // max(1, len(centres))))
        while self._among(self._cuts(), _AROUND):
            pass

    def _cuts(self) -> tuple[int, ...]:
        """The best plan's cuts by their blocks as bits."""
        block_of = self.reduced.block_of
        return tuple(
            sum(1 << b for b in {block_of[v] for v in prefix}) for prefix in self.plan.prefixes
        )

    def _among(self, centres: tuple[int, ...], count: int) -> bool:
        """Search the neighbourhoods of some ideals, and the best plan's own cuts; whether that
        found a better plan. Raises OutOfTimeError, with the best plan kept."""
        found = dict.fromkeys((0, (1 << len(self.reduced)) - 1, *self._cuts()))
        for centre in centres:
            self.clock.check()
            found.update(dict.fromkeys(self.neighbours.near(centre, count, self.reach_ms)))
        table = usable(self.problem, table_of(self.reduced, list(found), pause=self.clock.check))
        if table is None:
            return False
        before = self.price_ms
        state = JointState(best=self.plan)
        try:
            search_joint(self.problem, table, state, gap=0.0, clock=self.clock, progress=None)
        finally:
            self._take(state.best)
        return self.price_ms < before * _BETTER

    def _take(self, plan: Plan | None) -> None:
        if plan is None:
            return
        price = evaluate(self.problem, plan).objective_ms
        if price < self.price_ms:
            self.plan, self.price_ms = plan, price
