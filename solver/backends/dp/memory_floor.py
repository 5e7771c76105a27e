"""The smallest device memory under which a joint plan exists: a DP over peaks, not times."""

import numpy as np

from pipeplan.core.check import block_sizes
from pipeplan.core.problem import Problem
from pipeplan.core.schedule import in_flight
from pipeplan.solver.backends.dp.joint import peak_of
from pipeplan.solver.backends.dp.pairs import Pairs
from pipeplan.solver.clock import Pause, unhurried
from pipeplan.solver.ideals import IdealTable

__all__ = ["smallest_memory_bytes"]

_MAX_PAIRS = 2_000_000


def smallest_memory_bytes(
    problem: Problem, table: IdealTable, pause: Pause = unhurried
) -> int | None:
    """Least possible largest peak over ranks, in bytes; None where no plan exists even without a
    limit, or where there are too many pairs of ideals to tell quickly.

    Counting ranks from the end makes the in-flight number of a stage a function of its own state:
    with b ranks from here on and k replicas it holds in_flight(b, k) micro-batches. Best is indexed
    by (stages from here on where that matters, b, ideal before). `pause` is called now and then and
    may raise.
    """
    count = len(table)
    if count > 4096:
        return None
    pairs = Pairs(problem, table)
    before, nexts = pairs.all
    if len(nexts) > _MAX_PAIRS:
        return None
    weights = table.parameter_bytes[nexts] - table.parameter_bytes[before]
    best: int | None = None
    for block in block_sizes(problem):
        copies = problem.cluster.devices // block
        found = _floor(problem, table, pairs, before, nexts, weights, block, copies, pause)
        if found is not None and (best is None or found < best):
            best = found
    return best


def _floor(
    problem: Problem,
    table: IdealTable,
    pairs: Pairs,
    before: np.ndarray,
    nexts: np.ndarray,
    weights: np.ndarray,
    block: int,
    copies: int,
    pause: Pause,
) -> int | None:
    asked = problem.constraints
    count, whole = len(table), len(table) - 1
    counted = asked.max_stages is not None or bool(asked.pinned)
    most = min(block, asked.max_stages or block)
    none = np.iinfo(np.int64).max
    # With stages counted, a plan of exactly `total` stages is looked for, for each total.
    answers: list[int] = []
    for total in range(1, most + 1) if counted else (0,):
        peak = np.full((block + 1, count), none, dtype=np.int64)
        peak[0, whole] = 0
        layers = [peak]
        for stage in range(total - 1, -1, -1) if counted else (0,):
            source = layers[-1]
            target = np.full_like(peak, none) if counted else peak
            allowed = np.ones(len(nexts), dtype=np.bool_)
            for layer, number in asked.pinned:
                holds = pairs.holds(layer)
                allowed &= holds[nexts] == (stage >= number)
                allowed &= holds[before] == (stage > number)
            rows = np.flatnonzero(allowed)
            for behind in range(1, block + 1):
                for k in range(1, (1 if asked.straight else behind) + 1):
                    pause()
                    held = in_flight(
                        problem.schedule, behind * copies, k * copies, problem.micro_batches
                    )
                    own = peak_of(problem, table, before[rows], nexts[rows], weights[rows], held)
                    value = np.maximum(own, source[behind - k, nexts[rows]])
                    np.minimum.at(target[behind], before[rows], value)
            layers.append(target)
        least = int(layers[-1][1:, 0].min())
        if least != none:
            answers.append(least)
    return min(answers, default=None)
