"""What feeds what, in words: the pairs of ranks, and how much leaves a server."""

from fractions import Fraction
from typing import Final

from pipeplan.cli.render.words import percent, ranges
from pipeplan.core.codec import PlanFile
from pipeplan.core.routing import Route, routes
from pipeplan.core.units import format_bytes

__all__ = ["flow_lines"]

_MOST_GROUPS: Final = 6


def flow_lines(file: PlanFile) -> list[str]:
    """A line a cut; empty for a plan of one stage."""
    problem, plan = file.problem, file.plan
    cluster = problem.cluster
    out = []
    for s, cut in enumerate(file.evaluation.topology.cut_bytes):
        pairs = routes(cluster, plan.stages[s].ranks, plan.stages[s + 1].ranks)
        size = format_bytes(cut / problem.compression)
        line = f"stage {s} -> {s + 1}: {size} forward and as much back per micro-batch"
        if cluster.servers > 1:
            crossing = sum(
                (x.share for x in pairs if _server(file, x.source) != _server(file, x.target)),
                Fraction(0),
            )
            line += "; " + (
                "none of it leaves a server"
                if not crossing
                else "all of it crosses servers"
                if crossing == 1
                else f"{percent(float(crossing))} of it crosses servers"
            )
        out.append(f"{line}. {_pairs(pairs)}")
    return out


def _server(file: PlanFile, rank: int) -> int:
    return file.problem.cluster.server_of(rank)


def _pairs(pairs: tuple[Route, ...]) -> str:
    """Sources grouped by the targets that they feed: 0-6 -> 7, 8-14 -> 15."""
    targets: dict[int, list[int]] = {}
    for route in pairs:
        targets.setdefault(route.source, []).append(route.target)
    groups: dict[tuple[int, ...], list[int]] = {}
    for source, fed in targets.items():
        groups.setdefault(tuple(sorted(fed)), []).append(source)
    shown = [
        f"{', '.join(ranges(sources))} -> {', '.join(ranges(fed))}"
        for fed, sources in list(groups.items())[:_MOST_GROUPS]
    ]
    more = len(groups) - len(shown)
    rest = f"; and {more} more groups (in the plan file under routing)" if more else ""
    return f"Ranks {'; '.join(shown)}{rest}"
