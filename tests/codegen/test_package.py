"""Packages: what is in them, the question of two servers of eight, and attacks on the folder."""

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeplan.codegen.folder import write_folder
from pipeplan.codegen.layer_error import LayerError, located
from pipeplan.codegen.package import build_package, default_micro_batches, write_package
from pipeplan.codegen.rank_map import parse_rank_map
from pipeplan.core.cluster import Cluster
from pipeplan.core.codec import PlanFile, Provenance, plan_from_dict
from pipeplan.core.cost import evaluate
from pipeplan.core.errors import PipeplanError
from pipeplan.core.graph import LayerGraph
from pipeplan.core.plan import NestedStage, joint_plan, nested_plan
from pipeplan.core.problem import Problem
from pipeplan.models.formats import read_profile

Given = Callable[..., Any]

LINE = """
    x Input
    a Conv2d(3, 4, kernel_size=(3, 3))
    b ReLU(inplace)
    c Conv2d(4, 4, kernel_size=(3, 3))
    d ReLU(inplace)
    x > a
    a > b
    b > c
    c > d
"""


def nested_two_by_eight(graph: LayerGraph, cut: int) -> PlanFile:
    cluster = Cluster.of([8, 2], [4294967296, 2147483648])
    everything = tuple(range(len(graph)))
    inner = (NestedStage(everything[:cut], 7), NestedStage(everything[cut:], 1))
    plan = nested_plan(cluster, (NestedStage(everything, 2, inner),))
    problem = Problem(graph, cluster, scope="nested", cost_model="levelwise")
    return PlanFile(problem, plan, evaluate(problem, plan), Provenance("GIVEN"))


def test_the_question_of_two_servers_of_eight(graph_text: Given) -> None:
    files = build_package(nested_two_by_eight(graph_text(LINE), 2)).files
    conf = parse_rank_map(files["hybrid_conf.json"])
    assert conf.stages == ((0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14), (7, 15))
    table = json.loads(files["rank_map.json"])
    for entry in table["ranks"]:
        # No activation crosses servers: peers are on the same host.
        peers = [*entry["receives_from"], *entry["sends_to"]]
        assert peers
        assert {rank // 8 for rank, _ in peers} == {entry["host"]}
        assert entry["host"] == entry["rank"] // 8
        assert entry["local_rank"] == entry["rank"] % 8
    assert [x["replica"] for x in table["ranks"] if x["stage"] == 0] == list(range(14))
    assert "--nnodes=2 --nproc-per-node=8 --node-rank=I" in files["README.md"]
    assert "ranks 0-6, 8-14" in files["README.md"]


@pytest.mark.reference
def test_the_question_of_vgg16(pytestconfig: pytest.Config) -> None:
    path = pytestconfig.rootpath.parent / "shared/reference/pipedream/vgg16.graph.txt"
    if not path.is_file():
        pytest.skip("no ../shared/reference/pipedream")
    files = build_package(nested_two_by_eight(read_profile(path).graph, 24)).files
    assert json.loads(files["hybrid_conf.json"])["stage_to_rank_map"] == {
        "0": [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14],
        "1": [7, 15],
    }
    assert parse_rank_map(files["rank_map.json"], devices=16).stages[1] == (7, 15)


def test_everything_that_is_written(graph_text: Given, given_plan: Given) -> None:
    graph = graph_text(LINE)
    files = build_package(given_plan(graph, [["a", "b"], ["c", "d"]], [2, 1])).files
    assert sorted(files) == [
        "README.md", "dp_conf.json", "hybrid_conf.json", "mp_conf.json", "package.json",
        "plan.json", "rank_map.json", "stage_0.py", "stage_1.py", "train.py",
    ]  # fmt: skip
    assert json.loads(files["package.json"])["files"] == sorted(files)
    assert parse_rank_map(files["dp_conf.json"]).to_pipedream()["module_to_stage_map"] == [0, 0, 0]
    assert parse_rank_map(files["mp_conf.json"]).stages == ((0,), (1,))
    assert parse_rank_map(files["hybrid_conf.json"]).depths == (1, 0)
    assert plan_from_dict(json.loads(files["plan.json"])).plan.stages[0].ranks == (0, 1)
    for name, text in files.items():
        if name.endswith(".py"):
            ast.parse(text)


def test_a_stage_reads_well(graph_text: Given, given_plan: Given) -> None:
    files = build_package(given_plan(graph_text(LINE), [["a", "b"], ["c", "d"]])).files
    assert files["stage_1.py"] == (
        '''"""Stage 1 of 2: 2 layers, c to d; on rank 1."""

from torch import Tensor, nn

from pipeplan.runtime.stage import StageModule


class Stage(StageModule):
    """2 layers, c to d."""

    INDEX = 1
    RECEIVES = ("b",)
    INPUTS = ()
    SENDS = ()
    RETURNS = ("d",)
    # Own name of each module and tensor: its name in the original's state dict.
    ORIGINAL = {"c": "c", "d": "d"}

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv2d(4, 4, kernel_size=(3, 3))
        self.d = nn.ReLU(inplace=True)

    def forward(self, b: Tensor) -> tuple[Tensor, ...]:
        # received b: 8 bytes in the profile
        c = self.c(b)
        d = self.d(c)
        # returned d: 8 bytes in the profile
        return (d,)
'''
    )


def test_same_plan_same_bytes(graph_text: Given, given_plan: Given) -> None:
    plan = given_plan(graph_text(LINE), [["a", "b"], ["c", "d"]])
    assert build_package(plan).files == build_package(plan).files


def test_idle_ranks_have_no_stage_and_no_conf(graph_text: Given) -> None:
    graph = graph_text(LINE)
    cluster = Cluster.of([4], [1e9])
    plan = joint_plan(cluster, (((0, 1, 2, 3), 1),), 2)
    problem = Problem(graph, cluster)
    package = build_package(PlanFile(problem, plan, evaluate(problem, plan), Provenance("GIVEN")))
    assert "hybrid_conf.json" not in package.files
    assert any("hybrid_conf.json" in note for note in package.notes)
    assert "hybrid_conf.json is left out" in package.files["README.md"]
    stages = [x["stage"] for x in json.loads(package.files["rank_map.json"])["ranks"]]
    assert stages == [0, None, 0, None]


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ([1, 1, 1, 1], 4),
        ([2, 1, 1], 4),
        ([3, 1], 6),
        ([1, 2, 1], 4),
        ([14, 2], 28),
        ([17, 16, 15], 48),
    ],
)
def test_default_number_of_micro_batches(replicas: list[int], expected: int) -> None:
    cluster = Cluster.of([sum(replicas)], [1e9])
    stages = tuple(((i,), r) for i, r in enumerate(replicas))
    assert default_micro_batches(joint_plan(cluster, stages)) == expected


EVIL_IDS = [
    "../../evil",
    "/etc/passwd",
    'a"""\\nimport os',
    "a'; import os; '",
    "__class__",
    "self",
    "{x}",
    "é\u4e2d",
    "x" * 499,
]


@pytest.mark.parametrize("name", EVIL_IDS)
def test_names_of_layers_are_neutralised(
    name: str, given_plan: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeplan.core.graph import GraphInput, Layer

    graph = LayerGraph.build(
        [
            Layer(name, 1.0, 1.0, 8, description="ReLU()"),
            Layer("z", 1.0, 1.0, 8, description="Sigmoid()"),
        ],
        [(name, "z")],
        inputs=[GraphInput('in"put', 8, (name,))],
        name='evil"""\\n`net`',
    )
    target = tmp_path / "out" / "package"
    target.parent.mkdir()
    write_package(build_package(given_plan(graph, [[name], ["z"]])), target)
    assert [x.name for x in tmp_path.iterdir()] == ["out"]
    assert [x.name for x in target.parent.iterdir()] == ["package"]
    monkeypatch.chdir(tmp_path)
    for path in target.glob("*.py"):
        tree = ast.parse(path.read_text())
        modules = {x.module for x in ast.walk(tree) if isinstance(x, ast.ImportFrom)}
        modules |= {y.name for x in ast.walk(tree) if isinstance(x, ast.Import) for y in x.names}
        assert all(
            x in ("pathlib", "torch") or str(x).startswith("pipeplan.runtime") for x in modules
        )
        calls = {
            x.func.id
            for x in ast.walk(tree)
            if isinstance(x, ast.Call) and isinstance(x.func, ast.Name)
        }
        assert calls <= {"super", "Path", "Recipe", "main"}


def test_a_bad_layer_is_located_in_its_file(graph_text: Given, given_plan: Given) -> None:
    graph = graph_text("x Input\nn1 ReLU()\nn11 Conv2d(open)\nx > n1\nn1 > n11")
    with pytest.raises(LayerError) as caught:
        build_package(given_plan(graph, [["n1", "n11"]]))
    text = "x -- Input -- ...\nn1 -- ReLU() -- ...\nn11 -- Conv2d(open) -- ...\n\tn1 -- n11\n"
    found = located(caught.value, Path("net.graph.txt"), text)
    assert (found.path, found.line) == ("net.graph.txt", 3)
    assert "layer n11" in str(found)
    as_json = '{"layers": [\n {"id": "n1"},\n {"id": "n11"}]}'
    assert located(caught.value, Path("p.json"), as_json).line == 3


FILES = {
    "package.json": '{"schema": "pipeplan.package/1", "files": ["a.py", "package.json"]}',
    "a.py": "1",
}


def test_a_folder_is_written_whole(tmp_path: Path) -> None:
    target = tmp_path / "new"
    write_folder(target, FILES, force=False)
    assert {x.name: x.read_text() for x in target.iterdir()} == FILES
    assert [x.name for x in tmp_path.iterdir()] == ["new"]


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    target = tmp_path / "new"
    write_folder(target, FILES, force=False)
    (target / "a.py").write_text("edited")
    with pytest.raises(PipeplanError, match="--force"):
        write_folder(target, FILES, force=False)
    assert (target / "a.py").read_text() == "edited"


def test_force_replaces_what_was_generated_and_keeps_the_rest(tmp_path: Path) -> None:
    target = tmp_path / "new"
    write_folder(target, {**FILES, "a.py": "old"}, force=False)
    (target / "checkpoints").mkdir()
    (target / "checkpoints" / "latest").write_text("3")
    fresh = {"package.json": '{"schema": "pipeplan.package/1", "files": ["b.py"]}', "b.py": "2"}
    write_folder(target, fresh, force=True)
    assert sorted(x.name for x in target.iterdir()) == ["b.py", "checkpoints", "package.json"]
    assert (target / "checkpoints" / "latest").read_text() == "3"
    assert [x.name for x in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize(
    "manifest", [None, "{}", "[]", '{"schema": "other/1", "files": []}', '{"files": 3}', "not json"]
)
def test_force_does_not_touch_a_folder_of_something_else(
    manifest: str | None, tmp_path: Path
) -> None:
    target = tmp_path / "home"
    target.mkdir()
    (target / "thesis.txt").write_text("years of work")
    if manifest is not None:
        (target / "package.json").write_text(manifest)
    before = {x.name: x.read_text() for x in target.iterdir()}
    with pytest.raises(PipeplanError):
        write_folder(target, FILES, force=True)
    assert {x.name: x.read_text() for x in target.iterdir()} == before


def test_force_does_not_overwrite_a_file_that_was_not_generated(tmp_path: Path) -> None:
    target = tmp_path / "new"
    write_folder(target, FILES, force=False)
    (target / "b.py").write_text("mine")
    with pytest.raises(PipeplanError, match=r"b\.py was not generated"):
        write_folder(target, {**FILES, "b.py": "2"}, force=True)
    assert (target / "b.py").read_text() == "mine"


@pytest.mark.parametrize("name", ["../evil.py", "/tmp/evil.py", "a/b.py", "..", "", "a\0b", "a\\b"])
def test_no_file_leaves_the_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(PipeplanError, match="no name of a file"):
        write_folder(tmp_path / "new", {name: "x"}, force=False)
    assert list(tmp_path.iterdir()) == []


def test_a_file_or_a_missing_parent_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(PipeplanError, match="is not a folder"):
        write_folder(tmp_path / "file", FILES, force=True)
    with pytest.raises(PipeplanError, match="there is no"):
        write_folder(tmp_path / "no" / "where", FILES, force=False)


def test_a_failure_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "new"
    write_folder(target, FILES, force=False)
    (target / "notes.txt").write_text("mine")
    before = {x.name: x.read_text() for x in target.iterdir()}
    real = Path.rename

    def failing(self: Path, goal: Path) -> Path:
        if Path(goal) == target and self.name.startswith(".pipeplan-") and (self / "b.py").exists():
            raise OSError(28, "No space left on device")
        return real(self, goal)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(PipeplanError, match="No space left"):
        write_folder(target, {**FILES, "b.py": "2"}, force=True)
    assert {x.name: x.read_text() for x in target.iterdir()} == before
    assert [x.name for x in tmp_path.iterdir()] == ["new"]


def test_generating_imports_neither_torch_nor_ortools() -> None:
    code = (
        "import sys, pipeplan.codegen.package, pipeplan.codegen.rank_map;"
        "sys.exit(len({'torch', 'ortools'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
