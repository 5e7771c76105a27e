"""From a valid plan, one broken rule at a time: each is found and said in words."""

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeplan.core.check import block_sizes, check, violations
from pipeplan.core.cluster import Cluster
from pipeplan.core.errors import PlanError
from pipeplan.core.graph import GraphInput, Layer, LayerGraph, Together
from pipeplan.core.memory import stage_memory
from pipeplan.core.plan import NestedStage, Plan, Stage, joint_plan, nested_plan
from pipeplan.core.problem import Constraints, Problem

CLUSTER = Cluster.of([4, 2], [1e6, 1e5])


def diamond(**more: Any) -> LayerGraph:
    """a feeds b and c, both feed d; d feeds e."""
    return LayerGraph.build(
        [Layer(x, 1, 2, 1000, 100) for x in "abcde"],
        [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e")],
        inputs=[GraphInput("x", 8, ("a",))],
        **more,
    )


def joint(graph: LayerGraph | None = None, **more: Any) -> Problem:
    return Problem(graph or diamond(), CLUSTER, **more)


def one_message(problem: Problem, plan: Plan, pattern: str, *, scope: bool = True) -> None:
    """The plan breaks exactly one rule, which the message names."""
    found = violations(problem, plan, scope=scope)
    assert len(found) == 1, found
    assert re.search(pattern, found[0]), found
    if scope:
        with pytest.raises(PlanError, match=re.escape(found[0])):
            check(problem, plan)


VALID = joint_plan(CLUSTER, (((0, 1), 3), ((2, 3), 2), ((4,), 1)))


def test_a_valid_plan_breaks_no_rule() -> None:
    assert violations(joint(), VALID) == ()
    check(joint(), VALID)
    assert violations(joint(), joint_plan(CLUSTER, (((0, 1, 2, 3, 4), 1),), 8)) == ()


@pytest.mark.parametrize(
    ("stages", "pattern"),
    [
        (((0, 1), (2, 3)), "layer e is in no stage"),
        (((0, 1), (1, 2, 3), (4,)), "layer b is in 2 stages"),
        (((0, 1), (2, 3), (4, 5)), r"stage 2 names layer index 5, but the graph has 5 layers"),
        (((0, 1), (2, 3), (-1, 4)), r"stage 2 names layer index -1"),
        (((0, 1, 3), (2,), (4,)), r"layer d \(stage 0\) reads layer c of the later stage 1"),
        (((1, 2, 3, 4), (0,)), "of the later stage 1"),
    ],
)
def test_stages_partition_the_graph_into_ideals(
    stages: tuple[tuple[int, ...], ...], pattern: str
) -> None:
    plan = Plan(tuple(Stage(x, (i,)) for i, x in enumerate(stages)))
    found = violations(joint(), plan)
    assert found
    assert re.search(pattern, found[0])
    assert violations(joint(), plan, scope=False) == found


@pytest.mark.parametrize(
    ("ranks", "pattern"),
    [
        (((0, 1, 2), (3, 4), (8,)), "stage 2 is on rank 8, but ranks are 0 to 7"),
        (((-1, 1, 2), (3, 4), (5,)), "stage 0 is on rank -1"),
        (((0, 1, 2), (2, 3), (5,)), "rank 2 holds stage 0 and stage 1"),
    ],
)
def test_ranks_exist_and_hold_one_stage(ranks: tuple[tuple[int, ...], ...], pattern: str) -> None:
    layers = [stage.layers for stage in VALID.stages]
    plan = Plan(tuple(Stage(x, r) for x, r in zip(layers, ranks, strict=True)))
    one_message(joint(), plan, pattern)
    one_message(joint(), plan, pattern, scope=False)


@pytest.mark.parametrize(
    ("asked", "pattern"),
    [
        (Constraints(max_stages=2), "3 stages, but at most 2 are allowed"),
        (Constraints(pinned=((2, 0),)), "layer c is in stage 1, but is pinned to stage 0"),
        (Constraints(together=((1, 2),)), "layers b, c must share a stage"),
        (Constraints(forced_cuts=(frozenset({0}),)), "no stage ends with the forced cut after 1"),
        (
            Constraints(forced_cuts=(frozenset({0, 2}),)),
            "no stage ends with the forced cut after 2",
        ),
        (
            Constraints(forbidden_cuts=(frozenset({0, 1}),)),
            "a stage ends with the forbidden cut after 2",
        ),
    ],
)
def test_each_demand_is_checked(asked: Constraints, pattern: str) -> None:
    one_message(joint(constraints=asked), VALID, pattern)
    one_message(joint(constraints=asked), VALID, pattern, scope=False)


def test_demands_that_are_met_are_no_violations() -> None:
    met = Constraints(
        max_stages=3,
        pinned=((0, 0), (4, 2)),
        together=((2, 3), (0, 1)),
        forced_cuts=(frozenset({0, 1}), frozenset({0, 1, 2, 3})),
        forbidden_cuts=(frozenset({0}), frozenset({0, 2}), frozenset({0, 1, 2})),
    )
    assert violations(joint(constraints=met), VALID) == ()


def test_a_straight_pipeline_has_no_replicas() -> None:
    problem = joint(constraints=Constraints(straight=True))
    found = violations(problem, VALID)
    assert [x for x in found if "straight" in x] == list(found)
    assert len(found) == 2
    assert violations(problem, joint_plan(CLUSTER, (((0, 1), 1), ((2, 3, 4), 1)))) == ()


def test_groups_of_the_graph_share_a_stage() -> None:
    graph = diamond(together=[Together(("b", "c"), "tied weights")])
    one_message(joint(graph), VALID, "layers b, c must share a stage")
    # The original knows no groups.
    nested = nested_plan(
        Cluster.of([2], [1e6]), (NestedStage((0, 1), 1), NestedStage((2, 3, 4), 1))
    )
    problem = Problem(graph, Cluster.of([2], [1e6]), scope="nested", cost_model="pipedream")
    assert violations(problem, nested) == ()


def test_joint_ranks_are_consecutive() -> None:
    stages = (Stage((0, 1), (0, 1, 3)), Stage((2, 3), (2, 4)), Stage((4,), (5,)))
    found = violations(joint(), Plan(stages))
    assert len(found) == 2
    assert re.search(r"stage 0 is on ranks \(0, 1, 3\), not on \(0, 1, 2\)", found[0])
    assert violations(joint(), Plan(stages), scope=False) == ()


@pytest.mark.parametrize("copies", [2, 4, 8])
def test_copies_come_in_blocks(copies: int) -> None:
    plan = joint_plan(CLUSTER, (((0, 1, 2, 3, 4), 1),), copies)
    assert violations(joint(), plan) == ()


def test_blocks_fit_the_hierarchy() -> None:
    # Blocks of three would straddle the groups of two of a 2 x 3 cluster.
    cluster = Cluster.of([2, 3], [1e6, 1e5])
    problem = Problem(diamond(), cluster)
    assert block_sizes(problem) == (6, 2, 1)
    plan = Plan((Stage((0, 1, 2, 3, 4), (0, 3)),), copies=2)
    one_message(problem, plan, "2 copies are not blocks of whole groups")
    assert block_sizes(joint()) == (8, 4, 2, 1)
    assert block_sizes(Problem(diamond(), Cluster.of([6, 2], [1.0, 1.0]))) == (12, 6, 3, 2, 1)
    assert block_sizes(joint(constraints=Constraints(straight=True))) == (8,)


def test_a_number_of_copies_that_does_not_divide_is_no_block() -> None:
    plan = Plan((Stage((0, 1, 2, 3, 4), (0, 1, 2)),), copies=3)
    one_message(joint(), plan, "3 copies are not blocks")
    huge = Plan((Stage((0, 1, 2, 3, 4), (0,)),), copies=10**30)
    assert any("copies" in x for x in violations(joint(), huge))
    assert any("identical copies" in x for x in violations(joint(), huge, scope=False))


def test_copies_are_identical() -> None:
    plan = replace(VALID, copies=2)
    one_message(joint(), plan, "not made of 2 identical copies")
    one_message(joint(), plan, "not made of 2 identical copies", scope=False)
    crossed = Plan((Stage((0, 1), (0, 5)), Stage((2, 3, 4), (1, 4))), copies=2)
    assert any("2 copies" in x for x in violations(joint(), crossed))


def test_a_joint_plan_has_no_structure() -> None:
    nested = nested_plan(CLUSTER, (NestedStage((0, 1, 2, 3, 4), 1, (leaf(1, 0, 1, 2, 3, 4),)),))
    one_message(joint(), nested, "no level-wise structure")


def leaf(replicas: int, *layers: int) -> NestedStage:
    return NestedStage(layers, replicas)


def levelwise(**more: Any) -> Problem:
    return Problem(diamond(), CLUSTER, scope="nested", cost_model="levelwise", **more)


NESTED = (
    NestedStage((0, 1, 2, 3), 1, (leaf(3, 0, 1), leaf(1, 2, 3))),
    NestedStage((4,), 1, (leaf(2, 4),)),
)


def test_a_nested_plan_follows_its_structure() -> None:
    plan = nested_plan(CLUSTER, NESTED)
    assert violations(levelwise(), plan) == ()
    one_message(levelwise(), replace(plan, nested=None), "needs its level-wise structure")
    assert violations(levelwise(), replace(plan, nested=None), scope=False) == ()
    elsewhere = Plan((*plan.stages[:2], Stage((4,), (5, 6))), nested=plan.nested)
    for scope in (True, False):
        one_message(levelwise(), elsewhere, "stages are not those of", scope=scope)


@pytest.mark.parametrize(
    ("nested", "pattern"),
    [
        ((leaf(1, 0, 1, 2, 3, 4),), "depth does not match"),
        ((NestedStage((0, 1, 2, 3, 4), 3, (leaf(1, 0, 1, 2, 3, 4),)),), "more than the 2 children"),
        ((NestedStage((0, 1, 2, 3, 4), 1, (leaf(5, 0, 1, 2, 3, 4),)),), "more than the 4 children"),
        (
            (NestedStage((0, 1, 2, 3, 4), 1, (NestedStage((0, 1, 2, 3, 4), 1, (leaf(1, 0),)),)),),
            "depth does not match",
        ),
        ((), "has no stages"),
    ],
)
def test_a_structure_fits_the_cluster(nested: tuple[NestedStage, ...], pattern: str) -> None:
    plan = Plan((Stage((0, 1, 2, 3, 4), (0,)),), nested=nested)
    one_message(levelwise(), plan, pattern)
    one_message(levelwise(), plan, pattern, scope=False)


def test_outer_and_inner_stages_hold_the_same_layers() -> None:
    wrong = (NestedStage((0, 1, 2), 1, (leaf(3, 0, 1), leaf(1, 2, 3))), NESTED[1])
    plan = replace(nested_plan(CLUSTER, NESTED), nested=wrong)
    one_message(levelwise(), plan, "level-2 stage and its inner stages hold different layers")


def test_one_object_in_two_places_is_two_stages() -> None:
    # Counting copies by object identity took this for one stage on two ranks, priced as two.
    same = leaf(1, 0, 1, 2, 3, 4)
    plan = nested_plan(Cluster.of([2], [1.0]), (same, same))
    assert [stage.ranks for stage in plan.stages] == [(0,), (1,)]
    problem = Problem(diamond(), Cluster.of([2], [1.0]), scope="nested", cost_model="levelwise")
    assert "layer a is in 2 stages" in violations(problem, plan)


def original(**more: Any) -> Problem:
    return Problem(diamond(), CLUSTER, scope="nested", cost_model="pipedream", **more)


def test_the_original_uses_every_machine_unless_told_otherwise() -> None:
    plan = nested_plan(CLUSTER, NESTED)
    one_message(original(), plan, "2 of the 4 machines of level 1 are used")
    assert violations(original(use_fewer_machines=True), plan) == ()
    assert violations(original(), plan, scope=False) == ()


@pytest.mark.parametrize(
    ("replicas", "factors"),
    [
        ((1, 1, 2), (3, 2, 0)),
        ((2, 1, 1), (1, 1, 0)),
        ((1, 2, 1), (3, 1, 0)),
    ],
)
def test_the_originals_memory_rule(
    replicas: tuple[int, int, int], factors: tuple[int, int, int]
) -> None:
    # ceil(machines behind / replicas) copies of activations and weights; none for the last stage.
    sizes = (10, 100, 1000)
    graph = LayerGraph.build(
        [Layer(f"n{i}", 1, 1, size - 1, 1) for i, size in enumerate(sizes)],
        [("n0", "n1"), ("n1", "n2")],
    )
    need = max(size * factor for size, factor in zip(sizes, factors, strict=True))
    nested = tuple(leaf(r, i) for i, r in enumerate(replicas))
    for memory, fits in ((need, True), (need - 1, False)):
        cluster = Cluster.of([4], [1.0], memory_bytes=memory)
        problem = Problem(graph, cluster, scope="nested", cost_model="pipedream")
        plan = nested_plan(cluster, nested)
        if fits:
            assert violations(problem, plan) == ()
        else:
            one_message(problem, plan, "breaks the original's memory rule")


def test_idle_machines_do_not_relieve_the_first_stage() -> None:
    graph = LayerGraph.build([Layer("n0", 1, 1, 9, 1), Layer("n1", 1, 1, 9, 1)], [("n0", "n1")])
    for memory, fits in ((30, True), (29, False)):
        cluster = Cluster.of([4], [1.0], memory_bytes=memory)
        problem = Problem(
            graph, cluster, scope="nested", cost_model="pipedream", use_fewer_machines=True
        )
        # Stage 0 was admitted to the table with three machines behind it, two of which stay idle.
        assert (violations(problem, nested_plan(cluster, (leaf(1, 0), leaf(1, 1)))) == ()) is fits


SCHEDULES: list[dict[str, Any]] = [
    {"schedule": "pipedream"},
    {"schedule": "1f1b", "micro_batches": 5},
    {"schedule": "gpipe", "micro_batches": 5},
]


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("options", SCHEDULES, ids=lambda x: x["schedule"])
def test_the_memory_limit_is_sharp(options: dict[str, Any], recompute: bool) -> None:
    free = joint(recompute=recompute, **options)
    peaks = [x.peak_bytes for x in stage_memory(free, VALID)]
    for slack, fits in ((0, True), (-1, False)):
        problem = replace(free, cluster=replace(CLUSTER, memory_bytes=max(peaks) + slack))
        found = violations(problem, VALID)
        assert found == violations(problem, VALID, scope=False)
        if fits:
            assert found == ()
            continue
        too_large = [s for s, peak in enumerate(peaks) if peak == max(peaks)]
        assert len(found) == len(too_large)
        for s, message in zip(too_large, found, strict=True):
            assert re.search(rf"stage {s} needs .* \({peaks[s]} bytes\) a rank, but", message)


def test_levelwise_plans_meet_the_limit_across_all_levels() -> None:
    plan = nested_plan(CLUSTER, NESTED)
    peaks = [x.peak_bytes for x in stage_memory(levelwise(), plan)]
    # Stage 1 has one replica and two ranks of the other server behind it: three in flight.
    assert peaks[1] == 4 * 200 + 2 * 200 + 3 * 2000
    tight = replace(CLUSTER, memory_bytes=max(peaks) - 1)
    one_message(replace(levelwise(), cluster=tight), plan, "bytes\\) a rank, but a device has")


def test_at_most_twenty_violations_are_written_out(make: SimpleNamespace) -> None:
    graph = make.chain(100)
    plan = Plan((Stage((0,), (0,)),))
    assert len(violations(Problem(graph, CLUSTER), plan)) == 99
    with pytest.raises(PlanError) as caught:
        check(Problem(graph, CLUSTER), plan)
    assert str(caught.value).count(";") == 19


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_drawn_plans_are_valid_on_any_ranks(data: st.DataObject, make: SimpleNamespace) -> None:
    problem = data.draw(make.topology_problems())
    plan = data.draw(make.plans(problem.graph, problem.cluster))
    assert violations(problem, plan, scope=False) == ()
    layers = tuple((stage.layers, stage.replicas) for stage in plan.stages)
    assert violations(problem, joint_plan(problem.cluster, layers)) == ()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_drawn_structures_are_valid(data: st.DataObject, make: SimpleNamespace) -> None:
    graph, cluster = data.draw(make.graphs()), data.draw(make.clusters())
    plan = nested_plan(cluster, data.draw(make.nested_structures(graph, cluster)))
    for model, fewer in (("levelwise", False), ("pipedream", True)):
        full = replace(cluster, duplex="full")
        problem = Problem(graph, full, scope="nested", cost_model=model, use_fewer_machines=fewer)
        assert violations(problem, plan) == ()
