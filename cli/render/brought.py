"""A plan that a person brought: what it breaks, and how far from the best it is."""

from pipeplan.cli.render.words import percent
from pipeplan.core.codec import PlanFile
from pipeplan.core.cost import evaluate
from pipeplan.core.levers import on_topology
from pipeplan.core.units import format_ms
from pipeplan.solver.result import SolveResult, Status

__all__ = ["distance", "distance_lines", "violation_lines"]

_MOST = 10


def violation_lines(broken: tuple[str, ...]) -> list[str]:
    """Every rule that the plan breaks."""
    if not broken:
        return ["It breaks no limit and no constraint."]
    more = [f"... and {len(broken) - _MOST} more"] if len(broken) > _MOST else []
    return ["NOT VALID for this question:", *(f"- {x}" for x in broken[:_MOST]), *more]


def distance(file: PlanFile, best: SolveResult) -> float | None:
    """How much slower the plan is than the best one, relative to it, both by topology.

    Negative where it is faster, which a plan outside the scope can be. None without a best plan.
    """
    theirs = _best_ms(file, best)
    if theirs is None or not theirs:
        return None
    return file.evaluation.objective_ms / theirs - 1


def _best_ms(file: PlanFile, best: SolveResult) -> float | None:
    if best.plan is None:
        return None
    return evaluate(on_topology(file.problem), best.plan).objective_ms


def distance_lines(file: PlanFile, best: SolveResult | None) -> list[str]:
    """The best plan of the question, and this plan's distance from it."""
    if best is None:
        return []
    scope = file.problem.scope
    theirs = _best_ms(file, best)
    far = distance(file, best)
    if theirs is None or far is None or best.objective_ms is None:
        reason = f": {best.explanation}" if best.explanation else ""
        return [f"No best plan to compare with ({best.status.value}){reason}"]
    proven = "the best" if best.status is Status.OPTIMAL else "the best known"
    name = f"{proven} {scope} plan"
    if file.problem.scope == "nested":
        name += f" ({format_ms(best.objective_ms)} by {file.problem.cost_model})"
    mine = format_ms(file.evaluation.objective_ms)
    if abs(far) < 1e-9:
        said = f"As good as {name}: {mine} by topology."
    elif far > 0:
        said = f"{percent(far)} slower than {name}: {mine} against {format_ms(theirs)} by topology."
    else:
        said = (
            f"{percent(-far)} faster than {name}: {mine} against {format_ms(theirs)} by topology. "
            f"It is none of the plans that scope {scope} looks through."
        )
    lines = [said]
    if best.status is not Status.OPTIMAL and best.bound_ms is not None and scope == "joint":
        lines.append(f"No {scope} plan is below {format_ms(best.bound_ms)}.")
    return lines
