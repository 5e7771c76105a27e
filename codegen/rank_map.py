"""Which rank runs which stage: from a plan, to and from PipeDream's JSON, and the check of a map
that someone brings.

PipeDream's conf.json holds `module_to_stage_map` (the stage of each module, the criterion last),
`stage_to_rank_map` ({"0": [ranks], ...}) and sometimes `stage_to_depth_map` (warm-up micro-batches
of each stage). Ranks are numbered depth first: rank r sits in server r // devices of a server.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pipeplan.core.cluster import MAX_DEVICES
from pipeplan.core.errors import PlanError
from pipeplan.core.jsontext import parse_json, read_text
from pipeplan.core.plan import Plan
from pipeplan.core.units import plural

__all__ = ["RankMap", "parse_rank_map", "rank_map_of", "read_rank_map", "warm_up"]

_STAGE: Final = re.compile(r"0|[1-9][0-9]{0,5}", re.ASCII)
_FIELDS: Final = ("module_to_stage_map", "stage_to_rank_map", "stage_to_depth_map")


@dataclass(frozen=True, slots=True)
class RankMap:
    """Ranks of each stage, as they were given (the order numbers the replicas).

    `modules` is PipeDream's `module_to_stage_map` and `depths` its `stage_to_depth_map`, None where
    there is none. Raises PlanError unless every stage has ranks and no rank is given twice.
    """

    stages: tuple[tuple[int, ...], ...]
    modules: tuple[int, ...] | None = None
    depths: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not self.stages:
            raise PlanError("a rank map has no stages")
        owner: dict[int, int] = {}
        for stage, ranks in enumerate(self.stages):
            if not ranks:
                raise PlanError(f"stage {stage} has no ranks")
            for rank in ranks:
                if rank in owner:
                    raise PlanError(
                        f"rank {rank} is given twice: to stage {owner[rank]} and to stage {stage}"
                    )
                owner[rank] = stage

    @property
    def ranks(self) -> tuple[int, ...]:
        """Every rank that holds a stage, ascending."""
        return tuple(sorted(rank for ranks in self.stages for rank in ranks))

    @property
    def is_permutation(self) -> bool:
        """Whether the ranks are exactly 0..N-1, which PipeDream's runtime demands."""
        return self.ranks == tuple(range(len(self.ranks)))

    def to_pipedream(self) -> dict[str, Any]:
        """PipeDream's conf.json; `parse_rank_map` gives the same map back.

        Raises PlanError where its runtime could not use it: some ranks below the highest are idle.
        """
        if not self.is_permutation:
            idle = sorted(set(range(self.ranks[-1])) - set(self.ranks))
            raise PlanError(
                f"rank {idle[0]} is idle, and PipeDream's runtime needs ranks 0 to N-1 without gaps"
            )
        count = len(self.stages)
        # A stage is one module here, and the criterion runs in the last stage.
        modules = (*range(count), count - 1) if self.modules is None else self.modules
        out: dict[str, Any] = {
            "module_to_stage_map": list(modules),
            "stage_to_rank_map": {str(s): list(ranks) for s, ranks in enumerate(self.stages)},
        }
        if self.depths is not None:
            out["stage_to_depth_map"] = {str(s): depth for s, depth in enumerate(self.depths)}
        return out


def rank_map_of(plan: Plan) -> RankMap:
    """The map of a plan."""
    return RankMap(tuple(stage.ranks for stage in plan.stages))


def warm_up(stages: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """Micro-batches that PipeDream's 1F1B runs forward at each stage before its first backward:
    (N - 1 - ranks of earlier stages) // own ranks."""
    out: list[int] = []
    remaining = sum(map(len, stages))
    for ranks in stages:
        out.append((remaining - 1) // len(ranks))
        remaining -= len(ranks)
    return tuple(out)


def read_rank_map(path: Path, *, devices: int | None = None) -> RankMap:
    """Read and check a file in PipeDream's format (see `parse_rank_map`)."""
    return parse_rank_map(read_text(path, PlanError), path, devices=devices)


def parse_rank_map(
    text: str, path: str | Path | None = None, *, devices: int | None = None
) -> RankMap:
    """Read and check a rank map in PipeDream's format.

    Stages must be 0..S-1, ranks 0..N-1, each once; with `devices`, ranks must be below it and may
    leave some idle. `module_to_stage_map`, where given, names every stage, in order, and ends with
    the criterion in the last stage. Raises PlanError with the line where one can be told.
    """
    document = parse_json(text, PlanError, path)
    reader = _Reader(text, path)
    if not isinstance(document, dict):
        raise reader.error("a rank map is a JSON object with stage_to_rank_map")
    given = document.get("stage_to_rank_map")
    if not isinstance(given, dict):
        raise reader.error("a rank map needs stage_to_rank_map: an object of lists of ranks")
    by_stage = reader.by_stage(given, "stage_to_rank_map")
    stages = tuple(reader.ranks(stage, value) for stage, value in enumerate(by_stage))
    reader.check_ranks(stages, devices)
    modules = reader.modules(document.get("module_to_stage_map"), len(stages))
    depths = reader.depths(document.get("stage_to_depth_map"), stages)
    return RankMap(stages, modules, depths)


class _Reader:
    """Checks the parts of one document; every complaint names the place."""

    def __init__(self, text: str, path: str | Path | None) -> None:
        self.text = text
        self.path = path

    def error(self, message: str, field: str = "", key: str = "", number: int = -1) -> PlanError:
        """A complaint at the first line that holds `number` inside `key` inside `field`."""
        at = 0
        found = not field
        for word in (field, key):
            match = re.compile(rf'"{re.escape(word)}"\s*:').search(self.text, at) if word else None
            if match is not None:
                at, found = match.end(), True
        if number >= 0:
            match = re.compile(rf"(?<![\w.-]){number}(?![\w.])").search(self.text, at)
            at = at if match is None else match.start()
        line = self.text.count("\n", 0, at) + 1 if found and field else None
        return PlanError(message, path=self.path, line=line)

    def by_stage(self, given: Mapping[str, Any], field: str) -> list[Any]:
        """Values of an object keyed by stage number, in the order of the stages."""
        for key in given:
            if not _STAGE.fullmatch(key):
                raise self.error(f"{field}: {key[:80]!a} is no stage number", field, key)
        if not given:
            raise self.error(f"{field} names no stage", field)
        missing = [s for s in range(len(given)) if str(s) not in given]
        if missing:
            highest = max(given, key=int)
            raise self.error(
                f"{field}: stage {missing[0]} is missing, yet there is a stage {highest}", field
            )
        return [given[str(s)] for s in range(len(given))]

    def ranks(self, stage: int, value: Any) -> tuple[int, ...]:
        field, key = "stage_to_rank_map", str(stage)
        if not isinstance(value, list):
            raise self.error(f"{field}: stage {stage} has no list of ranks", field, key)
        if not value:
            raise self.error(f"{field}: stage {stage} has no ranks", field, key)
        for rank in value:
            if type(rank) is not int or not 0 <= rank < MAX_DEVICES:
                raise self.error(
                    f"{field}: stage {stage} names {repr(rank)[:80]}, which is no rank", field, key
                )
        return tuple(value)

    def check_ranks(self, stages: tuple[tuple[int, ...], ...], devices: int | None) -> None:
        """No rank twice, none out of range, none left out."""
        field = "stage_to_rank_map"
        owner: dict[int, int] = {}
        for stage, ranks in enumerate(stages):
            for rank in ranks:
                if rank in owner:
                    where = (
                        f"to stage {stage}"
                        if owner[rank] == stage
                        else f"to stage {owner[rank]} and to stage {stage}"
                    )
                    message = f"{field}: rank {rank} is given twice {where}"
                    raise self.error(message, field, str(stage), rank)
                if devices is not None and rank >= devices:
                    raise self.error(
                        f"{field}: stage {stage} is on rank {rank}, but "
                        f"{plural(devices, 'device has', 'devices have')} ranks 0 to {devices - 1}",
                        field,
                        str(stage),
                        rank,
                    )
                owner[rank] = stage
        if devices is not None:
            return
        missing = sorted(set(range(len(owner))) - owner.keys())
        if missing:
            beyond = max(owner)
            raise self.error(
                f"{field}: {plural(len(owner), 'rank is', 'ranks are')} named, so they must "
                f"be 0 to {len(owner) - 1}, but rank {missing[0]} is missing and rank {beyond} is "
                "there",
                field,
                str(owner[beyond]),
                beyond,
            )

    def modules(self, value: Any, stages: int) -> tuple[int, ...] | None:
        field = _FIELDS[0]
        if value is None:
            return None
        if not isinstance(value, list) or not all(type(x) is int for x in value):
            raise self.error(f"{field} is not a list of stage numbers", field)
        for position, stage in enumerate(value):
            if not 0 <= stage < stages:
                raise self.error(
                    f"{field}: module {position} is in stage {stage}, but stages are 0 to "
                    f"{stages - 1}",
                    field,
                )
            if position and stage < value[position - 1]:
                raise self.error(
                    f"{field}: module {position} is in stage {stage}, after one of the later stage "
                    f"{value[position - 1]}",
                    field,
                )
        unused = sorted(set(range(stages)) - set(value))
        if unused:
            raise self.error(f"{field}: no module is in stage {unused[0]}", field)
        if len(value) < 2 or value[-2] != value[-1]:
            raise self.error(
                f"{field}: the last entry is the criterion, which belongs to the stage of the last "
                "module",
                field,
            )
        return tuple(value)

    def depths(self, value: Any, stages: tuple[tuple[int, ...], ...]) -> tuple[int, ...] | None:
        field = _FIELDS[2]
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(f"{field} is not an object", field)
        depths = self.by_stage(value, field)
        if len(depths) != len(stages):
            raise self.error(
                f"{field} has {plural(len(depths), 'stage')}, not {len(stages)}", field
            )
        for stage, (depth, needed) in enumerate(zip(depths, warm_up(stages), strict=True)):
            if type(depth) is not int or not 0 <= depth <= MAX_DEVICES:
                raise self.error(
                    f"{field}: stage {stage} has depth {repr(depth)[:80]}", field, str(stage)
                )
            if depth < needed:
                raise self.error(
                    f"{field}: stage {stage} warms up with {plural(depth, 'micro-batch')}, "
                    f"but the ranks behind it need {needed} to be busy",
                    field,
                    str(stage),
                )
        return tuple(depths)
