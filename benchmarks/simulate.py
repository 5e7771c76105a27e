"""How long a simulation takes: `python benchmarks/simulate.py`.

Straight and replicated pipelines on 1,024 ranks, 256 micro-batches a batch (Intel or AMD, one core;
say which when you quote a figure). Prints a Markdown table.
"""

import time

from pipeplan.core.cluster import Cluster
from pipeplan.core.graph import Layer, LayerGraph
from pipeplan.core.plan import joint_plan
from pipeplan.core.problem import Problem
from pipeplan.core.schedule import Schedule, is_synchronous
from pipeplan.validation.simulation import simulate

RANKS = 1024
MICRO_BATCHES = 256


def measure(stages: int, schedule: Schedule) -> str:
    """One row of the table."""
    layers = [Layer(f"n{i}", 1.0 + i % 3 / 10, 2.0, 10**7, 10**6) for i in range(stages)]
    graph = LayerGraph.build(layers, [(f"n{i}", f"n{i + 1}") for i in range(stages - 1)])
    cluster = Cluster.of((8, RANKS // 8), (100e9, 25e9))
    batch = MICRO_BATCHES if is_synchronous(schedule) else None
    problem = Problem(graph, cluster, schedule=schedule, micro_batches=batch)
    plan = joint_plan(cluster, tuple(((i,), RANKS // stages) for i in range(stages)))
    start = time.perf_counter()
    result = simulate(problem, plan)
    seconds = time.perf_counter() - start
    passes = len(result.run.operations.kind)
    period = "-" if result.period_ms is None else f"{result.period_ms:.4f}"
    return (
        f"| {stages} x {RANKS // stages} | {schedule} | {result.run.micro_batches} | {passes} | "
        f"{period} | {seconds:.1f} |"
    )


def main() -> None:
    """Print the table."""
    print("| stages x replicas | schedule | micro-batches | passes | period ms | seconds |")
    print("|---|---|---|---|---|---|")
    for stages in (1024, 64, 16):
        for schedule in ("1f1b", "gpipe"):
            print(measure(stages, schedule), flush=True)
    print(measure(16, "pipedream"), flush=True)


if __name__ == "__main__":
    main()
