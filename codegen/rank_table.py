"""rank_map.json: for every rank its stage, replica, host, peers and micro-batches in flight."""

from collections.abc import Sequence
from typing import Any, Final

from pipeplan.codegen.rank_map import rank_map_of
from pipeplan.core.codec import PlanFile
from pipeplan.core.routing import routes

__all__ = ["RANK_MAP_SCHEMA", "ranges", "rank_table"]

RANK_MAP_SCHEMA: Final = "pipeplan.rank_map/1"


def rank_table(file: PlanFile) -> dict[str, Any]:
    """The table as JSON-ready values.

    `receives_from` and `sends_to` pair a rank with the share of all micro-batches that pass between
    the two (a fraction, exactly). Its `stage_to_rank_map` is what PipeDream calls by that name.
    """
    cluster, plan = file.problem.cluster, file.plan
    receives: dict[int, list[Any]] = {}
    sends: dict[int, list[Any]] = {}
    for a, b in zip(plan.stages, plan.stages[1:], strict=False):
        for route in routes(cluster, a.ranks, b.ranks):
            share = f"{route.share.numerator}/{route.share.denominator}"
            sends.setdefault(route.source, []).append([route.target, share])
            receives.setdefault(route.target, []).append([route.source, share])
    entries = []
    for rank in range(cluster.devices):
        entry: dict[str, Any] = {
            "rank": rank,
            "host": cluster.server_of(rank),
            "local_rank": rank % cluster.devices_per_server,
        }
        stage = plan.stage_of_rank.get(rank)
        if stage is None:
            entry["stage"] = None
        else:
            entry["stage"] = stage
            entry["replica"] = plan.stages[stage].ranks.index(rank)
            entry["in_flight"] = file.evaluation.memory[stage].in_flight
            entry["receives_from"] = receives.get(rank, [])
            entry["sends_to"] = sends.get(rank, [])
        entries.append(entry)
    return {
        "schema": RANK_MAP_SCHEMA,
        "ranks": entries,
        "ranks_per_host": cluster.devices_per_server,
        "stage_to_rank_map": {
            str(s): list(ranks) for s, ranks in enumerate(rank_map_of(plan).stages)
        },
    }


def ranges(ranks: Sequence[int]) -> str:
    """Ascending ranks for people: ranks 0-6, 8-14."""
    parts: list[tuple[int, int]] = []
    for rank in ranks:
        if parts and parts[-1][1] == rank - 1:
            parts[-1] = (parts[-1][0], rank)
        else:
            parts.append((rank, rank))
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"
