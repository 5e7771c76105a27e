"""`pipeplan solve`: its exit codes, its JSON document, its file, and PipeDream's spellings."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeplan.core.cost import evaluate
from pipeplan.core.errors import BackendBugError
from pipeplan.core.problem import Problem
from pipeplan.models.formats import read_profile
from pipeplan.solver.outcome import Outcome, ProgressEvent
from pipeplan.solver.result import Limit, Stats, Status

Run = Callable[..., Any]
CLUSTER = ("-n", 2, 2, "-b", "10GB/s", "1GB/s")
KEYS = {
    "status",
    "limit",
    "objective_ms",
    "bound_ms",
    "gap",
    "seconds",
    "backend",
    "backend_asked",
    "scope",
    "cost_model",
    "schedule",
    "baselines",
    "speedup",
    "period_ms",
    "topology_period_ms",
    "bottleneck",
    "explanation",
    "smallest_memory_bytes",
    "plan",
}


def test_a_plan_is_found_and_shown(run: Run, chain: Path) -> None:
    ran = run("solve", chain, *CLUSTER)
    assert ran.code == 0
    assert "Proven optimal (dp)" in ran.out
    assert "Which rank runs which stage" in ran.out
    assert "\x1b" not in ran.out


def test_json_is_one_document_and_nothing_else(run: Run, chain: Path) -> None:
    ran = run("solve", chain, *CLUSTER, "--json")
    assert ran.code == 0
    document = json.loads(ran.out)
    assert set(document) == KEYS
    assert document["status"] == "OPTIMAL"
    assert document["bound_ms"] == pytest.approx(document["objective_ms"], rel=1e-9)
    assert document["gap"] == 0
    base, speed = document["baselines"], document["speedup"]
    assert base["one_device_ms"] == pytest.approx(82.0)
    assert speed["over_one_device"] == pytest.approx(82.0 / document["objective_ms"])
    assert speed["over_data_parallel"] == pytest.approx(
        base["data_parallel_ms"] / document["objective_ms"]
    )
    assert document["plan"]["schema"] == "pipeplan.plan/1"
    # Warnings about the profile are said, but not into the document.
    assert "batch size is not recorded" in ran.err


def test_infeasible_is_exit_code_1_with_what_would_do(run: Run, chain: Path) -> None:
    ran = run("solve", chain, *CLUSTER, "--memory", "1MB")
    assert ran.code == 1
    assert "Infeasible" in ran.out
    assert "node5" in ran.out
    answer = run("solve", chain, *CLUSTER, "--memory", "1MB", "--json")
    assert answer.code == 1
    document = json.loads(answer.out)
    assert set(document) == KEYS
    assert document["status"] == "INFEASIBLE"
    assert document["plan"] is None
    smallest = document["smallest_memory_bytes"]
    assert f"--memory {smallest}" in ran.out
    assert run("solve", chain, *CLUSTER, "--memory", smallest).code == 0
    assert run("solve", chain, *CLUSTER, "--memory", smallest - 1).code == 1


def test_what_the_smallest_memory_gives_and_whether_recomputing_would_do(
    run: Run, chain: Path
) -> None:
    small = json.loads(run("solve", "resnet18", *CLUSTER, "--memory", 1, "--json").out)
    frugal = json.loads(
        run("solve", "resnet18", *CLUSTER, "--memory", 1, "--recompute", "--json").out
    )
    least, less = small["smallest_memory_bytes"], frugal["smallest_memory_bytes"]
    assert less < least
    # Between the two, recomputing is what helps, and the command that says so works.
    between = run("solve", "resnet18", *CLUSTER, "--memory", least - 1, columns=300)
    assert between.code == 1
    best = json.loads(run("solve", "resnet18", *CLUSTER, "--memory", least, "--json").out)
    assert f"the best plan takes {best['objective_ms']:.3f} ms a micro-batch." in between.out
    again = run("solve", "resnet18", *CLUSTER, "--memory", least - 1, "--recompute", "--json")
    assert again.code == 0
    objective = json.loads(again.out)["objective_ms"]
    assert f"would do: the best plan takes {objective:.3f} ms a micro-batch, the" in between.out
    assert between.out.rstrip().endswith(f"--memory {least - 1} --recompute")
    # Below both it is said that it does not, and by how much; where it is on, nothing.
    below = run("solve", "resnet18", *CLUSTER, "--memory", less - 1, columns=300)
    assert "--recompute does not make it fit either: with it" in below.out
    asked = run("solve", "resnet18", *CLUSTER, "--memory", less - 1, "--recompute", columns=300)
    assert "does not make it fit" not in asked.out
    conflict = run("solve", chain, *CLUSTER, "--max-stages", 1, "--force-cut", 0)
    assert "best plan" not in conflict.out


def test_a_baseline_that_does_not_fit_is_called_that(run: Run, chain: Path) -> None:
    small = json.loads(run("solve", chain, *CLUSTER, "--memory", 1, "--json").out)
    ran = run("solve", chain, *CLUSTER, "--memory", small["smallest_memory_bytes"], columns=300)
    assert "one GPU: 82.000 ms (does not fit " in ran.out
    assert "(does not fit" not in run("solve", chain, *CLUSTER, "--memory", "80GB").out


def test_no_plan_within_the_limit_is_exit_code_3(
    run: Run, chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up(problem: Problem, options: object, progress: object) -> Outcome:
        return Outcome(Status.NO_SOLUTION, Stats("dp", 1.0), bound_ms=30.0, limit=Limit.TIME)

    monkeypatch.setattr("pipeplan.solver.backends.dp.backend.solve_dp", give_up)
    # A forced cut, for else everything on every device is a plan that needs no time.
    asked = ("solve", chain, *CLUSTER, "--backend", "dp", "--force-cut", "1")
    ran = run(*asked, "--time-limit", "1ms")
    assert ran.code == 3
    assert "No plan was found before the time limit" in ran.out
    assert "not below 30.000 ms" in ran.out
    answer = run(*asked, "--json")
    assert answer.code == 3
    assert json.loads(answer.out)["limit"] == "time"


def test_a_limit_without_a_plan_of_the_backend_leaves_the_one_that_needs_no_search(
    run: Run, chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up(problem: Problem, options: object, progress: object) -> Outcome:
        return Outcome(Status.NO_SOLUTION, Stats("dp", 1.0), bound_ms=30.0, limit=Limit.TIME)

    monkeypatch.setattr("pipeplan.solver.backends.dp.backend.solve_dp", give_up)
    ran = run("solve", chain, *CLUSTER, "--backend", "dp", "--json")
    assert ran.code == 0
    answer = json.loads(ran.out)
    assert (answer["status"], answer["limit"]) == ("FEASIBLE", "time")
    assert answer["objective_ms"] == min(
        answer["baselines"]["one_device_ms"], answer["baselines"]["data_parallel_ms"]
    )
    assert answer["bound_ms"] == 30.0


def test_a_lying_backend_is_exit_code_1(
    run: Run, chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lie(problem: Problem, options: object, progress: object) -> Outcome:
        raise BackendBugError("dp claims what is not so")

    monkeypatch.setattr("pipeplan.solver.backends.dp.backend.solve_dp", lie)
    ran = run("solve", chain, *CLUSTER, "--backend", "dp")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines()[-1] == "pipeplan: dp claims what is not so"


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (BrokenPipeError(), 141, ""),
        (ZeroDivisionError("division by zero"), 1, "a fault of pipeplan"),
        (RecursionError("too deep"), 1, "a fault of pipeplan"),
    ],
)
def test_nothing_ends_in_a_traceback(
    run: Run,
    chain: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    words: str,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("pipeplan.cli.inputs.loaded", fail)
    monkeypatch.setattr("pipeplan.cli.errors._discard_stdout", lambda: None)
    ran = run("solve", chain, *CLUSTER)
    assert ran.code == code
    assert words in ran.err
    assert "Traceback" not in ran.err + ran.out


def test_the_plan_file_is_the_plan(run: Run, chain: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    ran = run("solve", chain, *CLUSTER, "-o", path)
    assert ran.code == 0
    steps = ran.out.partition("\nNext\n")[2].replace("\\\n", "").split()
    assert steps[:4] == ["pipeplan", "generate", str(chain), str(path)]
    assert list(tmp_path.glob(".*")) == []
    first = path.read_bytes()
    document = json.loads(run("solve", chain, *CLUSTER, "--json").out)
    assert json.loads(first) == document["plan"]
    shown = run("show", path)
    assert shown.code == 0
    # The same page but for what to type next.
    assert shown.out.partition("\nNext")[0] == ran.out.partition("\nNext")[0]
    again = tmp_path / "again.json"
    run("solve", chain, *CLUSTER, "-o", again)
    assert again.read_bytes() == first


def test_output_is_never_overwritten(run: Run, chain: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("precious", encoding="utf-8")
    ran = run("solve", chain, *CLUSTER, "-o", path)
    assert (ran.code, ran.out) == (2, "")
    assert "--force overwrites it" in ran.err
    assert path.read_text(encoding="utf-8") == "precious"
    assert run("solve", chain, *CLUSTER, "-o", path, "--force").code == 0
    assert json.loads(path.read_text(encoding="utf-8"))["status"] == "OPTIMAL"


def test_nothing_is_written_without_a_plan(run: Run, chain: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert run("solve", chain, *CLUSTER, "--memory", "1MB", "-o", path).code == 1
    assert run("solve", chain, "-n", 0, "-b", 1, "-o", path).code == 2
    assert not list(tmp_path.glob("*plan*"))


@pytest.mark.parametrize("where", ["missing/plan.json", "."])
def test_places_that_cannot_be_written_are_told_before_the_search(
    run: Run, chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the search was begun")

    monkeypatch.setattr("pipeplan.cli.search.find", never)
    ran = run("solve", chain, *CLUSTER, "-o", tmp_path / where)
    assert ran.code == 2
    assert "folder" in ran.err


ORDERS = [
    ("PROFILE", "-n", 2, 2, "-b", "10GB/s", "1GB/s"),
    ("-n", 2, 2, "-b", "10GB/s", "1GB/s", "PROFILE"),
    ("-n", 2, 2, "PROFILE", "-b", "10GB/s", "1GB/s"),
    ("-n", "2,2", "-b", "10GB/s,1GB/s", "PROFILE"),
    ("-b10GB/s", "1GB/s", "-n2", 2, "PROFILE"),
    ("-f", "PROFILE", "--all_num_machines", 2, 2, "--network_bandwidths", 10000000000, 1000000000),
    ("--profile_filename", "PROFILE", "-n", 2, 2, "-b", "80Gb/s", "8Gbps"),
    ("--cluster", "CLUSTER", "PROFILE"),
]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: " ".join(map(str, order)))
def test_every_way_to_ask_the_same(
    run: Run, chain: Path, tmp_path: Path, order: tuple[object, ...]
) -> None:
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(
        "[[level]]\nchildren = 2\nbandwidth = '10GB/s'\n"
        "[[level]]\nchildren = 2\nbandwidth = '1GB/s'\n",
        encoding="utf-8",
    )
    names = {"PROFILE": chain, "CLUSTER": cluster}
    wanted = json.loads(run("solve", chain, *CLUSTER, "--json").out)
    got = run("solve", *(names.get(str(x), x) for x in order), "--json")
    assert got.code == 0, got.err
    assert json.loads(got.out)["plan"] == wanted["plan"]


@pytest.mark.parametrize(
    ("flags", "scope", "model"),
    [
        ((), "joint", "topology"),
        (("--scope", "joint"), "joint", "topology"),
        (("--scope", "nested"), "nested", "levelwise"),
        (("--cost-model", "levelwise"), "nested", "levelwise"),
        (("--cost-model", "pipedream"), "nested", "pipedream"),
        (("--cost-model", "topology"), "joint", "topology"),
    ],
)
def test_scope_and_cost_model_follow_each_other(
    run: Run, chain: Path, flags: tuple[str, ...], scope: str, model: str
) -> None:
    document = json.loads(run("solve", chain, *CLUSTER, *flags, "--json").out)
    assert (document["scope"], document["cost_model"]) == (scope, model)
    asked = document["plan"]["problem"]
    assert (asked["scope"], asked["cost_model"]) == (scope, model)


def test_memory_size_counts_only_with_its_flag(run: Run, chain: Path) -> None:
    idle = run("solve", chain, *CLUSTER, "--memory_size", 1000000)
    assert idle.code == 0
    assert "no effect without --use_memory_constraint" in idle.err
    assert run("solve", chain, *CLUSTER, "-s", 1000000, "--use_memory_constraint").code == 1
    assert run("solve", chain, *CLUSTER, "--use_memory_constraint").code == 2
    both = run("solve", chain, *CLUSTER, "--memory", "1GB", "--memory_size", "1GB")
    assert both.code == 2


def test_every_flag_reaches_the_question(run: Run, chain: Path) -> None:
    ran = run(
        "solve",
        chain,
        *CLUSTER,
        *("--memory", "16GiB", "--duplex", "half", "--schedule", "gpipe", "--micro-batches", 8),
        *("--recompute", "--overlap-sync", "--weight-copies", 3, "--straight", "--max-stages", 3),
        *("--force-cut", "node4", "--forbid-cut", "node2", "--pin", "node6:1"),
        *("--together", "node2,node3", "--activation_compression_ratio", 2),
        *("--seed", 7, "--workers", 1, "--json"),
    )
    assert ran.code == 0, ran.err
    plan = json.loads(ran.out)["plan"]
    asked = plan["problem"]
    assert asked["cluster"]["memory_bytes"] == 16 * 2**30
    assert asked["cluster"]["duplex"] == "half"
    assert (asked["schedule"], asked["micro_batches"]) == ("gpipe", 8)
    assert asked["recompute"]
    assert asked["overlap_sync"]
    assert asked["weight_copies"] == 3
    assert asked["activation_compression_ratio"] == 2
    assert asked["constraints"] == {
        "straight": True,
        "max_stages": 3,
        "forced_cuts": [["node2", "node3", "node4"]],
        "forbidden_cuts": [["node2"]],
        "pinned": [["node6", 1]],
        "together": [["node2", "node3"]],
    }
    assert (plan["seed"], plan["workers"]) == (7, 1)
    assert [stage["layers"] for stage in plan["stages"]] == [
        ["node2", "node3", "node4"],
        ["node5", "node6"],
    ]


def test_the_price_is_that_of_the_specification(run: Run, chain: Path) -> None:
    from pipeplan.core.codec import plan_from_dict

    document = json.loads(run("solve", chain, *CLUSTER, "--json").out)
    file = plan_from_dict(document["plan"])
    assert file.problem.graph == read_profile(chain).graph
    assert document["objective_ms"] == evaluate(file.problem, file.plan).objective_ms


def test_progress_says_what_is_known() -> None:
    from pipeplan.cli.progress import progress_text

    text = progress_text("dp", 12.3, ProgressEvent(44.0, 40.5, "ideals\x1b[31m"))
    assert text.startswith("dp: 12 s, best plan 44.000 ms, no plan below 40.500 ms")
    assert "\x1b" not in text
    assert "best plan" not in progress_text("dp", 1.0, None)


REFERENCE = Path(__file__).resolve().parents[3] / "shared" / "reference" / "pipedream"


@pytest.mark.reference
@pytest.mark.skipif(not REFERENCE.is_dir(), reason="no ../shared/reference")
def test_the_question_that_started_it(run: Run) -> None:
    """VGG16 on 2 servers of 8 GPUs, by the original's own cost model."""
    ran = run(
        *("solve", "-f", REFERENCE / "vgg16.graph.txt", "-n", 8, 2),
        *("-b", 4294967296, 2147483648, "--activation_compression_ratio", 1),
        *("--scope", "nested", "--cost-model", "pipedream", "--backend", "dp", "--json"),
    )
    document = json.loads(ran.out)
    assert document["period_ms"] == pytest.approx(78.392462242586, rel=1e-9)
    assert document["speedup"]["over_one_device"] == pytest.approx(8.579077385257, rel=1e-9)
    data_parallel = document["speedup"]["data_parallel_over_one_device"]
    assert data_parallel == pytest.approx(6.565515477248, rel=1e-9)
    assert document["speedup"]["over_data_parallel"] == pytest.approx(1.306687557891, rel=1e-9)
    assert document["plan"]["rank_map"] == {
        "0": [*range(7), *range(8, 15)],
        "1": [7, 15],
    }
