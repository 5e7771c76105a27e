"""Proofs and seconds of every backend over real profiles, as one table.

Run from the checkout, with the profiles of ../shared/reference beside it:

    python benchmarks/backends.py                      # auto alone
    python benchmarks/backends.py --backends auto,dp,cpsat,milp --time-limit 60s

A row is a profile on a cluster, a column a backend: `objective ms (gap) seconds`. A gap of 0 is a
proof. What misses is in the table like everything else.
"""

import argparse
import time
from pathlib import Path

from pipeplan.core.cluster import Cluster
from pipeplan.core.errors import PipeplanError
from pipeplan.core.problem import Problem
from pipeplan.core.units import parse_duration_s
from pipeplan.models.formats import read_profile
from pipeplan.solver.api import solve
from pipeplan.solver.options import SolveOptions

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
CLUSTERS = (
    ((8, 2), (1e10, 1.25e9)),
    ((4, 4), (1e10, 1.25e9)),
    ((4,), (1e10,)),
    ((4,), (1.25e9,)),
    ((8,), (1e10,)),
    ((8,), (1.25e9,)),
)


def cell(problem: Problem, backend: str, options: SolveOptions) -> str:
    """One solve in words."""
    start = time.perf_counter()
    try:
        result = solve(problem, backend, options)  # type: ignore[arg-type]  # solve checks it
    except PipeplanError as error:
        return f"{type(error).__name__} {time.perf_counter() - start:.1f} s"
    seconds = time.perf_counter() - start
    if result.objective_ms is None:
        return f"{result.status.value} {seconds:.1f} s"
    bound = result.bound_ms or 0.0
    gap = (result.objective_ms - bound) / result.objective_ms if result.objective_ms else 0.0
    proof = "proven" if result.status.value == "OPTIMAL" else f"gap {gap:.2%}"
    return f"{result.objective_ms:.4f} ms, {proof}, {seconds:.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backends", default="auto")
    parser.add_argument("--time-limit", default="60s")
    parser.add_argument("--profiles", default=",".join(NAMES))
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    if not PROFILES.is_dir():
        raise SystemExit(f"the profiles are not here: {PROFILES}")
    backends = asked.backends.split(",")
    options = SolveOptions(time_limit_s=parse_duration_s(asked.time_limit), workers=asked.workers)
    print("| profile | cluster | " + " | ".join(backends) + " |")
    print("|---|---|" + "---|" * len(backends))
    for name in asked.profiles.split(","):
        graph = read_profile(PROFILES / f"{name}.graph.txt").graph
        for children, rates in CLUSTERS:
            problem = Problem(graph, Cluster.of(children, rates))
            where = (
                f"[{','.join(map(str, children))}] {'/'.join(f'{r / 1e9:g}' for r in rates)} GB/s"
            )
            cells = [cell(problem, backend, options) for backend in backends]
            print(f"| {name} | {where} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
