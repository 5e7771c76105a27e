"""The plans that anyone could write down: there before any search, however short its time."""

from collections.abc import Iterator

from pipeplan.core.check import violations
from pipeplan.core.plan import Plan, joint_plan, one_stage_nested
from pipeplan.core.problem import Problem

__all__ = ["first_plans"]


def first_plans(problem: Problem) -> Iterator[Plan]:
    """Everything on every device, and everything on one, where that is valid."""
    cluster = problem.cluster
    everything = tuple(range(len(problem.graph)))
    for wide in (True, False):
        if problem.scope == "joint":
            plan = joint_plan(cluster, ((everything, cluster.devices if wide else 1),))
        else:
            widths = tuple(level.children if wide else 1 for level in cluster.levels)
            plan = one_stage_nested(cluster, everything, widths)
        if not violations(problem, plan):
            yield plan
