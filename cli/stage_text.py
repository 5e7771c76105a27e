"""Plans as people write them: `0-24:15 25-39:1`, or with ranks `0-24@0-6,8-14 25-39@7,15`."""

import re
from dataclasses import dataclass

from pipeplan.cli.layer_names import layer_ranges
from pipeplan.core.check import block_sizes, violations
from pipeplan.core.cluster import Cluster
from pipeplan.core.errors import PlanError
from pipeplan.core.graph import LayerGraph
from pipeplan.core.plan import Plan, Stage
from pipeplan.core.problem import Problem
from pipeplan.core.units import plural

__all__ = ["StageText", "parse_stages", "placed", "stages_of_layers", "with_copies"]

_RANKS = re.compile(r"[0-9]{1,7}(?:-[0-9]{1,7})?(?:,[0-9]{1,7}(?:-[0-9]{1,7})?)*")


@dataclass(frozen=True, slots=True)
class StageText:
    """One stage as written: its layers, and its replicas or its ranks, or neither."""

    layers: tuple[int, ...]
    replicas: int | None = None
    ranks: tuple[int, ...] | None = None


def parse_stages(graph: LayerGraph, text: str) -> tuple[StageText, ...]:
    """Read `LAYERS[:REPLICAS][@RANKS]` separated by blanks; every layer must be in one stage.

    Raises PlanError or ProblemError naming the stage and what is wrong with it.
    """
    stages = tuple(_stage(graph, part, s) for s, part in enumerate(text.split()))
    if not stages:
        raise PlanError("--stages is empty; write for instance 0-24:15 25-39:1")
    owner: dict[int, int] = {}
    for s, stage in enumerate(stages):
        for v in stage.layers:
            if v in owner:
                where = f"stage {s} twice" if owner[v] == s else f"stages {owner[v]} and {s}"
                raise PlanError(f"layer {v} ({graph.layers[v].id}) is in {where}")
            owner[v] = s
    missing = [v for v in range(len(graph)) if v not in owner]
    if missing:
        first = missing[0]
        raise PlanError(
            f"layer {first} ({graph.layers[first].id}) is in no stage"
            + (f", nor are {len(missing) - 1} others" if len(missing) > 1 else "")
            + f"; the profile has layers 0 to {len(graph) - 1}"
        )
    return stages


def _stage(graph: LayerGraph, text: str, number: int) -> StageText:
    head, at, ranks_text = text.rpartition("@")
    if not at:
        head = text
    replicas = None
    # An id may hold a colon: what follows the last one is a count only if it is a number.
    layers_text, colon, count = head.rpartition(":")
    if colon and count.isascii() and count.isdecimal() and len(count) < 8:
        replicas = int(count)
        if not replicas:
            raise PlanError(f"stage {number} ({text[:80]}) has 0 replicas")
    else:
        layers_text = head
    layers = tuple(sorted(layer_ranges(graph, layers_text)))
    if not at:
        return StageText(layers, replicas)
    ranks = _ranks(ranks_text, number)
    if replicas is not None and replicas != len(ranks):
        raise PlanError(
            f"stage {number} ({text[:80]}) has {plural(replicas, 'replica')} but "
            f"{plural(len(ranks), 'rank')}"
        )
    return StageText(layers, len(ranks), ranks)


def _ranks(text: str, stage: int) -> tuple[int, ...]:
    if not _RANKS.fullmatch(text):
        raise PlanError(f"stage {stage}: {text[:80]!r} is no list of ranks such as 0-6,8-14")
    out: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        end = int(last or first)
        if end < int(first):
            raise PlanError(f"stage {stage}: ranks {part} run backwards")
        if end - int(first) > 2**20:
            raise PlanError(f"stage {stage}: ranks {part} are more than any cluster has")
        out += range(int(first), end + 1)
    if len(set(out)) != len(out):
        raise PlanError(f"stage {stage}: a rank stands twice in {text[:80]}")
    return tuple(sorted(out))


def stages_of_layers(graph: LayerGraph, stage_of: dict[str, int]) -> tuple[StageText, ...]:
    """Stages from the stage of each layer, as PipeDream writes it into graph.txt (stage_id).

    Raises PlanError where a layer has none or a stage has no layer.
    """
    members: dict[int, list[int]] = {}
    for v, layer in enumerate(graph.layers):
        if layer.id not in stage_of:
            raise PlanError(f"the profile gives layer {layer.id} no stage_id: use --stages")
        members.setdefault(stage_of[layer.id], []).append(v)
    highest = max(members)
    empty = next((s for s in range(highest) if s not in members), None)
    if empty is not None or min(members) < 0:
        raise PlanError(f"the profile's stage_id values skip stage {empty or 0}")
    return tuple(StageText(tuple(members[s])) for s in range(highest + 1))


def placed(
    cluster: Cluster,
    stages: tuple[StageText, ...],
    ranks: tuple[tuple[int, ...], ...] | None = None,
) -> Plan:
    """The plan: with the ranks of a map where there is one, else those written, else consecutive.

    Raises PlanError where replicas are missing, ranks do not exist or hold two stages.
    """
    if ranks is not None and len(ranks) != len(stages):
        raise PlanError(
            f"the rank map has {plural(len(ranks), 'stage')}, not {len(stages)} as are given"
        )
    written = [stage.ranks is not None for stage in stages]
    if ranks is None and any(written) and not all(written):
        s = written.index(False)
        raise PlanError(f"stage {s} has no ranks (@...), though others have: give all or none")
    out: list[Stage] = []
    owner: dict[int, int] = {}
    following = 0
    for s, stage in enumerate(stages):
        if ranks is not None:
            own = tuple(sorted(ranks[s]))
            if stage.replicas is not None and stage.replicas != len(own):
                raise PlanError(
                    f"stage {s} has {plural(stage.replicas, 'replica')}, but "
                    f"{plural(len(own), 'rank')} in the map"
                )
        elif stage.ranks is not None:
            own = stage.ranks
        elif stage.replicas is not None:
            if stage.replicas > cluster.devices:
                raise PlanError(
                    f"stage {s} has {plural(stage.replicas, 'replica')} on "
                    f"{plural(cluster.devices, 'GPU')}"
                )
            own = tuple(range(following, following + stage.replicas))
        else:
            raise PlanError(f"stage {s}: how many replicas? Write LAYERS:REPLICAS or LAYERS@RANKS")
        following += len(own)
        for rank in own:
            if rank >= cluster.devices:
                raise PlanError(
                    f"stage {s} is on rank {rank}, but "
                    f"{plural(cluster.devices, 'GPU has', 'GPUs have')} ranks 0 to "
                    f"{cluster.devices - 1}"
                )
            if rank in owner:
                raise PlanError(f"rank {rank} holds stage {owner[rank]} and stage {s}")
            owner[rank] = s
        out.append(Stage(stage.layers, own))
    return Plan(tuple(out))


def with_copies(problem: Problem, plan: Plan) -> Plan:
    """The same plan, counted as the identical copies that it is made of where it is."""
    for block in block_sizes(problem):
        copies = problem.cluster.devices // block
        if all(stage.replicas % copies == 0 for stage in plan.stages):
            tried = Plan(plan.stages, copies)
            if not violations(problem, tried):
                return tried
    return plan
