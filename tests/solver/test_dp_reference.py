"""Every recorded output of the original program, under its own cost model (DESIGN 4.2)."""

import json
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pipeplan.core.check import violations
from pipeplan.core.cluster import Cluster
from pipeplan.core.cost import baselines, evaluate
from pipeplan.core.graph import LayerGraph
from pipeplan.core.problem import Constraints, Problem
from pipeplan.models.formats import read_profile
from pipeplan.solver.api import solve
from pipeplan.solver.result import Status

REFERENCE = Path(__file__).resolve().parents[3] / "shared" / "reference"

pytestmark = [
    pytest.mark.reference,
    pytest.mark.skipif(not REFERENCE.is_dir(), reason="../shared/reference is not here"),
]

PROFILES = (
    "alexnet",
    "vgg16",
    "resnet18",
    "gnmt",
    "resnet50",
    "resnext50",
    "densenet121",
    "resnet101",
)


@cache
def records() -> list[dict[str, Any]]:
    lines = (REFERENCE / "pipedream.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines[1:]]


@cache
def graph(profile: str) -> LayerGraph:
    return read_profile(REFERENCE / "pipedream" / f"{profile}.graph.txt").graph


def problem_of(record: dict[str, Any]) -> Problem:
    args = record["args"]
    memory = int(args["memory_size"]) if args["use_memory_constraint"] else None
    return Problem(
        graph=graph(record["profile"]),
        cluster=Cluster.of(args["n"], args["bandwidths"], memory_bytes=memory),
        scope="nested",
        cost_model="pipedream",
        activation_compression_ratio=args["activation_compression_ratio"],
        use_fewer_machines=args["use_fewer_machines"],
        constraints=Constraints(straight=args["straight_pipeline"]),
    )


def faults(profile: str) -> Iterator[str]:
    for number, record in enumerate(records()):
        if record["profile"] != profile:
            continue
        problem = problem_of(record)
        result = solve(problem, "dp")
        where = f"record {number} {record['args']}"
        if record["outcome"] == "ok":
            expected = record["pipeline_time"] * 1e3
            if result.plan is None or result.objective_ms is None:
                yield f"{where}: {result.status}, expected {expected} ms"
                continue
            if result.status is not Status.OPTIMAL:
                yield f"{where}: {result.status}"
            if not math.isclose(result.objective_ms, expected, rel_tol=1e-9):
                yield f"{where}: {result.objective_ms} ms, expected {expected} ms"
            baseline = baselines(problem).data_parallel_ms
            if not math.isclose(baseline, record["dp_time"] * 1e3, rel_tol=1e-9):
                yield f"{where}: data parallel {baseline} ms, expected {record['dp_time'] * 1e3} ms"
            if violations(problem, result.plan):
                yield f"{where}: {violations(problem, result.plan)}"
            price = evaluate(problem, result.plan).objective_ms
            if not math.isclose(price, expected, rel_tol=1e-9):
                yield f"{where}: the plan costs {price} ms, expected {expected} ms"
        elif result.plan is None and not (
            result.status is Status.INFEASIBLE and result.explanation
        ):
            # Where the original crashed: a plan, or infeasible with its reason.
            yield f"{where}: {result.status} {result.explanation!r}"


@pytest.mark.parametrize("profile", PROFILES)
def test_every_record_is_met(profile: str) -> None:
    assert sum(record["profile"] == profile for record in records()) >= 30
    assert list(faults(profile)) == []
