"""The command that writes the measured tables of docs/fidelity.md."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from pipeplan.core.errors import PipeplanError, shown
from pipeplan.validation.measured.cases import ZOO_SIZES, Case, sleeping_cases, zoo_cases
from pipeplan.validation.measured.runs import Row, measure
from pipeplan.validation.measured.table import tables
from pipeplan.validation.page_table import replace_table, table_lines

COMMAND: Final = "python -m pipeplan.validation.measured --write docs/fidelity.md"
"""What writes the tables of docs/fidelity.md, as the page names it."""
_WITHIN: Final = 0.05


def main(arguments: Sequence[str] | None = None) -> int:
    """Print or write the tables; returns 1 where known times are not kept."""
    parser = argparse.ArgumentParser(prog="python -m pipeplan.validation.measured")
    add = parser.add_argument
    add("--write", type=Path, metavar="FILE", help="replace the tables in a page")
    add("--only", metavar="A,B", help="`sleep` or names of the zoo; default: all")
    add("--steps", type=_count, default=4, help="measured steps of each run, after a warm-up")
    add("--micro-batches", type=_count, default=24, help="of a step")
    add("--tries", type=_count, default=3, help="runs that a plan of known times may take")
    asked = parser.parse_args(arguments)
    names = ["sleep", *ZOO_SIZES] if asked.only is None else asked.only.split(",")
    found: list[Row] = []
    others = os.getloadavg()[0]
    try:
        if asked.write is not None:
            table_lines(
                asked.write, COMMAND
            )  # minutes later would be late to learn of a wrong page
        for case in _cases(names, asked.micro_batches):
            row = measure(case, asked.steps, tries=asked.tries, within=_WITHIN)
            found.append(row)
            print(
                f"{case.name}, {case.problem.schedule}, {case.replicas}: {row.period_ms:.2f} ms, "
                f"predicted {row.floor_ms:.2f} ms",
                file=sys.stderr,
            )
        lines = [
            f"When these runs began, other work loaded the machine's {os.cpu_count()} cores by "
            f"{others:.1f}.",
            *tables(found, _WITHIN),
        ]
        if asked.write is None:
            print("\n".join(lines))
        else:
            replace_table(asked.write, COMMAND, lines)
    except PipeplanError as error:
        print(f"measured: {error}", file=sys.stderr)
        return 2
    return int(any(row.case.known and abs(row.error) > _WITHIN for row in found))


def _cases(names: Sequence[str], micro_batches: int) -> Iterator[Case]:
    unknown = [name for name in names if name != "sleep" and name not in ZOO_SIZES]
    if unknown:
        raise PipeplanError(
            f"there is no {unknown[0]!r} to measure; choose from sleep, {', '.join(ZOO_SIZES)}"
        )
    sleeping = sleeping_cases(micro_batches) if "sleep" in names else ()
    return chain(sleeping, zoo_cases([x for x in names if x != "sleep"], micro_batches))


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a whole number: {shown(text)}") from None
    if not 1 <= number <= 10_000:
        raise argparse.ArgumentTypeError("1 to 10000 make sense")
    return number


if __name__ == "__main__":
    sys.exit(main())
