"""Proofs and seconds of every backend over real profiles, as one table in Markdown.

Run from the checkout, with the profiles of ../shared/reference beside it:

    python benchmarks/backends.py                      # auto alone
    python benchmarks/backends.py --backends auto,dp,cpsat,milp --time-limit 60s

A row is a profile on a cluster, printed when it is done. What misses is in the table like all else;
answers that contradict each other are named below it, and give exit code 1. Ctrl-C ends the run,
and what was finished stays. `pipeplan compare --suite` is the same over other profiles.
"""

import argparse
from pathlib import Path

from pipeplan.cli.output import print_lines
from pipeplan.cli.render.markdown import table_head, table_row, table_tail
from pipeplan.cli.search import Search, backends_named, one_of_many
from pipeplan.core.cluster import Cluster
from pipeplan.core.errors import PipeplanError
from pipeplan.core.problem import Problem
from pipeplan.models.formats import read_profile
from pipeplan.validation.comparison import Instance, Row, rows
from pipeplan.validation.suite import named

PROFILES = Path(__file__).resolve().parents[2] / "shared" / "reference" / "pipedream"
NAMES = (
    "vgg16",
    "alexnet",
    "resnet18",
    "resnet50",
    "resnet101",
    "resnext50",
    "densenet121",
    "gnmt",
    "inception_v3",
    "nasnetamobile",
)
CLUSTERS = tuple(
    named(Cluster.of(children, rates))
    for children, rates in (
        ((8, 2), (1e10, 1.25e9)),
        ((4, 4), (1e10, 1.25e9)),
        ((4,), (1e10,)),
        ((4,), (1.25e9,)),
        ((8,), (1e10,)),
        ((8,), (1.25e9,)),
    )
)


def instances(names: list[str]) -> list[Instance]:
    """The named profiles on every cluster."""
    graphs = [(name, read_profile(PROFILES / f"{name}.graph.txt").graph) for name in names]
    return [
        Instance(name, place.name, Problem(graph, place.cluster))
        for name, graph in graphs
        for place in CLUSTERS
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backends", default="auto")
    parser.add_argument("--time-limit", default="60s")
    parser.add_argument("--profiles", default=",".join(NAMES))
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    if not PROFILES.is_dir():
        raise SystemExit(f"the profiles are not here: {PROFILES}")
    try:
        backends = backends_named(asked.backends)
        search = Search(time_limit=asked.time_limit, workers=asked.workers)
        search.options()  # What is wrong with these is not a backend's answer.
        table = instances(asked.profiles.split(","))
    except PipeplanError as error:
        parser.error(str(error))
    found: list[Row] = []
    print_lines(table_head(backends))
    try:
        with one_of_many(search) as solved:
            for row in rows(table, backends, solved):
                found.append(row)
                print_lines([table_row(row)])
    except KeyboardInterrupt:
        return 130
    finally:
        print_lines(table_tail(backends, found, len(table)))
    return int(not all(row.verdict.agree for row in found))


if __name__ == "__main__":
    raise SystemExit(main())
