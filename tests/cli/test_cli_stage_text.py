"""Plans as people write them."""

from itertools import pairwise

import pytest

from pipeplan.cli.stage_text import StageText, parse_stages, placed, with_copies
from pipeplan.core.cluster import Cluster
from pipeplan.core.errors import PipeplanError
from pipeplan.core.graph import Layer, LayerGraph
from pipeplan.core.problem import Problem

NAMES = ("conv-1", "conv-2", "block:relu", "fc6", "fc7", "fc8")
GRAPH = LayerGraph.build(
    [Layer(name, 1.0, 1.0, 10) for name in NAMES],
    pairwise(NAMES),
)
CLUSTER = Cluster.of([4, 2], [1e9, 1e9])


def test_the_order_is_the_one_assumed() -> None:
    assert tuple(layer.id for layer in GRAPH.layers) == NAMES


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("0-5:8", [StageText((0, 1, 2, 3, 4, 5), 8)]),
        ("0-2:7 3-5:1", [StageText((0, 1, 2), 7), StageText((3, 4, 5), 1)]),
        ("conv-1-block:relu:7 fc6-fc8:1", [StageText((0, 1, 2), 7), StageText((3, 4, 5), 1)]),
        ("conv-1,conv-2,block:relu 3-5", [StageText((0, 1, 2)), StageText((3, 4, 5))]),
        ("0,2,1,3:2 fc7,5:1", [StageText((0, 1, 2, 3), 2), StageText((4, 5), 1)]),
        (
            "0-2@0-2,4-6 3-5@3,7",
            [StageText((0, 1, 2), 6, (0, 1, 2, 4, 5, 6)), StageText((3, 4, 5), 2, (3, 7))],
        ),
        ("0-5:2@1,3", [StageText((0, 1, 2, 3, 4, 5), 2, (1, 3))]),
    ],
)
def test_stages_are_read(text: str, stages: list[StageText]) -> None:
    assert parse_stages(GRAPH, text) == tuple(stages)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("0-4:8", "layer 5 (fc8) is in no stage"),
        ("0-1:8", "nor are 3 others"),
        ("0-3:4 3-5:4", "layer 3 (fc6) is in stages 0 and 1"),
        ("0-5,2:4", "in stage 0 twice"),
        ("0-6:1", "is no layer of the profile"),
        ("0-x:1", "'x' is no layer"),
        ("5-0:1", "run backwards"),
        ("0-5:0", "0 replicas"),
        ("0-5:-1", "is no layer"),
        ("0-5@", "no list of ranks"),
        ("0-5@a", "no list of ranks"),
        ("0-5@3-1", "run backwards"),
        ("0-5@1,1", "twice"),
        ("0-5:3@1,2", "3 replicas but 2 ranks"),
        ("0-5@0-9999999", "more than any cluster"),
        ("\u0661-5:1", "is no layer"),
    ],
)
def test_what_is_no_plan_is_refused(text: str, words: str) -> None:
    with pytest.raises(PipeplanError) as caught:
        parse_stages(GRAPH, text)
    assert words in str(caught.value)


def test_ranks_are_consecutive_where_none_are_given() -> None:
    plan = placed(CLUSTER, parse_stages(GRAPH, "0-2:7 3-5:1"))
    assert [stage.ranks for stage in plan.stages] == [tuple(range(7)), (7,)]


def test_ranks_come_from_a_map() -> None:
    plan = placed(CLUSTER, parse_stages(GRAPH, "0-2 3-5"), ((6, 0), (3,)))
    assert [stage.ranks for stage in plan.stages] == [(0, 6), (3,)]


@pytest.mark.parametrize(
    ("text", "ranks", "words"),
    [
        ("0-2:8 3-5:1", None, "rank 8, but 8 GPUs have ranks 0 to 7"),
        ("0-5:9", None, "9 replicas on 8 GPUs"),
        ("0-2 3-5", None, "how many replicas"),
        ("0-2@1 3-5:2", None, "give all or none"),
        ("0-2@1 3-5@1", None, "rank 1 holds stage 0 and stage 1"),
        ("0-2:2 3-5:1", ((0, 1),), "the rank map has 1 stage, not 2 as are given"),
        ("0-2:2 3-5:1", ((0,), (1,)), "2 replicas, but 1 rank in the map"),
    ],
)
def test_places_that_do_not_exist(
    text: str, ranks: tuple[tuple[int, ...], ...] | None, words: str
) -> None:
    with pytest.raises(PipeplanError) as caught:
        placed(CLUSTER, parse_stages(GRAPH, text), ranks)
    assert words in str(caught.value)


def test_copies_are_recognised() -> None:
    problem = Problem(GRAPH, CLUSTER)
    two = with_copies(problem, placed(CLUSTER, parse_stages(GRAPH, "0-2@0-2,4-6 3-5@3,7")))
    assert two.copies == 2
    one = with_copies(problem, placed(CLUSTER, parse_stages(GRAPH, "0-2:7 3-5:1")))
    assert one.copies == 1
    odd = with_copies(problem, placed(CLUSTER, parse_stages(GRAPH, "0-2@0,3 3-5@7")))
    assert odd.copies == 1
