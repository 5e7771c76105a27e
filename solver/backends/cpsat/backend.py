"""The cpsat backend: builds the model of a layout, runs CP-SAT on it, and reads what it says."""

from dataclasses import dataclass
from typing import Final

from ortools.sat.python import cp_model

from pipeplan.core.errors import BackendBugError
from pipeplan.core.plan import Plan
from pipeplan.core.problem import Problem
from pipeplan.solver.arcs import Layout
from pipeplan.solver.backends.cpsat.constraints import Constraints
from pipeplan.solver.backends.cpsat.objective import JointObjective, NestedObjective, Objective
from pipeplan.solver.backends.cpsat.variables import Value, Variables
from pipeplan.solver.backends.interruptible import run_interruptible
from pipeplan.solver.bounds import longest_ms
from pipeplan.solver.cells import Crossing
from pipeplan.solver.layout_search import Finding, Task, search_layouts
from pipeplan.solver.options import SolveOptions
from pipeplan.solver.outcome import Outcome, Progress, ProgressEvent
from pipeplan.solver.quantize import Ticks
from pipeplan.solver.reduce import ReducedGraph

__all__ = ["CpsatEngine", "solve_cpsat"]

_MOST_LITERALS: Final = 60_000
"""Blocks times positions beyond which a model is too large to say anything within minutes."""
_MOST_BLOCKS: Final = 2_000
_MOST_ARCS: Final = 3_000
_LEAST_S: Final = 0.05
"""What a solver gets where less is left: it would say nothing at all."""


def solve_cpsat(
    problem: Problem,
    options: SolveOptions,
    progress: Progress | None = None,
    *,
    hint: Plan | None = None,
    lower_bound_ms: float = 0.0,
    crossing: Crossing | None = None,
) -> Outcome:
    """Solve with CP-SAT. `hint` is a plan to start from, `lower_bound_ms` a proven bound, and
    `crossing` what is known of the problem's cuts already.

    Raises TooLargeError where times or bytes are too far apart for 64-bit integers, ProblemError
    where cost model pipedream is asked of a graph whose states are no chain, and BackendBugError
    where the solver's answer contradicts a plan that is known.
    """
    return search_layouts(
        CpsatEngine(),
        problem,
        options,
        progress,
        hint=hint,
        lower_bound_ms=lower_bound_ms,
        crossing=crossing,
    )


@dataclass
class _Built:
    """A model with its variables and, where it has times, its objective."""

    model: cp_model.CpModel
    variables: Variables
    objective: Objective | None = None
    batch: bool = False


class CpsatEngine:
    """CP-SAT as an engine of `solver.layout_search`."""

    name = "cpsat"

    def fits(self, reduced: ReducedGraph, layout: Layout) -> bool:
        """Bounded by literals and arcs; what is beyond is answered by the line's plan."""
        small = len(reduced) <= _MOST_BLOCKS and len(reduced) * layout.size <= _MOST_LITERALS
        return small and layout.count() <= _MOST_ARCS

    def improve(self, task: Task, progress: Progress | None) -> Finding:
        """Minimise the period, or the batch time of a synchronous joint plan."""
        built = self._timed(task)
        if built is None:
            return Finding(complete=True, bound_ms=task.upper_ms)
        if task.hint is not None and not built.variables.hint(task.hint):
            raise BackendBugError("a plan does not fit the layout that it was found for")
        solver = _solver(task)
        solver.parameters.relative_gap_limit = task.options.gap
        status, interrupted = _run(solver, built, task, _reporter(built, progress))
        return self._finding(built, solver, status, interrupted, task)

    def price(self, task: Task) -> Finding:
        """Fix the plan's literals and minimise the rest: what the model makes of a plan."""
        built = self._timed(task)
        assert task.hint is not None
        if built is None or not built.variables.hint(task.hint):
            return Finding(complete=True)
        solver = _solver(task)
        solver.parameters.num_workers = 1
        solver.parameters.fix_variables_to_their_hinted_value = True
        status, interrupted = _run(solver, built, task, None)
        return self._finding(built, solver, status, interrupted, task)

    def feasible(self, task: Task) -> Finding:
        """The constraints alone."""
        built = _built(task)
        Constraints(built.variables).add(task.reduced.problem.cluster.memory_bytes)
        solver = _solver(task)
        status, interrupted = _run(solver, built, task, None)
        found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
        return Finding(
            complete=found or status == cp_model.INFEASIBLE,
            plan=built.variables.plan(Value(solver)) if found else None,
            interrupted=interrupted,
            **_size(built),
        )

    def least_memory(self, task: Task, low: int, high: int | None) -> tuple[int | None, bool]:
        """The constraints, with the memory as the objective."""
        built = _built(task)
        limit = built.model.new_int_var(low, 2**61 if high is None else high, "memory")
        Constraints(built.variables).add(limit)
        if task.relaxation is not None:
            built.variables.surely_placed(task.relaxation.placed)
        built.model.minimize(limit)
        solver = _solver(task)
        status, interrupted = _run(solver, built, task, None)
        if interrupted:
            raise KeyboardInterrupt
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return round(solver.objective_value), status == cp_model.OPTIMAL
        return None, status == cp_model.INFEASIBLE

    def _timed(self, task: Task) -> _Built | None:
        """The whole model; None where the bounds leave nothing to find."""
        problem = task.reduced.problem
        further = (problem.micro_batches or 1) - 1 if problem.scope == "joint" else 0
        batch = problem.synchronous and problem.scope == "joint"
        total = problem.graph.total_compute_ms
        # A batch is at least its first micro-batch's compute and a period for each further one.
        lower, upper = task.lower_ms, task.upper_ms
        if batch:
            lower = total / problem.cluster.devices
            upper = (task.upper_ms - total) / further if further else longest_ms(problem)
        ticks = Ticks.choose(
            reference_ms=lower, upper_ms=max(upper, lower), devices=problem.cluster.devices
        )
        # An own plan is to be found again; another layout's only to be beaten.
        spare = 2 if task.hint is not None or batch else -1
        steps = (max(0, ticks.steps_down(lower) - 2), ticks.steps_up(upper) + spare)
        if steps[1] < steps[0]:
            return None
        built = _built(task)
        Constraints(built.variables).add(problem.cluster.memory_bytes)
        if problem.scope == "nested":
            nested = NestedObjective(built.variables, ticks, steps)
            nested.add(task.relaxation)
            built.objective = nested
        else:
            joint = JointObjective(built.variables, ticks, steps)
            # Each further micro-batch adds a period that was rounded up.
            spare = 2 + further if task.hint is not None else -1
            bounds = (
                max(0, ticks.steps_down(task.lower_ms) - 2),
                ticks.steps_up(task.upper_ms) + spare,
            )
            joint.add(bounds if batch else None, task.relaxation)
            built.objective = joint
            built.batch = batch
        return built

    def _finding(
        self,
        built: _Built,
        solver: cp_model.CpSolver,
        status: cp_model.CpSolverStatus | None,
        interrupted: bool,
        task: Task,
    ) -> Finding:
        objective = built.objective
        assert objective is not None
        ticks = objective.ticks
        further = (task.reduced.problem.micro_batches or 1) if built.batch else 1
        # A period is rounded up to a step, and each further micro-batch adds one period.
        error = 2 * ticks.error_ms(objective.most_terms) * further
        rounding = ticks.step_ms * (further + 1)
        found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
        complete = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
        claimed = solver.objective_value * ticks.step_ms if found else None
        if status == cp_model.INFEASIBLE:
            bound = task.upper_ms - rounding - error
        elif status is None:
            # It did not listen and was left behind: there is no response to ask for a bound.
            bound = task.lower_ms
        else:
            bound = solver.best_objective_bound * ticks.step_ms - rounding - error
        reference = claimed or task.upper_ms
        return Finding(
            complete=complete,
            plan=built.variables.plan(Value(solver)) if found else None,
            claimed_ms=claimed,
            bound_ms=max(bound, task.lower_ms),
            tolerance=2 * (rounding + error) / reference if reference else 0.0,
            interrupted=interrupted,
            **_size(built),
        )


def _built(task: Task) -> _Built:
    model = cp_model.CpModel()
    return _Built(model, Variables(model, task.reduced, task.layout, task.clock.check))


def _size(built: _Built) -> dict[str, int]:
    proto = built.model.proto
    return {"variables": len(proto.variables), "constraints": len(proto.constraints)}


def _solver(task: Task) -> cp_model.CpSolver:
    """A solver for what is left of the task's time, now that its model is built."""
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = task.options.workers
    parameters.random_seed = task.options.seed
    parameters.log_search_progress = task.options.log
    parameters.log_to_stdout = False
    left = task.clock.share(1)
    if left is not None:
        parameters.max_time_in_seconds = max(_LEAST_S, left)
    # OR-Tools 9.15 calls feasible models of this form infeasible, and suboptimal solutions optimal,
    # when presolve looks for clauses that include each other (google/or-tools #5293).
    parameters.presolve_inclusion_work_limit = 0
    return solver


def _run(
    solver: cp_model.CpSolver,
    built: _Built,
    task: Task,
    report: "_Reporter | None",
) -> tuple[cp_model.CpSolverStatus | None, bool]:
    """What the solver says, None where it did not end when it was told to; and whether Ctrl-C ended
    it."""
    if task.options.log:
        solver.log_callback = _to_stderr
    if report is not None:
        solver.best_bound_callback = report.on_bound
    # Its own handler would end the search on Ctrl-C and say nothing about it.
    solver.parameters.catch_sigint_signal = False
    status, interrupted = run_interruptible(
        lambda: solver.solve(built.model, report),
        solver.stop_search,
        patience_s=10.0,
    )
    if status == cp_model.MODEL_INVALID:
        raise BackendBugError(f"CP-SAT refuses the model: {built.model.validate()[:300]}")
    return status, interrupted


def _to_stderr(line: str) -> None:
    import sys

    print(line, file=sys.stderr)


def _reporter(built: _Built, progress: Progress | None) -> "_Reporter | None":
    return None if progress is None else _Reporter(built, progress)


class _Reporter(cp_model.CpSolverSolutionCallback):
    """Passes incumbent and bound on."""

    def __init__(self, built: _Built, progress: Progress) -> None:
        super().__init__()
        assert built.objective is not None
        self._step_ms = built.objective.ticks.step_ms
        self._progress = progress
        self._best: float | None = None
        self._bound: float | None = None

    def on_solution_callback(self) -> None:
        """Called by CP-SAT for each better solution."""
        self._best = self.objective_value * self._step_ms
        self._bound = self.best_objective_bound * self._step_ms
        self._send()

    def on_bound(self, bound: float) -> None:
        """Called by CP-SAT for each better bound."""
        self._bound = bound * self._step_ms
        self._send()

    def _send(self) -> None:
        self._progress(ProgressEvent(self._best, self._bound))
