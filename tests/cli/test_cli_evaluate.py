"""`pipeplan evaluate`: the price of a plan one brings, what it breaks, how far from the best."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
CLUSTER = ("-n", 2, 2, "-b", "10GB/s", "1GB/s")


def test_a_plan_and_its_distance_from_the_best(run: Run, chain: Path) -> None:
    ran = run("evaluate", chain, *CLUSTER, "--stages", "0-2:3", "3-4:1", "--json")
    assert ran.code == 0
    document = json.loads(ran.out)
    best = json.loads(run("solve", chain, *CLUSTER, "--json").out)["objective_ms"]
    # 65 ms of compute on three ranks; the all-reduce of 3 kB is next to nothing.
    assert document["objective_ms"] == pytest.approx(65 / 3, rel=1e-3)
    assert document["optimum"]["objective_ms"] == best
    assert document["distance"] == pytest.approx(document["objective_ms"] / best - 1)
    assert document["violations"] == []
    assert document["plan"]["status"] == "GIVEN"
    assert document["plan"]["rank_map"] == {"0": [0, 1, 2], "1": [3]}


def test_the_best_plan_is_as_good_as_itself(run: Run, chain: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    run("solve", chain, *CLUSTER, "-o", path)
    ran = run("evaluate", chain, *CLUSTER, "--plan", path)
    assert ran.code == 0
    assert "As good as the best joint plan" in ran.out
    assert run("evaluate", "--plan", path, "--no-optimum").code == 0


def test_a_worse_plan_is_told_by_how_much(run: Run, chain: Path) -> None:
    ran = run("evaluate", chain, *CLUSTER, "--stages", "0-4:1")
    assert ran.code == 0
    assert "slower than the best joint plan: 82.000 ms against" in ran.out
    assert "pipeplan solve" in ran.out
    assert "--stages" not in ran.out.partition("\nNext")[2]
    alone = run("evaluate", chain, *CLUSTER, "--stages", "0-4:1", "--no-optimum")
    assert "best joint plan" not in alone.out


def test_the_next_step_names_no_file_that_is_there(
    run: Run, chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("best.json").write_text("mine", encoding="utf-8")
    Path("plan.json").write_text("mine", encoding="utf-8")
    given = ("--stages", "0-4:1", "-o", "own.json", "--force")
    steps = run("evaluate", chain, *CLUSTER, *given, columns=300).out.partition("\nNext\n")[2]
    lines = [shlex.split(x) for x in steps.splitlines()]
    assert [x[:2] for x in lines] == [
        ["pipeplan", x] for x in ("generate", "simulate", "report", "solve")
    ]
    assert all("own.json" in x for x in lines[:3])
    assert lines[3] == ["pipeplan", "solve", str(chain), *map(str, CLUSTER), "-o", "best-2.json"]
    (again,) = run("solve", chain, *CLUSTER, columns=300).out.partition("\nNext\n")[2].splitlines()
    assert again.endswith(" -o plan-2.json")


def test_what_a_plan_breaks_is_exit_code_1(run: Run, chain: Path) -> None:
    ran = run(
        *("evaluate", chain, *CLUSTER, "--memory", "100MB", "--max-stages", 1),
        *("--stages", "0-2:3", "3-4:1", "--no-optimum"),
    )
    assert ran.code == 1
    assert "NOT VALID" in ran.out
    assert "2 stages, but at most 1" in ran.out
    ran = run(
        *("evaluate", chain, *CLUSTER, "--memory", "100MB", "--stages", "0-2:3", "3-4:1"),
    )
    assert ran.code == 1
    assert "stage 1 needs" in ran.out
    assert "No best plan to compare with (INFEASIBLE)" in ran.out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), "which plan?"),
        (("--stages", "0-3:4"), "layer 4 (node6) is in no stage"),
        (("--stages", "3-4:1", "0-2:3"), "reads layer"),
        (("--stages", "0-4:5"), "5 replicas on 4 GPUs"),
        (("--stages", "0-4@4"), "rank 4"),
        (("--stages", "0-4:1", "--plan", "x.json"), "leave out --stages"),
        (("--plan", "absent.json"), "no such file"),
        (("--rank-map", "absent.json"), "no such file"),
    ],
)
def test_what_is_no_plan_is_exit_code_2(
    run: Run, chain: Path, flags: tuple[str, ...], words: str
) -> None:
    ran = run("evaluate", chain, *CLUSTER, *flags, "--no-optimum")
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err


def test_a_plan_s_own_question_or_another(run: Run, chain: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    run("solve", chain, *CLUSTER, "-o", path)
    ran = run("evaluate", "--plan", path, *CLUSTER)
    assert ran.code == 2
    assert "its own question" in ran.err or "own question" in ran.err
    slow = run("evaluate", chain, "-n", 2, 2, "-b", 1000, 1000, "--plan", path, "--json")
    assert slow.code == 0
    assert json.loads(slow.out)["distance"] > 0
    few = run("evaluate", chain, "-n", 2, "-b", 1000, "--plan", path)
    assert few.code == 2
    assert "ranks are 0 to 1" in few.err


def rank_map(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "hybrid_conf.json"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_rank_map_gives_the_ranks(run: Run, chain: Path, tmp_path: Path) -> None:
    path = rank_map(
        tmp_path,
        '{"module_to_stage_map": [0, 1, 1],\n "stage_to_rank_map": {"0": [0, 2, 3], "1": [1]}}',
    )
    ran = run(
        *("evaluate", chain, *CLUSTER, "--stages", "0-2", "3-4", "--rank-map", path),
        *("--no-optimum", "--json"),
    )
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["plan"]["rank_map"] == {"0": [0, 2, 3], "1": [1]}
    bare = run("evaluate", chain, *CLUSTER, "--rank-map", path)
    assert bare.code == 2
    assert "not which layers" in bare.err


def test_a_rank_map_with_the_profile_s_own_stages(run: Run, chain: Path, tmp_path: Path) -> None:
    lines = chain.read_text(encoding="utf-8").splitlines()
    stages = {"node1": 0, "node2": 0, "node3": 0, "node4": 0, "node5": 1, "node6": 1}
    split = tmp_path / "split.txt"
    split.write_text(
        "\n".join(
            line if line.startswith("\t") else f"{line} -- stage_id={stages[line.split(' ')[0]]}"
            for line in lines
        )
        + "\n",
        encoding="utf-8",
    )
    path = rank_map(tmp_path, '{"stage_to_rank_map": {"0": [0, 2, 3], "1": [1]}}')
    ran = run("evaluate", split, *CLUSTER, "--rank-map", path, "--no-optimum", "--json")
    assert ran.code == 0, ran.err
    plan = json.loads(ran.out)["plan"]
    assert plan["rank_map"] == {"0": [0, 2, 3], "1": [1]}
    assert [stage["layers"] for stage in plan["stages"]] == [
        ["node2", "node3", "node4"],
        ["node5", "node6"],
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"stage_to_rank_map": {"0": [0],\n "1": [0]}}', 2),
        ('{\n"stage_to_rank_map": {"0": [0], "1": [4]}}', 2),
        ("{\n1: [1]}", 2),
        ('{\n\n"stage_to_rank_map": {"0": [0], "2": [1]}}', 3),
    ],
)
def test_a_wrong_rank_map_is_told_with_its_line(
    run: Run, chain: Path, tmp_path: Path, text: str, line: int
) -> None:
    path = rank_map(tmp_path, text)
    ran = run("evaluate", chain, *CLUSTER, "--stages", "0-2", "3-4", "--rank-map", path)
    assert (ran.code, ran.out) == (2, "")
    assert f"{path}:{line}:" in ran.err


def test_a_nested_question_compares_by_topology(run: Run, chain: Path) -> None:
    ran = run("evaluate", chain, *CLUSTER, "--scope", "nested", "--stages", "0-4:4")
    assert ran.code == 0
    said = " ".join(ran.out.split())
    assert "slower than the best nested plan (" in said
    assert "by levelwise): " in said
    assert "by topology." in said


REFERENCE = Path(__file__).resolve().parents[3] / "shared" / "reference"


@pytest.mark.reference
@pytest.mark.skipif(not REFERENCE.is_dir(), reason="no ../shared/reference")
@pytest.mark.parametrize(
    ("stages", "wanted"),
    [
        ("0-39:16", 72.233946),
        ("0-24:15 25-39:1", 44.667759),
        ("0-16:12 17-24:3 25-39:1", 43.709150),
    ],
)
def test_marks_computed_by_hand(run: Run, stages: str, wanted: float) -> None:
    ran = run(
        *("evaluate", REFERENCE / "pipedream" / "vgg16.graph.txt", "-n", 8, 2),
        *("-b", "4GiB/s", "2GiB/s", "--no-optimum", "--json", "--stages", *stages.split()),
    )
    assert json.loads(ran.out)["objective_ms"] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.reference
@pytest.mark.skipif(not REFERENCE.is_dir(), reason="no ../shared/reference")
def test_the_published_15_1_and_its_rank_map(run: Run) -> None:
    ran = run(
        *("evaluate", REFERENCE / "pipedream" / "vgg16.graph.txt", "-n", 8, 2),
        *("-b", "4GiB/s", "2GiB/s", "--stages", "0-24", "25-39"),
        *("--rank-map", REFERENCE / "rank-maps" / "vgg16_gpus16_hybrid_conf.json"),
    )
    assert ran.code == 0
    assert "2.2 % slower than the best joint plan: 44.668 ms against 43.709 ms" in ran.out


def test_without_an_optimum_a_plan_still_has_its_price(
    run: Run, chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeplan.core.errors import TooLargeError

    def too_large(*_: object) -> None:
        raise TooLargeError("more than 7 ideals")

    monkeypatch.setattr("pipeplan.cli.search.find", too_large)
    ran = run("evaluate", chain, *CLUSTER, "--stages", "0-4:1")
    assert ran.code == 0
    assert "No best plan to compare with: more than 7 ideals" in ran.out
    document = json.loads(run("evaluate", chain, *CLUSTER, "--stages", "0-4:1", "--json").out)
    assert document["no_optimum"] == "more than 7 ideals"
    assert document["objective_ms"] == pytest.approx(82.0)


def test_a_plan_that_was_brought_can_be_kept(run: Run, chain: Path, tmp_path: Path) -> None:
    target = tmp_path / "mine.json"
    where = ("-n", "4", "-b", "1GB/s", "--no-optimum")
    ran = run("evaluate", chain, *where, "--stages", "0-2:3", "3-4:1", "-o", target)
    assert ran.code == 0, ran.err
    shown = run("show", target)
    assert shown.code == 0, shown.err
    assert "stage 0 x3" in shown.out
    # Not over another file, and not at all where it breaks a limit.
    assert run("evaluate", chain, *where, "--stages", "0-4:4", "-o", target).code == 2
    other = tmp_path / "other.json"
    ran = run("evaluate", chain, *where, "--memory", "1kB", "--stages", "0-4:4", "-o", other)
    assert ran.code == 1
    assert not other.exists()
