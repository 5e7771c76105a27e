"""dp on the nested scope beside the seconds that the original needed, from its recorded runs.

    python benchmarks/nested_dp.py            # resnet50 and resnext50 on [8,2]

The recorded seconds are the original's alone, on two shared cores; ours are measured here, without
reading the profile, with everything else. The ratio is between two machines of the same kind, not
within one run: the original is no part of this project.
"""

import json
import time
from pathlib import Path

from pipeplan.core.cluster import Cluster
from pipeplan.core.problem import Constraints, Problem
from pipeplan.models.formats import read_profile
from pipeplan.solver.api import solve
from pipeplan.solver.backends.dp.pipedream_states import pipedream_states

REFERENCE = Path(__file__).resolve().parents[2] / "shared" / "reference"


def main() -> None:
    if not REFERENCE.is_dir():
        raise SystemExit(f"the recorded runs are not here: {REFERENCE}")
    lines = (REFERENCE / "pipedream.jsonl").read_text().splitlines()[1:]
    print(
        "| profile | bandwidths GB/s | original s | cost model | ours s | ratio | same objective |"
    )
    print("|---|---|---|---|---|---|---|")
    for record in map(json.loads, lines):
        args = record["args"]
        if record["profile"] not in ("resnet50", "resnext50") or args["n"] != [8, 2]:
            continue
        graph = read_profile(REFERENCE / "pipedream" / f"{record['profile']}.graph.txt").graph
        for model in ("pipedream", "levelwise"):
            problem = Problem(
                graph,
                Cluster.of(args["n"], args["bandwidths"]),
                scope="nested",
                cost_model=model,  # type: ignore[arg-type]
                activation_compression_ratio=args["activation_compression_ratio"],
                use_fewer_machines=args["use_fewer_machines"] and model == "pipedream",
                constraints=Constraints(straight=args["straight_pipeline"]),
            )
            pipedream_states.cache_clear()
            start = time.perf_counter()
            result = solve(problem, "dp")
            seconds = time.perf_counter() - start
            expected = record["pipeline_time"] * 1e3
            same = (
                f"{abs(result.objective_ms / expected - 1):.0e} off"
                if model == "pipedream" and result.objective_ms is not None
                else "other model"
            )
            rates = "/".join(f"{b / 1e9:g}" for b in args["bandwidths"])
            print(
                f"| {record['profile']} | {rates} | {record['wall_s']:.1f} | {model} | "
                f"{seconds:.2f} | {record['wall_s'] / seconds:.0f} | {same} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
