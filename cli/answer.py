"""What a solve answers, as data: the JSON document of `--json`, and the plan file."""

from typing import Any

from pipeplan import __version__
from pipeplan.core.bottleneck import bottleneck
from pipeplan.core.codec import PlanFile, Provenance, gap, plan_to_dict
from pipeplan.core.cost import baselines, evaluate
from pipeplan.core.plan import Plan
from pipeplan.core.problem import Problem
from pipeplan.solver.options import SolveOptions
from pipeplan.solver.result import SolveResult

__all__ = ["answer_to_dict", "given_file", "plan_file"]


def plan_file(problem: Problem, result: SolveResult, options: SolveOptions) -> PlanFile | None:
    """The plan file of a result; None where it holds no plan."""
    if result.plan is None:
        return None
    origin = Provenance(
        status=result.status.value,
        backend=result.stats.backend,
        version=__version__,
        bound_ms=result.bound_ms,
        limit=None if result.limit is None else result.limit.value,
        seed=options.seed,
        workers=options.workers,
    )
    return PlanFile(problem, result.plan, evaluate(problem, result.plan), origin)


def given_file(problem: Problem, plan: Plan) -> PlanFile:
    """The plan file of a plan that a person brought."""
    origin = Provenance(status="GIVEN", version=__version__)
    return PlanFile(problem, plan, evaluate(problem, plan), origin)


def answer_to_dict(
    problem: Problem, result: SolveResult, file: PlanFile | None, backend: str
) -> dict[str, Any]:
    """The document that `solve --json` prints; `backend` is the one asked for."""
    base = baselines(problem)
    objective = result.objective_ms
    price = None if file is None else file.evaluation
    limit = None if file is None else bottleneck(problem, file.plan, file.evaluation)
    return {
        "status": result.status.value,
        "limit": None if result.limit is None else result.limit.value,
        "objective_ms": objective,
        "bound_ms": result.bound_ms,
        "gap": None if objective is None else gap(objective, result.bound_ms),
        "seconds": result.stats.seconds,
        "backend": result.stats.backend,
        "backend_asked": backend,
        "scope": problem.scope,
        "cost_model": problem.cost_model,
        "schedule": problem.schedule,
        "baselines": {
            "one_device_ms": base.one_device_ms,
            "data_parallel_ms": base.data_parallel_ms,
        },
        "speedup": {
            "over_one_device": _ratio(base.one_device_ms, objective),
            "data_parallel_over_one_device": _ratio(base.one_device_ms, base.data_parallel_ms),
            "over_data_parallel": _ratio(base.data_parallel_ms, objective),
        },
        "period_ms": None if price is None else price.period_ms,
        "topology_period_ms": None if price is None else price.topology.period_ms,
        "bottleneck": None if limit is None else limit.text,
        "explanation": result.explanation or None,
        "smallest_memory_bytes": result.smallest_memory_bytes,
        "plan": None if file is None else plan_to_dict(file),
    }


def _ratio(baseline_ms: float, ms: float | None) -> float | None:
    """A speed-up; None without a plan, or where nothing takes any time."""
    return baseline_ms / ms if ms else None
