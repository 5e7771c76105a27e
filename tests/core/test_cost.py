"""Marks on real profiles, and that prices depend on the plan alone."""

import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeplan.core.check import violations
from pipeplan.core.cluster import Cluster
from pipeplan.core.cost import baselines, evaluate
from pipeplan.core.graph import LayerGraph
from pipeplan.core.plan import NestedStage, Plan, joint_plan, nested_plan
from pipeplan.core.problem import Constraints, Problem

REFERENCE = Path(__file__).resolve().parents[2].parent / "shared" / "reference"


@pytest.fixture(scope="module")
def profiles() -> dict[str, LayerGraph]:
    if not REFERENCE.is_dir():
        pytest.skip("the reference data (../shared/reference) are not here")
    from pipeplan.models.formats import read_profile

    return {
        path.name.removesuffix(".graph.txt"): read_profile(path).graph
        for path in sorted((REFERENCE / "pipedream").glob("*.graph.txt"))
    }


def span(start: int, end: int) -> tuple[int, ...]:
    """Layers start..end, both included."""
    return tuple(range(start, end + 1))


TWO_SERVERS = Cluster.of([8, 2], [4294967296, 2147483648])


@pytest.mark.reference
@pytest.mark.parametrize(
    ("stages", "period_ms"),
    [
        (((span(0, 39), 16),), 72.233946),
        (((span(0, 24), 15), (span(25, 39), 1)), 44.667759),
        (((span(0, 16), 12), (span(17, 24), 3), (span(25, 39), 1)), 43.709150),
    ],
)
def test_vgg16_joint_plans(profiles: dict[str, LayerGraph], stages: Any, period_ms: float) -> None:
    problem = Problem(profiles["vgg16"], TWO_SERVERS)
    plan = joint_plan(TWO_SERVERS, stages)
    assert violations(problem, plan) == ()
    assert evaluate(problem, plan).objective_ms == pytest.approx(period_ms, abs=5e-7)


def pipedreams_vgg16_plan() -> Plan:
    inner = (NestedStage(span(0, 23), 7), NestedStage(span(24, 39), 1))
    return nested_plan(TWO_SERVERS, (NestedStage(span(0, 39), 2, inner),))


@pytest.mark.reference
def test_the_vgg16_question(profiles: dict[str, LayerGraph]) -> None:
    plan = pipedreams_vgg16_plan()
    assert [stage.ranks for stage in plan.stages] == [(*range(7), *range(8, 15)), (7, 15)]
    graph = profiles["vgg16"]
    assert len(graph) == 40
    assert evaluate(Problem(graph, TWO_SERVERS), plan).objective_ms == pytest.approx(
        146.952110, abs=5e-7
    )
    problem = Problem(
        graph,
        TWO_SERVERS,
        scope="nested",
        cost_model="pipedream",
        activation_compression_ratio=1,
    )
    assert violations(problem, plan) == ()
    price, base = evaluate(problem, plan), baselines(problem)
    assert price.objective_ms == pytest.approx(78.392462242586, rel=1e-9)
    assert price.topology.period_ms == pytest.approx(146.952110, abs=5e-7)
    assert base.one_device_ms / price.objective_ms == pytest.approx(8.579077385257, rel=1e-9)
    assert base.one_device_ms / base.data_parallel_ms == pytest.approx(6.565515477248, rel=1e-9)
    assert base.data_parallel_ms / price.objective_ms == pytest.approx(1.306687557891, rel=1e-9)


def recorded_structure(record: dict[str, Any], graph: LayerGraph) -> tuple[NestedStage, ...] | None:
    """The recorded plan, or None where it cannot be read back without doubt.

    `levels` are spans of states, outermost first; the k-th innermost span is stage k of
    `stage_nodes`. Layers that the original took out go with what they read.
    """
    innermost = record["levels"][-1]["stages"]
    if len(innermost) != len(record["stage_nodes"]):
        return None
    stage_of = {
        graph.index[layer]: int(k)
        for k, layers in record["stage_nodes"].items()
        for layer in layers
        if layer in graph.index
    }
    for v in range(len(graph)):
        if v not in stage_of:
            stage_of[v] = max((stage_of[u] for u in graph.producers[v]), default=0)
    number = {(start, end): k for k, (start, end, _, _) in enumerate(innermost)}

    def inside(depth: int, first: int, last: int) -> Iterator[NestedStage]:
        for start, end, _, replicas in record["levels"][depth]["stages"]:
            if first <= start and end <= last:
                if depth == len(record["levels"]) - 1:
                    own = sorted(v for v, k in stage_of.items() if k == number[start, end])
                    yield NestedStage(tuple(own), replicas)
                else:
                    inner = tuple(inside(depth + 1, start, end))
                    own = sorted(v for stage in inner for v in stage.layers)
                    yield NestedStage(tuple(own), replicas, inner)

    return tuple(inside(0, 0, 10**9))


@pytest.mark.reference
def test_recorded_plans_cost_what_the_original_says(profiles: dict[str, LayerGraph]) -> None:
    compared = doubtful = 0
    with (REFERENCE / "pipedream.jsonl").open() as lines:
        records = [record for record in map(json.loads, lines) if record.get("outcome") == "ok"]
    for record in records[::5]:
        graph, asked = profiles[record["profile"]], record["args"]
        limit = asked["memory_size"] if asked["use_memory_constraint"] else None
        problem = Problem(
            graph,
            Cluster.of(
                asked["n"],
                asked["bandwidths"],
                memory_bytes=None if limit is None else int(limit),
            ),
            scope="nested",
            cost_model="pipedream",
            activation_compression_ratio=asked["activation_compression_ratio"],
            use_fewer_machines=asked["use_fewer_machines"],
            constraints=Constraints(straight=asked["straight_pipeline"]),
        )
        where = f"{record['profile']} {asked}"
        base = baselines(problem)
        assert base.data_parallel_ms == pytest.approx(record["dp_time"] * 1e3, rel=1e-9), where
        structure = recorded_structure(record, graph)
        if structure is None:
            doubtful += 1
            continue
        plan = nested_plan(problem.cluster, structure)
        assert violations(problem, plan) == (), where
        found = evaluate(problem, plan).objective_ms
        assert found == pytest.approx(record["pipeline_time"] * 1e3, rel=1e-9), where
        compared += 1
    assert compared > 300
    assert doubtful < compared / 50


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_no_order_of_the_input_shows_in_a_price(data: st.DataObject, make: SimpleNamespace) -> None:
    problem = data.draw(make.topology_problems())
    plan = data.draw(make.plans(problem.graph, problem.cluster))
    graph = problem.graph
    ids = [layer.id for layer in graph.layers]
    again = LayerGraph.build(
        data.draw(st.permutations(graph.layers)),
        data.draw(st.permutations([(ids[a], ids[b]) for a, b in graph.edges])),
        inputs=data.draw(st.permutations(graph.inputs)),
    )
    assert again == graph
    assert again.digest == graph.digest
    assert evaluate(problem, plan) == evaluate(
        Problem(
            again,
            problem.cluster,
            schedule=problem.schedule,
            micro_batches=problem.micro_batches,
            recompute=problem.recompute,
            overlap_sync=problem.overlap_sync,
            weight_copies=problem.weight_copies,
            activation_compression_ratio=problem.activation_compression_ratio,
        ),
        plan,
    )


_PROGRAM = """
import random, sys
from pipeplan.core.cluster import Cluster
from pipeplan.core.codec import PlanFile, Provenance, plan_to_dict
from pipeplan.core.cost import evaluate
from pipeplan.core.graph import GraphInput, Layer, LayerGraph
from pipeplan.core.jsontext import dump_json
from pipeplan.core.plan import NestedStage, joint_plan, nested_plan
from pipeplan.core.problem import Problem
rng = random.Random(1)
layers = [Layer(f"n{i}", rng.random(), rng.random(), rng.randrange(9**6), i) for i in range(60)]
edges = [(f"n{i}", f"n{j}") for i in range(60) for j in (i + 1, i + 3, i + 10) if j < 60]
inputs = [GraphInput(f"x{i}", i, (f"n{i}", f"n{3 * i}")) for i in range(5)]
shuffled = random.Random(int(sys.argv[1]))
for items in (layers, edges, inputs):
    shuffled.shuffle(items)
graph = LayerGraph.build(layers, edges, inputs=inputs)
cluster = Cluster.of([4, 2], [3e6, 1e6])
cut = tuple(range(37)), tuple(range(37, 60))
inner = (NestedStage(cut[0], 3), NestedStage(cut[1], 1))
nested = nested_plan(cluster, (NestedStage(tuple(range(60)), 2, inner),))
cases = [(Problem(graph, cluster), joint_plan(cluster, ((cut[0], 5), (cut[1], 2))))]
cases += [
    (Problem(graph, cluster, scope="nested", cost_model=x, activation_compression_ratio=1), nested)
    for x in ("levelwise", "pipedream")
]
for problem, plan in cases:
    file = PlanFile(problem, plan, evaluate(problem, plan), Provenance("FEASIBLE", "dp"))
    sys.stdout.write(dump_json(plan_to_dict(file)))
"""


def test_same_bytes_whatever_the_hash_seed_and_the_insertion_order() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(order)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for order, seed in ((0, "0"), (1, "1"), (2, "12345"))
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) > 10_000


@settings(max_examples=60, deadline=None)
@given(data=st.data(), factor=st.sampled_from([0.5, 2.0, 8.0]))
def test_scaling_all_times_scales_the_price(
    data: st.DataObject, factor: float, make: SimpleNamespace
) -> None:

    problem = data.draw(make.topology_problems())
    plan = data.draw(make.plans(problem.graph, problem.cluster))
    layers = tuple(
        replace(x, forward_ms=x.forward_ms * factor, backward_ms=x.backward_ms * factor)
        for x in problem.graph.layers
    )
    levels = tuple(
        replace(
            x,
            bandwidth_bytes_per_s=x.bandwidth_bytes_per_s / factor,
            latency_ms=x.latency_ms * factor,
        )
        for x in problem.cluster.levels
    )
    scaled = replace(
        problem,
        graph=replace(problem.graph, layers=layers),
        cluster=replace(problem.cluster, levels=levels),
    )
    before, after = evaluate(problem, plan), evaluate(scaled, plan)
    assert after.objective_ms == pytest.approx(before.objective_ms * factor, rel=1e-12)
    assert after.period_ms == pytest.approx(before.period_ms * factor, rel=1e-12)


def test_joint_baselines_are_the_two_plain_plans(make: SimpleNamespace) -> None:
    graph = make.chain(3, parameter_bytes=1000)
    cluster = Cluster.of([2, 2], [1e6, 1e5])
    base = baselines(Problem(graph, cluster))
    assert base.one_device_ms == 9.0
    sync = (2 / 2 * 3000 / 1e6 + 2 / 2 * 3000 / 1e5) * 1e3
    assert base.data_parallel_ms == pytest.approx((9 + sync) / 4)
    flushed = baselines(Problem(graph, cluster, schedule="gpipe", micro_batches=8))
    assert flushed.one_device_ms == pytest.approx(8 * 9.0)
    assert flushed.data_parallel_ms == pytest.approx(9 + 7 * 9 / 4 + sync)


def test_ten_thousand_layers_on_128_devices(make: SimpleNamespace) -> None:
    graph = make.large_graph(10_000)
    cluster = Cluster.of([8, 16], [1e10, 1e9])
    cuts = sorted(random.Random(3).sample(range(1, 10_000), 127))
    stages = tuple(
        (tuple(range(a, b)), 1) for a, b in zip([0, *cuts], [*cuts, 10_000], strict=True)
    )
    plan = joint_plan(cluster, stages)
    price = evaluate(Problem(graph, cluster), plan)
    assert price.topology.cut_bytes[63] == graph.cut_bytes(range(cuts[63]))
    assert math.isfinite(price.objective_ms)
    assert len(price.memory) == 128
