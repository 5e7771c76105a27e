"""The dynamic program along one order for joint plans (cost model `topology`).

best[p][i] is the least period of the rest of the pipeline when the first i cut positions and p
ranks of the block are taken: min over j > i, k ranks of max(stage(i, j, p, k), best[p+k][j]).
Ports that several stages share are counted for each stage alone: plans are priced properly later.

Below a known objective only cuts that leave no more to either side than its ranks can do are looked
at: rank p has a window of positions, and the tables are filled between windows.
"""

import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeplan.core.check import block_sizes
from pipeplan.core.plan import Plan, joint_plan
from pipeplan.core.problem import Problem
from pipeplan.core.schedule import in_flight
from pipeplan.solver.clock import Pause
from pipeplan.solver.geometry import Layout as Geometry
from pipeplan.solver.joint_stages import JointStages
from pipeplan.solver.line import Line
from pipeplan.solver.peaks import peaks_of

__all__ = ["affordable_positions", "joint_plans"]

Floats = npt.NDArray[np.float64]
_ALL_WIDTHS: Final = 16
"""Replicas up to which every number is tried."""
_MOST_STAGES: Final = 12
"""Most stages that the program counts where their number matters."""
_SLACK: Final = 1e-9
_FOREVER_MS: Final = 1e200
"""Longer than any period, and still a number when multiplied by the ranks, none included."""


def joint_plans(
    problem: Problem,
    line: Line,
    late: Callable[[], bool],
    pause: Pause,
    upper_ms: float = math.inf,
) -> Iterator[Plan]:
    """Candidates for each block size, numbers of ranks used and, where it matters, of stages; none
    whose objective is surely above `upper_ms`. Once it is late and there is a candidate, no further
    one is looked for. `pause` is called now and then and may raise."""
    found = False
    for block in block_sizes(problem):
        program = _Program(problem, line, block, pause, _longest_period_ms(problem, upper_ms))
        for ranks in program.ends():
            for stages in program.solve(ranks):
                found = True
                yield joint_plan(
                    problem.cluster,
                    tuple((line.layers_between(i, j), k) for i, j, k in stages),
                    program.geometry.copies,
                )
                if late():
                    return
            if found and late():
                return


def _longest_period_ms(problem: Problem, upper_ms: float) -> float:
    """The longest period of plans whose objective is at most `upper_ms`."""
    if problem.micro_batches is None:
        return upper_ms
    further = problem.micro_batches - 1
    rest = upper_ms - problem.graph.total_compute_ms
    return rest / further if further else math.inf


def affordable_positions(problem: Problem, upper_ms: float, pairs: float) -> int:
    """How many cut positions of a line the program can have below a known objective, if it may look
    at so many pairs of them: the nearer the objective is to the work of all devices shared evenly,
    the more."""
    devices, total = problem.cluster.devices, problem.graph.total_compute_ms
    spare = min(devices * _longest_period_ms(problem, upper_ms) / total - 1, 1.0) if total else 1.0
    stages = sum(len(_widths(problem, devices, free)) for free in range(1, devices + 1))
    return int(math.sqrt(pairs / stages) / max(spare, 1e-3))


def _widths(problem: Problem, block: int, free: int) -> list[int]:
    """Replicas worth a try: all in small blocks, else few, whole servers, or the rest."""
    if problem.constraints.straight:
        return [1]
    server = problem.cluster.devices_per_server
    return [
        k
        for k in range(1, free + 1)
        if k <= _ALL_WIDTHS or k == free or k % max(server, block // 16) == 0
    ]


class _Program:
    """One block size along one line, for plans within a period."""

    def __init__(
        self, problem: Problem, line: Line, block: int, pause: Pause, period_ms: float
    ) -> None:
        self.problem = problem
        self.pause = pause
        self.line = line
        self.block = block
        self.period_ms = min(period_ms * (1 + _SLACK), _FOREVER_MS)
        self.geometry = Geometry(problem, block)
        asked = problem.constraints
        self.counts_stages = bool(
            asked.max_stages is not None or asked.pinned or problem.synchronous
        )
        pins = {line.reduced.block_of[v]: s for v, s in asked.pinned}
        where = {v: n for n, v in enumerate(line.order)}
        self.pinned = [
            (int(np.searchsorted(line.positions, where[v], side="right")) - 1, s)
            for v, s in pins.items()
        ]

    def ends(self) -> list[int]:
        """Numbers of ranks of the block to use: all, and fewer where memory makes it matter (ranks
        behind a stage add to what it holds)."""
        if self.problem.cluster.memory_bytes is None or self.problem.schedule == "gpipe":
            return [self.block]
        step = max(1, self.block // 4)
        return sorted({*range(self.block, 0, -step), 1}, reverse=True)

    def solve(self, ranks: int) -> Iterator[list[tuple[int, int, int]]]:
        """Pipelines as (first, last position, replicas): the best one, or the best for each number
        of stages."""
        if not self.counts_stages:
            table, choice = self._table(ranks, None, 0)
            yield from self._trace(table, [choice], 0)
            return
        most = min(self.block, _MOST_STAGES, self.problem.constraints.max_stages or self.block)
        for total in range(1, most + 1):
            best: Floats | None = None
            choices: list[npt.NDArray[np.int32]] = []
            for stage in range(total - 1, -1, -1):
                best, choice = self._table(ranks, best, stage, last=stage == total - 1)
                choices.insert(0, choice)
            assert best is not None
            yield from self._trace(best, choices, 0)

    def _table(
        self, ranks: int, after: Floats | None, stage: int, *, last: bool = False
    ) -> tuple[Floats, npt.NDArray[np.int32]]:
        """best[p][i] and its choice (j, k); `after` is the table of the next stage, None where
        stages are not counted or (`last`) nothing may follow."""
        size = len(self.line)
        best = np.full((self.block + 1, size), np.inf)
        if after is None and not last:
            best[:, -1] = 0.0
        choice = np.zeros((self.block + 1, size, 2), dtype=np.int32)
        ending = np.full(size, np.inf)
        ending[-1] = 0.0
        windows = [self._window(p, ranks) for p in range(ranks + 1)]
        for p in range(ranks - 1, -1, -1):
            rows = windows[p]
            for k in _widths(self.problem, self.block, ranks - p):
                self.pause()
                columns = windows[p + k]
                rest = (ending if last else (best if after is None else after)[p + k])[columns]
                if rows.start == rows.stop or not np.isfinite(rest).any():
                    continue
                cost = np.maximum(self._stage(p, k, ranks, rows, columns), rest[None, :])
                cost[self._barred(rows, columns, stage)] = np.inf
                to = cost.argmin(axis=1)
                value = cost[np.arange(len(cost)), to]
                better = value < best[p, rows]
                best[p, rows][better] = value[better]
                choice[p, rows, 0][better] = to[better] + columns.start
                choice[p, rows, 1][better] = k
        return best, choice

    def _window(self, p: int, ranks: int) -> slice:
        """Positions where the cut before rank p may lie: those behind which the period leaves time
        for the rest, and before which it leaves time for what is placed. All that is placed needs
        no rank behind it."""
        compute, copies = self.line.compute_ms, self.geometry.copies
        total = float(compute[-1])
        done = p * copies * self.period_ms
        left = total * (1 - _SLACK) - (ranks - p) * copies * self.period_ms
        stop = int(np.searchsorted(compute, done, side="right")) if p else 1
        first = int(np.searchsorted(compute, left, side="left"))
        return slice(min(first, stop), stop)

    def _barred(self, rows: slice, columns: slice, stage: int) -> npt.NDArray[np.bool_]:
        """Pairs of positions between which no stage lies, or not this one of those counted."""
        i, j = np.arange(rows.start, rows.stop)[:, None], np.arange(columns.start, columns.stop)
        barred = np.asarray(i >= j)
        for cut in self.line.forced:
            barred |= (i < cut) & (cut < j)
        if self.counts_stages:
            for at, wanted in self.pinned:
                barred |= (i <= at) & (at < j) if wanted != stage else (j <= at) | (at < i)
        return barred

    def _trace(
        self, best: Floats, choices: list[npt.NDArray[np.int32]], p: int
    ) -> Iterator[list[tuple[int, int, int]]]:
        """Follow the choices from the start; one table serves all stages where there is one."""
        last = len(self.line) - 1
        if not np.isfinite(best[0, 0]):
            return
        out: list[tuple[int, int, int]] = []
        i = 0
        while i < last:
            table = choices[min(len(out), len(choices) - 1)]
            to, k = (int(x) for x in table[p, i])
            out.append((i, to, k))
            i, p = to, p + k
        yield out

    def _stage(self, p: int, k: int, ranks: int, rows: slice, columns: slice) -> Floats:
        """Busiest resource of a stage on ranks p..p+k-1 between positions; inf where it does not
        fit the memory."""
        line = self.line
        weights = line.weights[None, columns] - line.weights[rows, None]
        stages = JointStages(
            self.problem,
            self.geometry,
            line.compute_ms[None, columns] - line.compute_ms[rows, None],
            weights,
            line.crossing[rows],
            line.crossing[columns],
        )
        cost = stages.busy_ms(p, k)
        limit = self.problem.cluster.memory_bytes
        if limit is not None:
            cost[self._need(p, k, ranks, rows, columns) > limit] = np.inf
        return cost

    def _need(self, p: int, k: int, ranks: int, rows: slice, columns: slice) -> Floats:
        """Bytes of a rank of a stage between positions (DESIGN 4.3)."""
        problem, line, copies = self.problem, self.line, self.geometry.copies
        held = in_flight(problem.schedule, (ranks - p) * copies, k * copies, problem.micro_batches)
        fresh = line.inputs[None, columns] - line.inputs[rows, None]
        return peaks_of(
            problem,
            weights=line.weights[None, columns] - line.weights[rows, None],
            kept=line.kept[None, columns] - line.kept[rows, None],
            entering=fresh + line.crossing[rows, None],
            held=held,
        )
