"""A plan that a person brings, made a plan of the problem, or refused with the reason."""

from dataclasses import replace
from pathlib import Path

from pipeplan.cli.stage_text import parse_stages, placed, stages_of_layers, with_copies
from pipeplan.core.check import violations
from pipeplan.core.codec import PlanFile
from pipeplan.core.errors import PlanError
from pipeplan.core.plan import Plan, Stage
from pipeplan.core.problem import Constraints, Problem

__all__ = ["plan_for", "plan_of_stages"]


def plan_of_stages(problem: Problem, stages: str | None, rank_map: Path | None) -> Plan:
    """The plan of --stages, with the ranks of --rank-map where given; without --stages the
    profile's own stage_id values say the layers.

    Raises PlanError or ProblemError where this is no plan of the problem's graph and cluster.
    """
    from pipeplan.codegen.rank_map import read_rank_map

    graph, cluster = problem.graph, problem.cluster
    ranks = None
    if rank_map is not None:
        ranks = read_rank_map(rank_map, devices=cluster.devices).stages
    if stages is not None:
        parts = parse_stages(graph, stages)
    elif rank_map is None:
        raise PlanError("which plan? Give --stages, --plan or --rank-map")
    else:
        known = graph.metadata.get("stage_of")
        if not isinstance(known, dict) or not known:
            raise PlanError(
                "a rank map says which ranks hold a stage, not which layers: the profile has no "
                "stage_id, so give the layers with --stages 0-24 25-39",
                path=rank_map,
            )
        parts = stages_of_layers(graph, known)
    return _checked(problem, placed(cluster, parts, ranks))


def plan_for(problem: Problem, file: PlanFile) -> Plan:
    """A plan file's stages and ranks under another question, layers matched by id.

    Raises PlanError where the profile has other layers or the cluster too few devices.
    """
    theirs, ours = file.problem.graph, problem.graph
    stages = []
    for s, stage in enumerate(file.plan.stages):
        ids = [theirs.layers[v].id for v in stage.layers]
        unknown = next((x for x in ids if x not in ours.index), None)
        if unknown is not None:
            raise PlanError(f"stage {s} of the plan has layer {unknown}, the profile has not")
        stages.append(Stage(tuple(sorted(ours.index[x] for x in ids)), stage.ranks))
    return _checked(problem, Plan(tuple(stages)))


def _checked(problem: Problem, plan: Plan) -> Plan:
    """The plan, if it is one of this graph and cluster at all; limits and wishes are not looked at.

    Raises PlanError naming the layers or ranks at fault.
    """
    bare = replace(
        problem,
        scope="joint",
        cost_model="topology",
        use_fewer_machines=False,
        graph=replace(problem.graph, together=()),
        cluster=replace(problem.cluster, memory_bytes=None),
        constraints=Constraints(),
    )
    broken = violations(bare, plan, scope=False)
    if broken:
        shown = "; ".join(broken[:3])
        raise PlanError(
            f"this is no plan: {shown}" + (f"; and {len(broken) - 3} more" if broken[3:] else "")
        )
    return with_copies(bare, plan)
