"""Rank maps as PipeDream's runtime reads them, from people: which ranks hold which stage.

    {"module_to_stage_map": [0, 1, 1], "stage_to_rank_map": {"0": [0, 1, 2], "1": [3]}}

`module_to_stage_map` counts the modules of a generated model (its criterion included), not layers;
`stage_to_depth_map` overrides the number of micro-batches begun before the first backward pass.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from pipeplan.core.cluster import MAX_DEVICES
from pipeplan.core.errors import PlanError
from pipeplan.core.jsontext import parse_json, read_text

__all__ = ["RankMap", "parse_rank_map", "read_rank_map"]

_KNOWN: Final = ("module_to_stage_map", "stage_to_rank_map", "stage_to_depth_map")


@dataclass(frozen=True, slots=True)
class RankMap:
    """Ranks of each stage (ascending), and the stage of each module where the file says."""

    ranks: tuple[tuple[int, ...], ...]
    modules: tuple[int, ...] | None = None

    @property
    def devices(self) -> int:
        """Ranks of all stages together."""
        return sum(map(len, self.ranks))


def read_rank_map(path: Path) -> RankMap:
    """Read and validate a rank map; raises PlanError naming file, line and what is wrong."""
    return parse_rank_map(read_text(path, PlanError), path)


def parse_rank_map(text: str, path: str | Path) -> RankMap:
    """A rank map from its JSON text: the ranks are 0 to N-1, each once, and no stage is missing.

    Raises PlanError otherwise; `path` serves its messages.
    """
    data = parse_json(text, PlanError, path)
    file = _File(text, str(path))
    if not isinstance(data, dict):
        file.fail("a rank map is a JSON object with stage_to_rank_map", None)
    for key in data:
        if key not in _KNOWN:
            file.fail(f"unknown key {key[:80]!r}; a rank map has {', '.join(_KNOWN)}", key)
    ranks = file.stages(data)
    file.depths(data, len(ranks))
    return RankMap(ranks, file.modules(data, len(ranks)))


@dataclass(frozen=True, slots=True)
class _File:
    text: str
    path: str

    def fail(self, message: str, key: str | None) -> NoReturn:
        """Complain, with the line of the last `"key":` where there is one."""
        line = None
        if key is not None:
            found = re.finditer(rf'"{re.escape(key)}"\s*:', self.text)
            for match in found:
                line = self.text.count("\n", 0, match.start()) + 1
        raise PlanError(message, path=self.path, line=line)

    def stages(self, data: dict[str, Any]) -> tuple[tuple[int, ...], ...]:
        """stage_to_rank_map, checked."""
        table = data.get("stage_to_rank_map")
        if not isinstance(table, dict) or not table:
            self.fail('stage_to_rank_map is missing: {"0": [ranks of stage 0], ...}', None)
        owner: dict[int, int] = {}
        held: dict[int, tuple[int, ...]] = {}
        for key, ranks in table.items():
            stage = self._stage(key, len(table))
            if not isinstance(ranks, list) or not ranks or not all(map(_is_rank, ranks)):
                self.fail(f"stage {stage}: ranks must be whole numbers from 0, in a list", key)
            if stage in held:
                self.fail(f"stage {stage} stands twice", key)
            for rank in ranks:
                if rank in owner:
                    self.fail(f"rank {rank} is in stage {owner[rank]} and in stage {stage}", key)
                owner[rank] = stage
            held[stage] = tuple(sorted(ranks))
        gap = next((x for x in range(len(owner)) if x not in owner), None)
        if gap is not None:
            self.fail(
                f"rank {gap} holds no stage, but rank {max(owner)} does: ranks are 0 to N-1",
                "stage_to_rank_map",
            )
        return tuple(held[stage] for stage in range(len(held)))

    def _stage(self, key: str, count: int) -> int:
        if not re.fullmatch(r"[0-9]{1,6}", key):
            self.fail(f"{key[:80]!r} is not a stage number", key)
        if int(key) >= count:
            self.fail(f"stage {int(key)} of {count} stages: stages are 0 to {count - 1}", key)
        return int(key)

    def modules(self, data: dict[str, Any], stages: int) -> tuple[int, ...] | None:
        """module_to_stage_map, checked: every stage has modules, in order."""
        key = "module_to_stage_map"
        modules = data.get(key)
        if modules is None:
            return None
        if not isinstance(modules, list) or not all(map(_is_rank, modules)):
            self.fail(f"{key} is not a list of stage numbers", key)
        if sorted(set(modules)) != list(range(stages)):
            self.fail(
                f"{key} names stages {sorted(set(modules))[:20]}, but stage_to_rank_map has "
                f"{stages} stages",
                key,
            )
        if modules != sorted(modules):
            self.fail(f"{key} goes back to an earlier stage", key)
        return tuple(modules)

    def depths(self, data: dict[str, Any], stages: int) -> None:
        """stage_to_depth_map is only checked: pipeplan's schedules say how many are in flight."""
        key = "stage_to_depth_map"
        depths = data.get(key)
        if depths is None:
            return
        if not isinstance(depths, dict) or not all(map(_is_rank, depths.values())):
            self.fail(f"{key} is not a table of whole numbers", key)
        for stage in depths:
            self._stage(stage, stages)


def _is_rank(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_DEVICES
