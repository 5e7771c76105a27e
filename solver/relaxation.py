"""Lower bounds from the compute placed before each cut alone, and what they rule out.

A dynamic program over the cells of `solver.cells` bounds the period of every plan of a layout, and,
given an upper bound, says which arcs a better plan may use and how much is placed before them. On
chains the bound is exact but for the coupling of shared ports; where branches run in parallel it
weakens with their compute.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeplan.core.problem import Problem
from pipeplan.solver.arcs import Arc, Layout
from pipeplan.solver.cells import Cells, CellSums
from pipeplan.solver.geometry import Layout as Geometry
from pipeplan.solver.joint_stages import JointStages

__all__ = ["MOST_BLOCKS", "Relaxation", "relax_joint", "windows_of"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MOST_BLOCKS: Final = 4_000
"""Beyond this many blocks their reachability is too large to sum over."""
_SLACK: Final = 1e-9


@dataclass(frozen=True)
class Relaxation:
    """`bound_ms`: no plan of the layout has a smaller period. For plans within the upper bound that
    was given: `arcs` they may use, and for each position where a stage may start the least and the
    most compute (ms) before it; `placed[v]` is the first position from which block v is surely
    placed (the number of positions if none)."""

    bound_ms: float
    arcs: frozenset[Arc]
    before_ms: dict[int, tuple[float, float]]
    placed: tuple[int, ...]


def relax_joint(problem: Problem, sums: CellSums, layout: Layout, upper_ms: float) -> Relaxation:
    """Bound the period of joint plans of a layout, and say what plans of at most `upper_ms` use."""
    stages = JointStages(
        problem,
        Geometry(problem, layout.size),
        sums.compute_ms,
        sums.weights,
        sums.crossing,
        relaxed=True,
    )
    return _Passes(layout, stages, sums.cells, upper_ms * (1 + _SLACK)).result()


def windows_of(
    layout: Layout, cells: Cells, starts: dict[int, Bools]
) -> tuple[dict[int, tuple[float, float]], tuple[int, ...]]:
    """From the cells in which a cut may lie before each position where a stage may start: the least
    and most compute before it, and from where on each block is surely placed."""
    windows: dict[int, tuple[float, float]] = {}
    first_cell = np.full(layout.size + 1, len(cells) - 1)
    for p, possible in starts.items():
        rows = np.flatnonzero(possible)
        windows[p] = (float(cells.least[rows].min()), float(cells.most[rows].max()))
        first_cell[p] = rows.min()
    # Behind position p the cut is that before the next start, or everything is placed.
    nearest = np.minimum.accumulate(first_cell[::-1])[::-1]
    placed = tuple(int(np.argmax(nearest[1:] >= first)) for first in cells.first_in)
    return windows, placed


class _Passes:
    """The dynamic program from behind and from before."""

    def __init__(self, layout: Layout, stages: JointStages, cells: Cells, upper_ms: float) -> None:
        self.layout = layout
        self.stages = stages
        self.cells = cells
        self.upper = upper_ms

    def result(self) -> Relaxation:
        """Both passes, and what they rule out."""
        layout, size = self.layout, len(self.cells.least)
        behind = np.full((layout.size + 1, size), np.inf)
        behind[:, -1] = 0.0
        arcs: dict[int, list[Arc]] = {}
        for a in layout.leaves:
            arcs.setdefault(a.start, []).append(a)
        for p in sorted(arcs, reverse=True):
            for a in arcs[p]:
                cost = self._cost(a)
                np.maximum(cost, behind[p + a.machines][None, :], out=cost)
                np.minimum(behind[p], cost.min(axis=1), out=behind[p])
            behind[p, -1] = 0.0
        before = np.full((layout.size + 1, size), np.inf)
        before[0, 0] = 0.0
        kept: set[Arc] = set()
        for p in sorted(arcs):
            rows = np.flatnonzero(np.maximum(before[p], behind[p]) <= self.upper)
            if not len(rows):
                continue
            for a in arcs[p]:
                end = p + a.machines
                cost = self._cost(a)[rows]
                np.maximum(cost, before[p][rows, None], out=cost)
                np.minimum(before[end], cost.min(axis=0), out=before[end])
                if np.maximum(cost, behind[end][None, :]).min() <= self.upper:
                    kept.add(a)
        starts = {
            p: np.maximum(before[p], behind[p]) <= self.upper
            for p in sorted({a.start for a in kept})
        }
        bound = float(behind[0, 0]) * (1 - _SLACK)
        return Relaxation(bound, frozenset(kept), *windows_of(layout, self.cells, starts))

    def _cost(self, a: Arc) -> Floats:
        cost = self.stages.busy_ms(a.start, a.machines)
        cost[self.cells.barred] = np.inf
        return cost
