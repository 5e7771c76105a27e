"""Plan files: the same bytes come back, and a file that does not fit its own plan is refused."""

import copy
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeplan.core.cluster import Cluster, Level
from pipeplan.core.codec import (
    PlanFile,
    Provenance,
    cluster_from_dict,
    cluster_to_dict,
    gap,
    plan_from_dict,
    plan_to_dict,
)
from pipeplan.core.cost import evaluate
from pipeplan.core.errors import PipeplanError, PlanError
from pipeplan.core.graph import GraphInput, Layer, LayerGraph, Together
from pipeplan.core.jsontext import dump_json, parse_json
from pipeplan.core.plan import NestedStage, Plan, Stage, joint_plan, nested_plan
from pipeplan.core.problem import Constraints, Problem

Path = tuple[str | int, ...]


def graph() -> LayerGraph:
    return LayerGraph.build(
        [
            Layer("a", 1.5, 2.25, 1000, 80, description="Conv2d(3, 64)"),
            Layer("b", 2, 4, 500, 8, 700, tensors=({"shape": [4, 2], "dtype": "float32"},)),
            Layer("c", 1, 2, 250),
            Layer("d", 3, 1, 10, 4000),
        ],
        [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")],
        inputs=[GraphInput("x", 64, ("a", "d"))],
        together=[Together(("b", "c"), "tied weights")],
        name="net",
        metadata={"device": "v100"},
    )


CLUSTER = Cluster(
    (Level(4, 1e6, 0.125, "NVLink"), Level(2, 1e5)), memory_bytes=10**6, duplex="full"
)


def joint_file(**more: Any) -> PlanFile:
    problem = Problem(
        graph(),
        CLUSTER,
        constraints=Constraints(
            max_stages=4,
            forced_cuts=(frozenset({0}),),
            forbidden_cuts=(frozenset({0, 1}), frozenset({0, 2})),
            pinned=((3, 2),),
            together=((2, 1),),
        ),
        **more,
    )
    plan = joint_plan(CLUSTER, (((0,), 2), ((1, 2), 1), ((3,), 1)), 2)
    price = evaluate(problem, plan)
    origin = Provenance("OPTIMAL", "dp", "0.1.0", price.objective_ms * (1 - 1e-12), None, 7, 2)
    return PlanFile(problem, plan, price, origin)


def nested_file() -> PlanFile:
    problem = Problem(
        graph(), CLUSTER, scope="nested", cost_model="levelwise", activation_compression_ratio=2
    )
    inner = (NestedStage((0,), 1), NestedStage((1, 2), 2))
    outer = (
        NestedStage((0, 1, 2), 1, inner),
        NestedStage((3,), 1, (NestedStage((3,), 4),)),
    )
    plan = nested_plan(CLUSTER, outer)
    origin = Provenance("FEASIBLE", "cpsat", "0.1.0", 0.5, "time")
    return PlanFile(problem, plan, evaluate(problem, plan), origin)


def given_file() -> PlanFile:
    problem = Problem(graph(), CLUSTER, schedule="gpipe", micro_batches=4, recompute=True)
    plan = Plan((Stage((0, 1, 2), (1, 6)), Stage((3,), (0,))))
    return PlanFile(problem, plan, evaluate(problem, plan), Provenance("GIVEN"))


FILES = {"joint": joint_file, "nested": nested_file, "given": given_file}


@pytest.mark.parametrize("name", sorted(FILES))
def test_the_same_bytes_come_back(name: str) -> None:
    file = FILES[name]()
    text = dump_json(plan_to_dict(file))
    again = plan_from_dict(parse_json(text, PlanError))
    assert again == file
    assert dump_json(plan_to_dict(again)) == text


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_drawn_plans_come_back(data: st.DataObject, make: SimpleNamespace) -> None:
    problem = data.draw(make.topology_problems())
    plan = data.draw(make.plans(problem.graph, problem.cluster))
    file = PlanFile(problem, plan, evaluate(problem, plan), Provenance("GIVEN"))
    text = dump_json(plan_to_dict(file))
    again = plan_from_dict(parse_json(text, PlanError))
    assert again == file
    assert dump_json(plan_to_dict(again)) == text


def places(value: Any, here: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every place of a document, outermost first."""
    yield here, value
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        yield from places(inner, (*here, key))


def with_value(document: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    out = copy.deepcopy(document)
    place = out
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return out


def tamperings(value: Any) -> Iterator[Any]:
    """Small changes that keep the kind, and some that do not."""
    if isinstance(value, bool):
        yield from (not value, int(value))
    elif isinstance(value, int):
        yield from (value + 1, value - 1, -value - 1, str(value), 10**30, value + 0.5)
    elif isinstance(value, float):
        yield from (value * 1.001 + 1e-6, -value - 1.0, str(value), None, 10**400, float("nan"))
    elif isinstance(value, str):
        yield from (value + "x", "", 1, None)
    elif value is None:
        yield from (1, [])
    elif isinstance(value, list):
        yield from ([*value, 0], value[1:] if value else [[]], {}, None)
        if len(value) > 1 and value[0] != value[-1]:
            yield value[::-1]
    else:
        yield {**value, "extra": 1}
        for key in value:
            yield {k: v for k, v in value.items() if k != key}
        yield from ([], None)


def free(path: Path) -> bool:
    """Whether another value there may make a valid file: who found the plan, what is only shown,
    and another question that has this plan at this price."""
    only_shown = path[:2] in {("bottleneck", "text"), ("profile", "name"), ("profile", "metadata")}
    found_by = path[:1] in {(x,) for x in ("version", "backend", "limit", "seed", "workers")}
    return only_shown or found_by or "tensors" in path or path[:1] == ("problem",)


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_tampering_is_refused(name: str) -> None:
    original = FILES[name]()
    document = plan_to_dict(original)
    refused = 0
    for path, value in places(document):
        for other in tamperings(value):
            try:
                found = plan_from_dict(with_value(document, path, other))
            except PlanError as error:
                message = str(error)
            else:
                # What is accepted says the same thing: fields of a profile that may be left out,
                # and whole numbers that are written as such.
                touched = [path]
                if isinstance(value, dict) and isinstance(other, dict):
                    touched += [(*path, key) for key in value.keys() ^ other.keys()]
                assert found == original or any(map(free, touched)), (path, value, other)
                assert found.plan == original.plan
                assert found.evaluation.objective_ms == pytest.approx(
                    original.evaluation.objective_ms, rel=1e-9
                )
                continue
            assert message.isprintable()
            assert len(message) < 2_000
            refused += 1
    assert refused > 400


def replaced(path: Path, value: Any, name: str = "joint") -> Any:
    return with_value(plan_to_dict(FILES[name]()), path, value)


@pytest.mark.parametrize(
    ("name", "path", "value", "pattern"),
    [
        ("joint", (), [], "plan: this is not an object"),
        ("joint", ("schema",), "pipeplan.plan/2", "plan: schema is not 'pipeplan.plan/1'"),
        ("joint", ("objective_ms",), 1.0, "plan: objective_ms is 1.0, but the plan makes it"),
        ("joint", ("stages", 0, "peak_bytes"), 5, r"plan: stages\[0\]: peak_bytes is 5, but"),
        ("joint", ("stages", 0, "ranks"), [0, 5], "stage 0 is on ranks"),
        ("joint", ("stages", 0, "ranks"), [0, 0], "ascending and without repeats"),
        ("joint", ("stages", 0, "ranks"), [0, 10**30], "is on rank 1000"),
        ("joint", ("stages", 0, "ranks"), [0, True], "not a list of whole numbers"),
        ("joint", ("stages", 0, "ranks"), [], "a stage has no ranks"),
        ("joint", ("stages", 0, "layers"), ["z"], "has no such layer: 'z'"),
        ("joint", ("stages", 0, "layers"), ["a", "b"], "layer b is in 2 stages"),
        ("joint", ("stages",), [], "a plan has no stages"),
        ("joint", ("rank_map", "0"), [0], r"plan: rank_map: 0 is \[0\], but the plan makes it"),
        ("joint", ("rank_map", "9"), [0], "plan: rank_map: '9' is not a field of a plan"),
        ("joint", ("routing", 0, "pairs", 0, 2), "1/3", "plan: routing"),
        ("joint", ("copies",), 4, "identical copies"),
        ("joint", ("copies",), -1, "it must be at least 1"),
        ("joint", ("profile_digest",), "sha256:0", "is not the one that profile_digest names"),
        ("joint", ("profile", "layers", 0, "forward_ms"), 1.25, "profile_digest"),
        ("joint", ("profile", "layers", 0, "forward_ms"), -1, "plan: layer a: forward_ms is -1"),
        ("joint", ("profile",), None, "plan: profile: this is not an object"),
        ("joint", ("problem", "scope"), "both", "there is no scope 'both'"),
        ("joint", ("problem", "cluster", "duplex"), "Half", "duplex is 'Half'"),
        ("joint", ("problem", "cluster", "duplex"), "half", "but the plan makes it"),
        ("joint", ("problem", "cluster", "memory_bytes"), 10, "but a device has 10 B"),
        ("joint", ("problem", "cluster", "levels"), [], "at least one level"),
        ("joint", ("problem", "constraints", "max_stages"), 2, "at most 2 are allowed"),
        ("joint", ("problem", "constraints", "pinned"), [["a", True]], "pinned is not a list"),
        ("joint", ("problem", "constraints", "forced_cuts"), [[]], "proper, non-empty set"),
        ("joint", ("status",), "BEST", "status is not OPTIMAL, FEASIBLE or GIVEN: 'BEST'"),
        ("joint", ("bound_ms",), None, "status is OPTIMAL, but no bound"),
        ("joint", ("bound_ms",), 1e9, "bound_ms is 1000000000.0; it must be from 0 to"),
        ("nested", ("bound_ms",), -1.0, "bound_ms is -1.0"),
        ("nested", ("gap",), 0.25, "plan: gap is 0.25"),
        ("nested", ("nested",), None, "needs its level-wise structure"),
        ("nested", ("nested", 0, "replicas"), 2, "more than the 2 children of level 2"),
        ("nested", ("nested", 0, "replicas"), 2**40, "more than the 2 children of level 2"),
        ("nested", ("nested", 0, "replicas"), 0, "at least 1"),
        ("nested", ("nested", 0, "inner", 0, "replicas"), 2, "stages are not those of"),
        ("nested", ("nested", 0, "inner"), [], "depth does not match"),
        ("given", ("nested",), [{"replicas": 1, "layers": ["a"]}], "depth does not match"),
        ("given", ("problem", "micro_batches"), 10**7, "number of micro-batches"),
    ],
)
def test_what_is_wrong_is_named(name: str, path: Path, value: Any, pattern: str) -> None:
    with pytest.raises(PlanError, match=pattern):
        plan_from_dict(replaced(path, value, name))


def test_structures_are_not_followed_beyond_any_cluster() -> None:
    stage: Any = {"replicas": 1, "layers": ["a"]}
    for _ in range(20):
        stage = {"replicas": 1, "inner": [stage]}
    with pytest.raises(PlanError, match="nested more than 8 deep"):
        plan_from_dict(replaced(("nested",), [stage], "nested"))


def test_a_plan_that_a_person_brought_may_beat_the_bound_of_the_scope() -> None:
    # The bound is of all plans on consecutive ranks; these ranks are not.
    file = given_file()
    above = PlanFile(
        file.problem,
        file.plan,
        file.evaluation,
        Provenance("GIVEN", bound_ms=file.evaluation.objective_ms * 2),
    )
    assert plan_from_dict(plan_to_dict(above)) == above


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
    | st.sampled_from(["a", "half", "gpipe", 10**400, -1, 2**63, 2**62, 1e308, -0.0, {}, [[]]]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["replicas", "inner", "layers", "x"]), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(data=st.data(), name=st.sampled_from(sorted(FILES)))
def test_anything_anywhere_is_an_error_or_a_file(data: st.DataObject, name: str) -> None:
    document = plan_to_dict(FILES[name]())
    path = data.draw(st.sampled_from([path for path, _ in places(document)]))
    tampered = with_value(document, path, data.draw(ANYTHING))
    try:
        file = plan_from_dict(tampered)
    except PipeplanError as error:
        message = str(error)
    else:
        text = dump_json(plan_to_dict(file))
        assert plan_from_dict(json.loads(text)) == file
        message = "valid"
    assert message.isprintable()


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_clusters_come_back(data: st.DataObject, make: SimpleNamespace) -> None:
    cluster = data.draw(make.clusters())
    assert cluster_from_dict(json.loads(dump_json(cluster_to_dict(cluster)))) == cluster
    named = Cluster((Level(2, 1.5, 0.25, "PCIe"),), 7, "half")
    assert cluster_from_dict(cluster_to_dict(named)) == named


def test_the_gap_is_relative_to_the_objective() -> None:
    assert gap(10.0, None) is None
    assert gap(10.0, 8.0) == pytest.approx(0.2)
    assert gap(10.0, 10.0) == gap(10.0, 11.0) == gap(0.0, 0.0) == 0.0


def test_a_plan_file_holds_the_whole_question() -> None:
    document = plan_to_dict(joint_file())
    assert document["stages"][0]["inputs"] == ["x"]
    assert [stage["inputs"] for stage in document["stages"][1:]] == [[], []]
    assert document["rank_map"] == {"0": [0, 1, 4, 5], "1": [2, 6], "2": [3, 7]}
    first = document["routing"][0]
    assert (first["from_stage"], first["to_stage"]) == (0, 1)
    assert first["pairs"] == [[0, 2, "1/4"], [1, 2, "1/4"], [4, 6, "1/4"], [5, 6, "1/4"]]
    assert document["baselines"]["one_device_ms"] == 16.75
    assert document["problem"]["constraints"]["together"] == [["c", "b"]]
    assert document["batch_ms"] is None
    assert plan_to_dict(given_file())["batch_ms"] == plan_to_dict(given_file())["objective_ms"]


def test_ten_thousand_layers_on_128_devices_come_back(make: SimpleNamespace) -> None:
    cluster = Cluster.of([8, 16], [1e10, 1e9])
    stages = tuple((tuple(range(78 * s, 78 * s + 78)), 1) for s in range(128))
    problem = Problem(make.large_graph(9_984), cluster)
    plan = joint_plan(cluster, stages)
    file = PlanFile(problem, plan, evaluate(problem, plan), Provenance("FEASIBLE", "dp"))
    assert plan_from_dict(parse_json(dump_json(plan_to_dict(file)), PlanError)) == file
