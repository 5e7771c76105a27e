"""Rank maps: from a plan, round trip with PipeDream's JSON, and maps that people bring."""

import json
from pathlib import Path

import pytest

from pipeplan.codegen.rank_map import RankMap, parse_rank_map, rank_map_of, read_rank_map, warm_up
from pipeplan.core.cluster import Cluster
from pipeplan.core.errors import PlanError
from pipeplan.core.plan import NestedStage, joint_plan, nested_plan

REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "rank-maps"


def conf(**changes: object) -> str:
    base = {
        "module_to_stage_map": [0, 1, 1],
        "stage_to_rank_map": {"0": [0, 1, 2], "1": [3]},
    }
    return json.dumps({**base, **changes}, indent=1)


def test_nested_plan_on_two_servers_keeps_its_ranks() -> None:
    cluster = Cluster.of([8, 2], [4e9, 2e9])
    inner = (NestedStage(tuple(range(24)), 7), NestedStage(tuple(range(24, 40)), 1))
    plan = nested_plan(cluster, (NestedStage(tuple(range(40)), 2, inner),))
    conf = rank_map_of(plan).to_pipedream()
    assert conf["stage_to_rank_map"] == {
        "0": [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14],
        "1": [7, 15],
    }
    assert conf["module_to_stage_map"] == [0, 1, 1]
    assert parse_rank_map(json.dumps(conf)).stages == tuple(s.ranks for s in plan.stages)


def test_order_of_the_stages_in_the_file_does_not_matter_but_their_numbers_do() -> None:
    found = parse_rank_map('{"stage_to_rank_map": {"1": [1, 0], "0": [2]}}')
    assert found.stages == ((2,), (1, 0))


def test_round_trip_keeps_modules_and_depths() -> None:
    given = RankMap(((0, 1), (2,)), (0, 0, 1, 1), (1, 0))
    assert parse_rank_map(json.dumps(given.to_pipedream())) == given


def test_a_map_with_a_gap_is_no_pipedream_map() -> None:
    cluster = Cluster.of([4], [1e9])
    plan = joint_plan(cluster, (((0,), 1),), 1)
    assert rank_map_of(plan).to_pipedream()["stage_to_rank_map"] == {"0": [0]}
    gap = joint_plan(cluster, (((0,), 1),), 2)
    with pytest.raises(PlanError, match="rank 1 is idle"):
        rank_map_of(gap).to_pipedream()


def test_warm_up_is_pipedreams() -> None:
    assert warm_up(((0,), (1,), (2,), (3,))) == (3, 2, 1, 0)
    assert warm_up((tuple(range(15)), (15,))) == (1, 0)
    assert warm_up(((0, 1), (2, 3))) == (1, 0)


@pytest.mark.parametrize(
    ("changes", "line", "message"),
    [
        ({"stage_to_rank_map": {"0": [0, 1], "1": [1]}}, 13, "rank 1 is given twice"),
        ({"stage_to_rank_map": {"0": [0, 0], "1": [1]}}, 9, "rank 0 is given twice to stage 0"),
        ({"stage_to_rank_map": {"0": [0, 1], "1": [3]}}, 13, "rank 2 is missing"),
        ({"stage_to_rank_map": {"0": [0, 1], "2": [2]}}, 7, "stage 1 is missing"),
        ({"stage_to_rank_map": {"0": [0, 1], "1": []}}, 12, "stage 1 has no ranks"),
        ({"stage_to_rank_map": {"0": [0, 1], "1": 2}}, 12, "no list of ranks"),
        ({"stage_to_rank_map": {"0": [0, True], "1": [2]}}, 8, "no rank"),
        ({"stage_to_rank_map": {"0": [0, -1], "1": [2]}}, 8, "no rank"),
        ({"stage_to_rank_map": {"0": [0, 1.0], "1": [2]}}, 8, "no rank"),
        ({"stage_to_rank_map": {"0": [0], "01": [1]}}, 11, "no stage number"),
        ({"stage_to_rank_map": {}}, 7, "names no stage"),
        ({"module_to_stage_map": [0, 1, 2]}, 2, "module 2 is in stage 2"),
        ({"module_to_stage_map": [0, 0, 0]}, 2, "no module is in stage 1"),
        ({"module_to_stage_map": [1, 0, 1, 1]}, 2, "later stage"),
        ({"module_to_stage_map": [0, 0, 1]}, 2, "criterion"),
        ({"stage_to_depth_map": {"0": 0, "1": 0}}, 18, "warms up with 0"),
        ({"stage_to_depth_map": {"0": 1}}, 17, "has 1 stage, not 2"),
    ],
)
def test_a_bad_map_is_named_with_its_line(
    changes: dict[str, object], line: int, message: str
) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        parse_rank_map(conf(**changes), "conf.json")
    assert caught.value.path == "conf.json"
    assert caught.value.line == line


def test_json_errors_are_located() -> None:
    text = '{"module_to_stage_map": [0, 1, 1],\n "stage_to_rank_map": {"0": [0],\n 1: [1]}}'
    with pytest.raises(PlanError, match=r"conf.json:3: not JSON") as caught:
        parse_rank_map(text, "conf.json")
    assert caught.value.line == 3


@pytest.mark.parametrize("text", ["[]", "{}", '{"stage_to_rank_map": []}', "null"])
def test_other_documents_are_told_what_is_missing(text: str) -> None:
    with pytest.raises(PlanError, match="stage_to_rank_map"):
        parse_rank_map(text)


def test_with_a_cluster_ranks_may_idle_but_not_exceed_it() -> None:
    text = '{"stage_to_rank_map": {"0": [0, 2]}}'
    assert parse_rank_map(text, devices=4).stages == ((0, 2),)
    with pytest.raises(PlanError, match="2 devices have ranks 0 to 1"):
        parse_rank_map(text, devices=2)


@pytest.mark.reference
@pytest.mark.skipif(not REFERENCE.is_dir(), reason="no ../shared/reference/rank-maps")
@pytest.mark.parametrize("path", sorted(REFERENCE.glob("*.json")), ids=lambda p: p.stem)
def test_shipped_maps_are_read_and_written_back(path: Path) -> None:
    found = read_rank_map(path)
    assert found.to_pipedream() == json.loads(path.read_text())
