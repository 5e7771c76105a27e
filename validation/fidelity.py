"""Simulated against predicted period, for every packaged profile, cluster and schedule.

python -m pipeplan.validation.fidelity --table            prints the table of docs/fidelity.md
python -m pipeplan.validation.fidelity --write docs/fidelity.md   replaces it there
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeplan.core.errors import PipeplanError
from pipeplan.models.formats import read_profile
from pipeplan.models.profiles import packaged_names
from pipeplan.solver.api import solve
from pipeplan.solver.options import SolveOptions
from pipeplan.validation.page_table import replace_table, table_lines
from pipeplan.validation.simulation import SimulationOptions, enough_in_flight, simulate
from pipeplan.validation.suite import scheduled_problems

__all__ = ["COMMAND", "Row", "main", "rows", "table"]

_WITHIN: Final = 0.01
COMMAND: Final = "python -m pipeplan.validation.fidelity --write docs/fidelity.md"
"""What writes the table of docs/fidelity.md, as the page names it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One plan; times in ms. `more` is how many further micro-batches in flight bring the period
    within 1 % of `floor_ms`; 0 where it is there, None where none up to 64 do."""

    profile: str
    cluster: str
    schedule: str
    status: str
    replicas: tuple[int, ...]
    predicted_ms: float
    floor_ms: float
    simulated_ms: float | None
    exact: bool
    more: int | None

    @property
    def below(self) -> bool:
        """Whether the simulation beats what the hardware can do, which would be a fault."""
        slack = 1e-9 if self.exact else 1e-3
        return self.simulated_ms is not None and self.simulated_ms < self.predicted_ms * (1 - slack)


def rows(names: Sequence[str], time_limit_s: float) -> Iterator[Row]:
    """Solve and simulate one question after the other."""
    for name in names:
        graph = read_profile(name).graph
        for cluster, schedule, problem in scheduled_problems(graph):
            found = solve(problem, "auto", SolveOptions(time_limit_s=time_limit_s))
            if found.plan is None:
                continue
            result = simulate(problem, found.plan)
            more: int | None = 0
            if result.period_ms is None or result.period_ms > result.floor_ms * (1 + _WITHIN):
                better = enough_in_flight(problem, found.plan, SimulationOptions(), within=_WITHIN)
                more = None if better is None else better.options.extra_in_flight
            yield Row(
                profile=name,
                cluster=cluster.name,
                schedule=schedule,
                status=found.status.value,
                replicas=tuple(stage.replicas for stage in found.plan.stages),
                predicted_ms=result.predicted_ms,
                floor_ms=result.floor_ms,
                simulated_ms=result.period_ms,
                exact=result.exact,
                more=more,
            )


def table(found: Sequence[Row]) -> list[str]:
    """Markdown lines."""
    out = [
        "| profile | cluster | schedule | replicas | predicted ms | simulated ms | differs | "
        "floor ms | +in flight |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        counts = list(map(str, row.replicas))
        shown = "-".join(counts if len(counts) <= 10 else [*counts[:7], "...", *counts[-2:]])
        time = "-" if row.simulated_ms is None else f"{row.simulated_ms:.4f}"
        differs = (
            "-"
            if row.simulated_ms is None or not row.predicted_ms
            else f"{round(100 * (row.simulated_ms / row.predicted_ms - 1), 2) + 0.0:+.2f} %"
        )
        floor = f"{row.floor_ms:.4f}" if row.floor_ms > row.predicted_ms * 1.0001 else ""
        more = "none" if row.more is None else str(row.more)
        out.append(
            f"| {row.profile} | {row.cluster} | {row.schedule} | {shown} | "
            f"{row.predicted_ms:.4f} | {time} | {differs} | {floor} | {more} |"
        )
    return out


def summary(found: Sequence[Row]) -> str:
    """The table in one sentence."""
    met = sum(
        1 for x in found if x.simulated_ms and x.simulated_ms <= x.predicted_ms * (1 + _WITHIN)
    )
    room = sum(1 for x in found if x.more)
    stuck = sum(1 for x in found if x.more is None)
    below = sum(1 for x in found if x.below)
    return (
        f"Of {len(found)} plans {met} are simulated within 1 % of the prediction and {below} below "
        f"it. {room} need more micro-batches in flight than the schedule's own limit to come "
        f"within 1 % of the floor; {stuck} do not reach it, however many."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print or write the table; returns 1 if a simulation is below its prediction."""
    parser = argparse.ArgumentParser(prog="python -m pipeplan.validation.fidelity")
    parser.add_argument("--table", action="store_true", help="print the table (the default)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="replace the table in a page")
    parser.add_argument("--only", metavar="A,B", help="these profiles alone")
    parser.add_argument("--time-limit", type=float, default=20.0, metavar="S")
    asked = parser.parse_args(arguments)
    names = packaged_names() if asked.only is None else tuple(asked.only.split(","))
    found: list[Row] = []
    try:
        # An hour of searches later would be late to learn of a wrong page or name.
        if asked.write is not None:
            table_lines(asked.write, COMMAND)
        for name in names:
            read_profile(name)
        for row in rows(names, asked.time_limit):
            found.append(row)
            print(f"{row.profile}, {row.cluster}, {row.schedule}", file=sys.stderr)
        lines = [summary(found), "", *table(found)]
        if asked.write is None:
            print("\n".join(lines))
        else:
            replace_table(asked.write, COMMAND, lines)
    except PipeplanError as error:
        print(f"fidelity: {error}", file=sys.stderr)
        return 2
    return int(any(row.below for row in found))


if __name__ == "__main__":
    sys.exit(main())
