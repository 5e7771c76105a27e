"""The milp backend: builds the linear model of a layout and runs a MathOpt solver on it."""

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from ortools.math_opt.python import mathopt  # type: ignore[import-untyped]
from ortools.util.python.solve_interrupter import (  # type: ignore[import-untyped]
    SolveInterrupter,
)

from pipeplan.core.errors import BackendBugError, BackendUnavailableError
from pipeplan.core.memory import stage_memory
from pipeplan.core.plan import Plan
from pipeplan.core.problem import Problem
from pipeplan.solver.arcs import Layout
from pipeplan.solver.backends.interruptible import run_interruptible
from pipeplan.solver.backends.milp.constraints import Constraints
from pipeplan.solver.backends.milp.objective import JointObjective, NestedObjective, Objective
from pipeplan.solver.backends.milp.variables import Variable, Variables
from pipeplan.solver.backends.stdout_aside import stdout_aside
from pipeplan.solver.bounds import longest_ms
from pipeplan.solver.layout_search import Finding, Task, search_layouts
from pipeplan.solver.options import MilpSolver, SolveOptions
from pipeplan.solver.outcome import Outcome, Progress
from pipeplan.solver.reduce import ReducedGraph

__all__ = ["MilpEngine", "solve_milp"]

_MOST_BINARIES: Final = 30_000
"""Blocks times positions beyond which a model is too large to say anything within minutes."""
_MOST_BLOCKS: Final = 2_000
_MOST_ARCS: Final = 1_000
_TOLERANCES: Final[dict[MilpSolver, float]] = {"highs": 2e-6, "gscip": 2e-6, "cpsat": 2e-5}
"""Relative error of objectives and bounds: rows hold to 1e-9, integers to 1e-6, of a T near 1; and
CP-SAT rounds every row to integers."""
_LEAST_S: Final = 0.05
"""What a solver gets where less is left: it would say nothing at all."""
_GRID: Final = 1e7
"""Steps of CP-SAT for a unit of what is no integer: by default it takes whole numbers alone."""
_SOLVERS: Final = {
    "highs": mathopt.SolverType.HIGHS,
    "gscip": mathopt.SolverType.GSCIP,
    "cpsat": mathopt.SolverType.CP_SAT,
}


def solve_milp(
    problem: Problem,
    options: SolveOptions,
    progress: Progress | None = None,
    *,
    hint: Plan | None = None,
    lower_bound_ms: float = 0.0,
) -> Outcome:
    """Solve with the MILP solver that the options name. `hint` is a plan to start from and
    `lower_bound_ms` a proven bound.

    Raises BackendUnavailableError where this build of OR-Tools lacks the solver, ProblemError where
    cost model pipedream is asked of a graph whose states are no chain, and BackendBugError where
    the solver's answer contradicts a plan that is known.
    """
    return search_layouts(
        MilpEngine(), problem, options, progress, hint=hint, lower_bound_ms=lower_bound_ms
    )


@dataclass
class _Built:
    model: mathopt.Model
    variables: Variables
    objective: Objective | None = None


@dataclass
class _Answer:
    """What a solver said: `values` of the best solution, `optimal` and `infeasible` as proven."""

    values: dict[Variable, float] | None
    objective: float
    bound: float
    optimal: bool
    infeasible: bool
    interrupted: bool


class MilpEngine:
    """A MathOpt solver as an engine of `solver.layout_search`."""

    name = "milp"

    def fits(self, reduced: ReducedGraph, layout: Layout) -> bool:
        """Bounded by binaries and arcs; what is beyond is answered by the line's plan."""
        small = len(reduced) <= _MOST_BLOCKS and len(reduced) * layout.size <= _MOST_BINARIES
        return small and layout.count() <= _MOST_ARCS

    def improve(self, task: Task, progress: Progress | None) -> Finding:
        """Minimise the period, or the batch time of a synchronous joint plan."""
        del progress  # HiGHS reports nothing on the way
        built = _timed(task)
        if built is None:
            return Finding(complete=True, bound_ms=task.upper_ms)
        answer = _run(built, task, hint=task.hint)
        return self._finding(built, answer, task)

    def price(self, task: Task) -> Finding:
        """Fix the plan's binaries and minimise the rest: what the model makes of a plan."""
        built = _timed(task)
        assert task.hint is not None
        values = None if built is None else built.variables.values(task.hint)
        if built is None or values is None:
            return Finding(complete=True)
        _fix(values)
        return self._finding(built, _run(built, task, hint=None), task)

    def feasible(self, task: Task) -> Finding:
        """The constraints alone."""
        built = _built(task)
        Constraints(built.variables).add(_memory(task.reduced.problem))
        answer = _run(built, task, hint=None)
        return Finding(
            complete=answer.values is not None or answer.infeasible,
            plan=None if answer.values is None else built.variables.plan(answer.values),
            interrupted=answer.interrupted,
            **_size(built),
        )

    def least_memory(self, task: Task, low: int, high: int | None) -> tuple[int | None, bool]:
        """The constraints, with the memory as the objective; the bytes are those of the plan."""
        built = _built(task)
        constraints = Constraints(built.variables)
        unit = constraints.memory_unit()
        # Rounded outwards: a plan of exactly so many bytes is none to rule out.
        most = math.inf if high is None else high / unit * (1 + 1e-9)
        limit = built.model.add_variable(lb=low / unit * (1 - 1e-9), ub=most)
        constraints.add(limit)
        if task.relaxation is not None:
            built.variables.surely_placed(task.relaxation.placed)
        built.model.minimize(limit)
        answer = _run(built, task, hint=None)
        if answer.interrupted:
            raise KeyboardInterrupt
        if answer.values is None:
            return None, answer.infeasible
        plan = built.variables.plan(answer.values)
        peak = max(x.peak_bytes for x in stage_memory(task.reduced.problem, plan))
        # On CP-SAT's grid the smallest is not told from what is nearly as small.
        return peak, answer.optimal and task.options.milp_solver != "cpsat"

    def _finding(self, built: _Built, answer: _Answer, task: Task) -> Finding:
        assert built.objective is not None
        unit = built.objective.unit_ms
        tolerance = _TOLERANCES[task.options.milp_solver]
        claimed = None if answer.values is None else answer.objective * unit
        bound = task.upper_ms if answer.infeasible else answer.bound * unit
        return Finding(
            complete=answer.optimal or answer.infeasible,
            plan=None if answer.values is None else built.variables.plan(answer.values),
            claimed_ms=claimed,
            bound_ms=max(task.lower_ms, bound * (1 - tolerance)),
            tolerance=3 * tolerance,
            interrupted=answer.interrupted,
            **_size(built),
        )


def _memory(problem: Problem) -> float | None:
    limit = problem.cluster.memory_bytes
    return None if limit is None else float(limit)


def _built(task: Task) -> _Built:
    model = mathopt.Model(name="pipeplan")
    return _Built(model, Variables(model, task.reduced, task.layout, task.clock.check))


def _timed(task: Task) -> _Built | None:
    """The whole model; None where the bounds leave nothing to find."""
    problem = task.reduced.problem
    further = (problem.micro_batches or 1) - 1
    batch = problem.synchronous and problem.scope == "joint"
    total = problem.graph.total_compute_ms
    tolerance = _TOLERANCES[task.options.milp_solver]
    spare = 1 + (tolerance if task.hint is not None else -tolerance)
    lower, upper = task.lower_ms, task.upper_ms * spare
    if batch:
        lower = total / problem.cluster.devices * (1 - tolerance)
        upper = (upper - total) / further if further else longest_ms(problem)
    if upper < lower:
        return None
    built = _built(task)
    Constraints(built.variables).add(_memory(problem))
    unit = lower or upper or 1.0
    if problem.scope == "nested":
        nested = NestedObjective(built.variables, unit, (lower, upper))
        nested.add(task.relaxation)
        built.objective = nested
    else:
        joint = JointObjective(built.variables, unit, (lower, upper))
        joint.add((task.lower_ms, task.upper_ms * spare) if batch else None, task.relaxation)
        built.objective = joint
    return built


def _fix(values: dict[Variable, float]) -> None:
    for variable, value in values.items():
        variable.lower_bound = variable.upper_bound = value


def _size(built: _Built) -> dict[str, int]:
    return {
        "variables": built.model.get_num_variables(),
        "constraints": built.model.get_num_linear_constraints(),
    }


def _parameters(task: Task, solver: MilpSolver) -> mathopt.SolveParameters:
    options = task.options
    parameters = mathopt.SolveParameters(enable_output=False)
    gap = max(options.gap, _TOLERANCES[solver] / 4)
    left = task.clock.share(1)
    if left is not None:
        parameters.time_limit = timedelta(seconds=max(_LEAST_S, left))
    if solver == "highs":
        # HiGHS refuses the common fields for threads and seed.
        parameters.highs.int_options["threads"] = options.workers
        parameters.highs.int_options["random_seed"] = options.seed
        parameters.highs.double_options["mip_rel_gap"] = gap
        parameters.highs.double_options["mip_feasibility_tolerance"] = 1e-9
        parameters.highs.double_options["primal_feasibility_tolerance"] = 1e-9
    else:
        parameters.threads = 1 if solver == "gscip" else options.workers
        parameters.random_seed = options.seed
        parameters.relative_gap_tolerance = gap
    if solver == "cpsat":
        # The same unsound presolve as in the cpsat backend.
        parameters.cp_sat.presolve_inclusion_work_limit = 0
        parameters.cp_sat.mip_var_scaling = _GRID
        parameters.cp_sat.mip_max_bound = 100 * _GRID
        parameters.cp_sat.absolute_gap_limit = 0.0
    return parameters


def _run(built: _Built, task: Task, *, hint: Plan | None) -> _Answer:
    """Run the solver that the options name."""
    solver = task.options.milp_solver
    model_parameters = mathopt.ModelSolveParameters()
    values = None if hint is None else built.variables.values(hint)
    if values is not None:
        model_parameters.solution_hints.append(mathopt.SolutionHint(variable_values=values))
    interrupter = SolveInterrupter()
    try:
        with stdout_aside():
            result, interrupted = run_interruptible(
                lambda: mathopt.solve(
                    built.model,
                    _SOLVERS[solver],
                    params=_parameters(task, solver),
                    model_params=model_parameters,
                    interrupter=interrupter,
                ),
                interrupter.interrupt,
                # HiGHS does not listen, and looks at the clock only between its phases.
                patience_s=0.5,
                limit_s=task.clock.share(1),
            )
    except (AttributeError, ValueError, RuntimeError) as error:
        # OR-Tools 9.15 hides the status of such an error behind an AttributeError (#4606).
        raise BackendUnavailableError(
            f"the MILP solver {solver} did not run: {error}; choose another of "
            f"{', '.join(_SOLVERS)}"
        ) from error
    if result is None:
        return _Answer(None, math.inf, -math.inf, False, False, interrupted=interrupted)
    return _answer(result, solver, interrupted=interrupted)


def _answer(result: mathopt.SolveResult, solver: MilpSolver, *, interrupted: bool) -> _Answer:
    reason = result.termination.reason
    known = {
        mathopt.TerminationReason.OPTIMAL,
        mathopt.TerminationReason.INFEASIBLE,
        mathopt.TerminationReason.FEASIBLE,
        mathopt.TerminationReason.NO_SOLUTION_FOUND,
        mathopt.TerminationReason.INFEASIBLE_OR_UNBOUNDED,
    }
    if reason not in known:
        raise BackendBugError(f"the MILP solver {solver} ended with {reason.value}")
    found = result.has_primal_feasible_solution()
    bounds = result.termination.objective_bounds
    return _Answer(
        values=dict(result.variable_values()) if found else None,
        objective=result.objective_value() if found else math.inf,
        bound=bounds.dual_bound,
        optimal=reason == mathopt.TerminationReason.OPTIMAL,
        # No objective is unbounded below: T has a lower bound.
        infeasible=reason
        in (
            mathopt.TerminationReason.INFEASIBLE,
            mathopt.TerminationReason.INFEASIBLE_OR_UNBOUNDED,
        ),
        interrupted=interrupted,
    )
