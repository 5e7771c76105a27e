"""The dynamic program along one order for joint plans (cost model `topology`).

best[p][i] is the least period of the rest of the pipeline when the first i cut positions and p
ranks of the block are taken: min over j > i, k ranks of max(stage(i, j, p, k), best[p+k][j]).
Ports that several stages share are counted for each stage alone: plans are priced properly later.
"""

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

__all__ = ["joint_plans"]

Floats = npt.NDArray[np.float64]
_ALL_WIDTHS: Final = 16
"""Replicas up to which every number is tried."""
_MOST_STAGES: Final = 12
"""Most stages that the program counts where their number matters."""


def joint_plans(
    problem: Problem, line: Line, late: Callable[[], bool], pause: Pause
) -> Iterator[Plan]:
    """Candidates for each block size, numbers of ranks used and, where it matters, of stages; once
    it is late and there is a candidate, no further one is looked for. `pause` is called now and
    then and may raise."""
    found = False
    for block in block_sizes(problem):
        program = _Program(problem, line, block, pause)
        for ranks in program.ends():
            for stages in program.solve(ranks):
                found = True
                yield joint_plan(
                    problem.cluster,
                    tuple((line.reduced.layers(line.blocks(i, j)), k) for i, j, k in stages),
                    program.geometry.copies,
                )
                if late():
                    return
            if found and late():
                return


class _Program:
    """One block size along one line."""

    def __init__(self, problem: Problem, line: Line, block: int, pause: Pause) -> None:
        self.problem = problem
        self.pause = pause
        self.line = line
        self.block = block
        self.geometry = Geometry(problem, block)
        size = len(line)
        i, j = np.arange(size)[:, None], np.arange(size)[None, :]
        self.barred = i >= j
        for cut in line.forced:
            self.barred |= (i < cut) & (cut < j)
        self.weights = line.weights[None, :] - line.weights[:, None]
        self.stages = JointStages(
            problem,
            self.geometry,
            line.compute_ms[None, :] - line.compute_ms[:, None],
            self.weights,
            line.crossing,
            line.crossing,
        )
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
        barred = self.barred.copy()
        i, j = np.arange(size)[:, None], np.arange(size)[None, :]
        if self.counts_stages:
            for at, wanted in self.pinned:
                inside = (i <= at) & (at < j)
                barred |= inside if wanted != stage else (j <= at) | (at < i)
        for p in range(ranks - 1, -1, -1):
            for k in self._widths(ranks - p):
                self.pause()
                rest = ending if last else (best if after is None else after)[p + k]
                if not np.isfinite(rest).any():
                    continue
                cost = np.maximum(self._stage(p, k, ranks), rest[None, :])
                cost[barred] = np.inf
                to = cost.argmin(axis=1)
                value = cost[np.arange(size), to]
                better = value < best[p]
                best[p][better] = value[better]
                choice[p, better, 0] = to[better]
                choice[p, better, 1] = k
        return best, choice

    def _widths(self, free: int) -> list[int]:
        """Replicas worth a try: all in small blocks, else few, whole servers, or the rest."""
        if self.problem.constraints.straight:
            return [1]
        server = self.problem.cluster.devices_per_server
        return [
            k
            for k in range(1, free + 1)
            if k <= _ALL_WIDTHS or k == free or k % max(server, self.block // 16) == 0
        ]

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

    def _stage(self, p: int, k: int, ranks: int) -> Floats:
        """Busiest resource of a stage on ranks p..p+k-1 for every pair of cuts; inf where it does
        not fit the memory."""
        cost = self.stages.busy_ms(p, k)
        if self.problem.cluster.memory_bytes is not None:
            cost[self._need(p, k, ranks) > self.problem.cluster.memory_bytes] = np.inf
        return cost

    def _need(self, p: int, k: int, ranks: int) -> Floats:
        """Bytes of a rank for every pair of cuts (DESIGN 4.3)."""
        problem, line, copies = self.problem, self.line, self.geometry.copies
        held = in_flight(problem.schedule, (ranks - p) * copies, k * copies, problem.micro_batches)
        versions = problem.weight_copies + (0 if problem.synchronous else held - 1)
        kept = line.kept[None, :] - line.kept[:, None]
        need: Floats = versions * self.weights
        if not problem.recompute:
            return need + held * kept
        fresh = line.inputs[None, :] - line.inputs[:, None]
        return need + kept + held * (fresh + line.crossing[:, None])
