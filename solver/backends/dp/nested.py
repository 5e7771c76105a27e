"""The dp backend's nested scope: tables filled, the plan behind them, and why there is none."""

import numpy as np
import numpy.typing as npt

from pipeplan.core.cost import baselines
from pipeplan.core.errors import ProblemError, TooLargeError
from pipeplan.core.memory import stage_memory
from pipeplan.core.plan import NestedStage, nested_plan
from pipeplan.core.problem import Constraints, Problem
from pipeplan.solver.backends.dp.joint import MOST_BYTES, peak_of
from pipeplan.solver.backends.dp.nested_pipedream import PipedreamTables
from pipeplan.solver.backends.dp.pairs import Pairs
from pipeplan.solver.clock import Clock
from pipeplan.solver.explain import does_not_fit, would_do
from pipeplan.solver.ideals import IdealTable
from pipeplan.solver.levelwise_tables import LevelwiseTables, PeakRule, PeriodRule, Rule
from pipeplan.solver.outcome import Outcome
from pipeplan.solver.result import Stats, Status

__all__ = ["MAX_NESTED_IDEALS", "solve_nested"]

Floats = npt.NDArray[np.float64]
MAX_NESTED_IDEALS = 2000
"""Stated limit of the nested scope: its tables hold a figure for each pair of ideals."""


def solve_nested(problem: Problem, table: IdealTable | None, clock: Clock) -> Outcome:
    """Solve a nested problem; `table` is None for cost model pipedream, which has its own states.

    Raises TooLargeError past the stated limit, ProblemError for what only other backends know, and
    OutOfTimeError.
    """
    asked = problem.constraints
    if asked.max_stages is not None or asked.pinned:
        raise ProblemError(
            "backend dp does not number the stages of nested plans, so it knows neither a limit on "
            "stages nor pinned layers there; use --backend cpsat"
        )
    if table is not None and len(table) > MAX_NESTED_IDEALS:
        raise TooLargeError(
            f"nested tables hold a figure for each pair of ideals, and the graph has {len(table)} "
            f"(limit {MAX_NESTED_IDEALS}); use --backend cpsat or --scope joint"
        )
    value, stages, smallest = _solve(problem, table, clock)
    notes = () if table is None else table.reduced.notes
    ideals = None if table is None else len(table)
    stats = Stats("dp", clock.seconds, ideals=ideals, notes=notes)
    if stages is None:
        return _infeasible(problem, smallest, stats)
    plan = nested_plan(problem.cluster, stages)
    return Outcome(Status.OPTIMAL, stats, plan=plan, claimed_ms=value, bound_ms=value)


def _solve(
    problem: Problem, table: IdealTable | None, clock: Clock
) -> tuple[float, tuple[NestedStage, ...] | None, int | None]:
    """Value, plan, and, where there is no plan, the smallest memory that would do."""
    if table is None:
        tables = PipedreamTables(problem, clock)
        if np.isfinite(tables.value):
            return tables.value, tables.plan(), None
        if problem.cluster.memory_bytes is None:
            return np.inf, None, None
        floor = PipedreamTables(problem, clock, price=False).value
        return np.inf, None, int(floor) if np.isfinite(floor) else None
    levels = _Levels(problem, table, clock)
    value, stages = levels.solve(levels.period_rule())
    if stages is not None or problem.cluster.memory_bytes is None:
        return value, stages, None
    _, roomiest = levels.solve(PeakRule(levels.peaks))
    if roomiest is None:
        return np.inf, None, None
    # Tables hold floats, which lose the last bytes of very large figures.
    peaks = stage_memory(problem, nested_plan(problem.cluster, roomiest))
    return np.inf, None, max(x.peak_bytes for x in peaks)


class _Levels:
    """Tables over all ideals, for two rules."""

    def __init__(self, problem: Problem, table: IdealTable, clock: Clock) -> None:
        self.problem = problem
        self.table = table
        self.clock = clock
        pairs = Pairs(problem, table)
        count = len(table)
        # Pairs that a device's stage may lie between: nested, and no forced cut inside.
        self.allowed = np.zeros((count, count), dtype=np.bool_)
        for i in range(count):
            self.allowed[i, pairs.followers(i)] = True

    def solve(self, rule: Rule) -> tuple[float, tuple[NestedStage, ...] | None]:
        """Best value and its plan."""

        def between(i: int, j: int) -> tuple[int, ...]:
            return tuple(sorted(self.table.layers_of(j) - self.table.layers_of(i)))

        return LevelwiseTables(
            self.problem, len(self.table), rule, between, pause=self.clock.check
        ).solve()

    def period_rule(self) -> PeriodRule:
        """Least period, within the memory limit."""
        problem, table = self.problem, self.table
        limit = problem.cluster.memory_bytes
        weights = table.parameter_bytes[None, :] - table.parameter_bytes[:, None]
        compute = table.compute_ms[None, :] - table.compute_ms[:, None]
        compute = np.where(self.allowed, compute, np.inf)
        known = np.inf
        if limit is None and problem.constraints == Constraints():
            # Replicating everything everywhere is a plan then.
            known = baselines(problem).data_parallel_ms

        def leaf(held: int) -> Floats:
            return compute if limit is None else np.where(self.peaks(held) > limit, np.inf, compute)

        crossing = table.cut_bytes.astype(np.float64)
        return PeriodRule(problem, leaf, weights.astype(np.float64), crossing, known)

    def peaks(self, held: int) -> Floats:
        """Peak bytes of stages that hold so many micro-batches."""
        table, count = self.table, len(self.table)
        before, after = np.divmod(np.arange(count * count, dtype=np.int64), count)
        weights = table.parameter_bytes[after] - table.parameter_bytes[before]
        peaks = peak_of(self.problem, table, before, after, weights, held)
        peaks = peaks.reshape(count, count).astype(np.float64)
        return np.where(self.allowed, peaks, np.inf)


def _infeasible(problem: Problem, smallest: int | None, stats: Stats) -> Outcome:
    limit = problem.cluster.memory_bytes
    if limit is None or smallest is None:
        why = "the demands on stages and cuts contradict each other"
        if problem.cost_model == "pipedream":
            why = (
                "the original must use every machine of every level, and a straight pipeline has "
                "no more stages than the graph has cuts; allow fewer machines"
            )
    elif smallest >= MOST_BYTES:
        smallest = None
        why = f"{does_not_fit(limit)}; what would do is more than any device has (2**62 bytes)"
    else:
        why = would_do(limit, smallest)
    return Outcome(Status.INFEASIBLE, stats, explanation=why, smallest_memory_bytes=smallest)
