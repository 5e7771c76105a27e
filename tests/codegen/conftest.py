"""Plans given by stages, and graphs written as PipeDream writes them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeplan.core.cluster import Cluster
from pipeplan.core.codec import PlanFile, Provenance
from pipeplan.core.cost import evaluate
from pipeplan.core.graph import LayerGraph
from pipeplan.core.plan import joint_plan
from pipeplan.core.problem import Problem
from pipeplan.models.formats import read_profile_text

GivenPlan = Callable[..., PlanFile]
GraphText = Callable[[str], LayerGraph]


@pytest.fixture(scope="session")
def given_plan() -> GivenPlan:
    """A plan file: stages by lists of layer ids, one replica each unless said otherwise."""

    def make(
        graph: LayerGraph, stages: list[list[str]], replicas: list[int] | None = None
    ) -> PlanFile:
        counts = replicas or [1] * len(stages)
        cluster = Cluster.of([sum(counts)], [1e9])
        layers = [tuple(sorted(graph.index[x] for x in ids)) for ids in stages]
        plan = joint_plan(cluster, tuple(zip(layers, counts, strict=True)))
        problem = Problem(graph, cluster)
        return PlanFile(problem, plan, evaluate(problem, plan), Provenance("GIVEN"))

    return make


@pytest.fixture(scope="session")
def graph_text() -> GraphText:
    """A graph from short lines: `a Conv2d(3, 8, ...)` is a layer, `a > b` an edge."""

    def read(short: str) -> LayerGraph:
        lines = []
        for line in short.strip().splitlines():
            left, _, right = line.strip().partition(" ")
            if right.startswith("> "):
                lines.append(f"\t{left} -- {right[2:]}")
            else:
                size = "[8; 8; 8]" if right.startswith(("LSTM", "RecurrentAttention")) else "8"
                cost = "0" if right.startswith(("hidden", "__getitem__", "Size")) else "1"
                lines.append(
                    f"{left} -- {right} -- forward_compute_time={cost}, "
                    f"backward_compute_time={cost}, activation_size={size}, parameter_size=0"
                )
        return read_profile_text("\n".join(lines), Path("small.graph.txt")).graph

    return read
