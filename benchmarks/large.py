"""A long network on many GPUs: seconds, peak memory, and how far from the bound the plan is.

    python benchmarks/large.py                                     # 10,000 layers on 128 GPUs
    python benchmarks/large.py --layers 2000 --gpus 8 4 --time-limit 20s

A synthetic transformer is written as a profile, read as any other, and planned. The last line is
the requirement: a plan with a stated gap within 60 s and 4 GiB; exit code 1 where it is not met.
"""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

from pipeplan.cli.search import Search, backends_named
from pipeplan.core.cluster import Cluster
from pipeplan.core.errors import PipeplanError
from pipeplan.core.problem import Problem
from pipeplan.core.units import parse_rate
from pipeplan.models.formats import read_profile, write_profile
from pipeplan.models.synthetic import transformer
from pipeplan.solver.api import solve

MOST_SECONDS = 60.0
MOST_BYTES = 4 * 2**30


def peak_bytes() -> int:
    """The most memory that this process has held at once."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--layers", type=int, default=10_000)
    parser.add_argument("--gpus", type=int, nargs="+", default=[8, 16], help="innermost first")
    parser.add_argument("--bandwidths", nargs="+", default=["100GB/s", "12.5GB/s"])
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--time-limit", default="45s")
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    try:
        options = Search(time_limit=asked.time_limit, workers=asked.workers).options()
        (backend,) = backends_named(asked.backend)
        cluster = Cluster.of(asked.gpus, [parse_rate(x) for x in asked.bandwidths])
    except (PipeplanError, ValueError) as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.json"
        write_profile(transformer(asked.layers), path)
        begin = time.perf_counter()
        graph = read_profile(path).graph
    read = time.perf_counter() - begin
    result = solve(Problem(graph, cluster), backend, options)
    seconds = time.perf_counter() - begin
    print(f"{len(graph)} layers on {cluster.devices} GPUs, backend {result.stats.backend}")
    print(f"seconds    {seconds:.1f}, {read:.1f} of them to read the profile")
    print(f"peak RSS   {peak_bytes() / 2**30:.2f} GiB")
    if result.objective_ms is None or result.bound_ms is None:
        print(f"no plan    {result.status.value}: {result.explanation}")
        return 1
    gap = (result.objective_ms - result.bound_ms) / result.objective_ms
    print(f"objective  {result.objective_ms:.6f} ms")
    print(f"bound      {result.bound_ms:.6f} ms")
    print(f"gap        {gap:.2%}, {result.status.value}")
    met = seconds <= MOST_SECONDS and peak_bytes() <= MOST_BYTES
    print(f"required   {MOST_SECONDS:.0f} s and 4 GiB: {'met' if met else 'not met'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
