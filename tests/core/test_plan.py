"""Plans: stages, ranks, and the two ways of laying them out."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeplan.core.cluster import Cluster
from pipeplan.core.errors import PlanError
from pipeplan.core.plan import (
    NestedStage,
    Plan,
    Stage,
    innermost,
    joint_plan,
    nested_plan,
    stage_layers,
)

CLUSTER = Cluster.of([4, 2, 2], [4.0, 2.0, 1.0])


def leaf(replicas: int, *layers: int) -> NestedStage:
    return NestedStage(layers, replicas)


@pytest.mark.parametrize(
    ("layers", "ranks", "pattern"),
    [
        ((), (0,), "no layers"),
        ((0,), (), "no ranks"),
        ((1, 0), (0,), "layers must be ascending"),
        ((0, 0), (0,), "layers must be ascending"),
        ((0,), (1, 0), "ranks must be ascending"),
        ((0,), (1, 1), "ranks must be ascending"),
    ],
)
def test_a_stage_has_ascending_layers_and_ranks(
    layers: tuple[int, ...], ranks: tuple[int, ...], pattern: str
) -> None:
    with pytest.raises(PlanError, match=pattern):
        Stage(layers, ranks)


def test_a_plan_has_stages_and_copies() -> None:
    with pytest.raises(PlanError, match="no stages"):
        Plan(())
    for copies in (0, -1, -(10**5000)):
        with pytest.raises(PlanError, match="copies; it must be at least 1"):
            Plan((Stage((0,), (0,)),), copies)


@pytest.mark.parametrize("replicas", [0, -1, -(2**62)])
def test_a_nested_stage_has_replicas(replicas: int) -> None:
    with pytest.raises(PlanError, match="replicas; it must be at least 1"):
        leaf(replicas, 0)
    with pytest.raises(PlanError, match="layers must be ascending"):
        leaf(1, 1, 0)


def test_what_a_plan_knows() -> None:
    plan = Plan((Stage((0, 2), (0, 1)), Stage((1,), (3,)), Stage((3, 4), (2,))))
    assert plan.devices == 4
    assert plan.stage_of_rank == {0: 0, 1: 0, 3: 1, 2: 2}
    assert plan.stage_of_layer == {0: 0, 2: 0, 1: 1, 3: 2, 4: 2}
    assert plan.prefixes == ({0, 2}, {0, 1, 2}, {0, 1, 2, 3, 4})


def test_equal_prices_prefer_few_stages_then_few_devices_then_small_layers() -> None:
    one = Plan((Stage((0, 1, 2), (0, 1, 2)),))
    fewer = Plan((Stage((0,), (0,)), Stage((1, 2), (1,))))
    more = Plan((Stage((0,), (0, 2)), Stage((1, 2), (1,))))
    later = Plan((Stage((0, 1), (0,)), Stage((2,), (1,))))
    assert sorted([more, later, one, fewer], key=Plan.key) == [one, fewer, later, more]


def test_joint_stages_take_consecutive_ranks_of_each_block() -> None:
    plan = joint_plan(CLUSTER, (((0, 1), 3), ((2,), 1), ((3,), 2)), 2)
    assert [stage.ranks for stage in plan.stages] == [
        (0, 1, 2, 8, 9, 10),
        (3, 11),
        (4, 5, 12, 13),
    ]
    assert plan.copies == 2


@pytest.mark.parametrize(("copies", "replicas"), [(3, 1), (2, 9), (32, 1), (1, 17)])
def test_joint_blocks_are_large_enough_and_divide(copies: int, replicas: int) -> None:
    with pytest.raises(PlanError, match="do not fit 16 devices in equal blocks"):
        joint_plan(CLUSTER, (((0,), replicas),), copies)


def test_nested_copies_lie_depth_first() -> None:
    inner = (leaf(2, 0), leaf(1, 1))
    middle = (NestedStage((0, 1), 2, inner),)
    nested = (
        NestedStage((0, 1), 1, middle),
        NestedStage((2,), 1, (NestedStage((2,), 1, (leaf(4, 2),)),)),
    )
    plan = nested_plan(CLUSTER, nested)
    assert [stage.ranks for stage in plan.stages] == [(0, 1, 4, 5), (2, 6), (8, 9, 10, 11)]
    assert [stage.layers for stage in plan.stages] == [(0,), (1,), (2,)]
    assert [x.layers for x in innermost(nested)] == [(0,), (1,), (2,)]
    assert plan.nested == nested


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_nested_ranks_by_a_walk_over_the_devices(
    data: st.DataObject, make: SimpleNamespace
) -> None:
    graph, cluster = data.draw(make.graphs()), data.draw(make.clusters(16))
    nested = data.draw(make.nested_structures(graph, cluster))
    plan = nested_plan(cluster, nested)

    def holder(stages: tuple[NestedStage, ...], level: int, position: int) -> tuple[int, ...]:
        """The layers that the device at a position inside a group holds; () where it is idle."""
        size = cluster.group_sizes[level - 1]
        child, inside = divmod(position, size)
        for stage in stages:
            if child < stage.replicas:
                return holder(stage.inner, level - 1, inside) if level > 1 else stage.layers
            child -= stage.replicas
        return ()

    for rank in range(cluster.devices):
        s = plan.stage_of_rank.get(rank)
        held = () if s is None else plan.stages[s].layers
        assert held == holder(nested, len(cluster.levels), rank)


def test_layers_by_name(make: SimpleNamespace) -> None:
    graph = make.chain(12)
    assert stage_layers(graph, (("n10", "n2"), ("n0",))) == [(2, 10), (0,)]
    with pytest.raises(PlanError, match="no layer n99"):
        stage_layers(graph, (("n99",),))
