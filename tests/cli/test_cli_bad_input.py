"""Bad input of every kind: exit code 2, one message that names what is wrong, nothing written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
GOOD = ("-n", 2, 2, "-b", "10GB/s", "1GB/s")


def messages(ran: Any) -> list[str]:
    """What was said on stderr, warnings about the profile left out."""
    return [line for line in ran.err.splitlines() if line and "warning:" not in line]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), "which cluster?"),
        (("-n", 2, 2), "-b is missing"),
        (("-b", "1GB/s"), "-n is missing"),
        (("-n", 2, 2, "-b", "1GB/s"), "2 levels (2 2) but 1 bandwidths"),
        (("-n", 2, "-b", "1GB/s", "1GB/s"), "1 level (2) but 2 bandwidths"),
        (("-n", "two", "-b", "1GB/s"), "'two'"),
        (("-n", "2.5", "-b", "1GB/s"), "'2.5'"),
        (("-n", 0, "-b", "1GB/s"), "a level has 0 children"),
        (("-n", 99999999, "-b", "1GB/s"), "a level has 99999999 children"),
        (("-n", "\u0662", "-b", "1GB/s"), "whole numbers"),
        (("-n", 2, "-b", "fast"), "not a bandwidth: 'fast'"),
        (("-n", 2, "-b", "0GB/s"), "a bandwidth is 0"),
        (("-n", 2, "-b", "nan"), "not a bandwidth: 'nan'"),
        (("-n", *[2] * 9, "-b", *[1] * 9), "at most 8"),
        ((*GOOD, "--memory", "lots"), "not a size: 'lots'"),
        ((*GOOD, "--memory", "0"), "device memory is 0"),
        ((*GOOD, "--memory", "1GB", "--memory_size", "1"), "say the same"),
        ((*GOOD, "--cluster", "x.toml"), "leave out -n and -b"),
        (("--cluster", "absent.toml"), "absent.toml: there is no such file"),
        ((*GOOD, "--schedule", "1f1b"), "--micro-batches"),
        ((*GOOD, "--micro-batches", 4), "schedule pipedream never flushes"),
        ((*GOOD, "--schedule", "gpipe", "--micro-batches", 0), "micro-batches a batch is 0"),
        ((*GOOD, "--scope", "joint", "--cost-model", "levelwise"), "does not go with"),
        ((*GOOD, "--cost-model", "pipedream", "--recompute"), "no recompute"),
        ((*GOOD, "--use_fewer_machines"), "use_fewer_machines belongs to"),
        ((*GOOD, "--max-stages", 0), "max_stages is 0"),
        ((*GOOD, "--weight-copies", 0), "weight copies is 0"),
        ((*GOOD, "--activation_compression_ratio", 0), "compression ratio is 0"),
        ((*GOOD, "--activation_compression_ratio", "nan"), "compression ratio is nan"),
        ((*GOOD, "--force-cut", "node99"), "'node99' is no layer"),
        ((*GOOD, "--force-cut", "node6"), "nothing is left behind the cut"),
        ((*GOOD, "--forbid-cut", "node2,,node3"), "is no layer"),
        ((*GOOD, "--pin", "node2"), "write LAYER:STAGE"),
        ((*GOOD, "--pin", "node2:x"), "write LAYER:STAGE"),
        ((*GOOD, "--pin", "node2:0", "--pin", "node2:1"), "pinned to two stages"),
        ((*GOOD, "--together", "node2,99"), "'99' is no layer"),
        ((*GOOD, "--time-limit", "soon"), "not a duration: 'soon'"),
        ((*GOOD, "--time-limit", "0"), "the time limit is 0"),
        ((*GOOD, "--workers", 0), "0 workers"),
        ((*GOOD, "--seed", -1), "the seed is -1"),
        ((*GOOD, "--gap", 1), "the gap is 1"),
        ((*GOOD, "--gap", "nan"), "the gap is nan"),
    ],
)
@pytest.mark.parametrize("command", ["solve", "compare"])
def test_bad_flags(run: Run, chain: Path, command: str, flags: tuple[Any, ...], words: str) -> None:
    ran = run(command, chain, *flags)
    assert ran.code == 2, ran.out
    assert ran.out == ""
    assert "\n".join(messages(ran)).startswith("pipeplan: ")
    assert words in ran.err


@pytest.mark.parametrize(
    "flags",
    [
        ("--backend", "gurobi"),
        ("--scope", "global"),
        ("--schedule", "zb-h1"),
        ("--seed", "many"),
        ("--bogus",),
        ("second.txt", "third.txt"),
    ],
)
def test_usage(run: Run, chain: Path, flags: tuple[str, ...]) -> None:
    ran = run("solve", chain, *GOOD, *flags)
    assert (ran.code, ran.out) == (2, "")
    assert "Usage: pipeplan solve" in ran.err


def test_the_profile_once(run: Run, chain: Path) -> None:
    assert "which PROFILE?" in run("solve", *GOOD).err
    assert "given twice" in run("solve", chain, "-f", chain, *GOOD).err
    assert run("solve", *GOOD).code == run("solve", chain, "-f", chain, *GOOD).code == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty"),
        ("\x1b[2Jhello\n", "neither a graph.txt nor a pipeplan profile"),
        ("{", "not JSON"),
        ('{"schema": "pipeplan.plan/1"}', "schema"),
        ("node1 -- Conv -- forward_compute_time=x, backward_compute_time=1\n", ":1:"),
        ('{"schema": "pipeplan.profile/1", "layers": [' + '{"a":' * 3000, ""),
    ],
)
def test_bad_profiles(run: Run, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad"
    path.write_text(text, encoding="utf-8")
    ran = run("solve", path, *GOOD)
    assert (ran.code, ran.out) == (2, "")
    assert len(messages(ran)) == 1
    assert str(path) in ran.err
    assert words in ran.err
    assert "\x1b" not in ran.err


def test_binary_and_missing_profiles_and_folders(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad"
    path.write_bytes(bytes(range(256)))
    for profile in (path, tmp_path, tmp_path / "absent.txt", "no_such_name", "nul\x00name"):
        ran = run("solve", profile, *GOOD)
        assert (ran.code, ran.out) == (2, "")
        assert len(messages(ran)) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: "", "the file is empty"),
        (lambda text: text[: len(text) // 2], "not JSON"),
        (lambda text: text.replace('"pipeplan.plan/1"', '"pipeplan.plan/9"'), "schema"),
        (lambda text: text.replace('"node4"', '"node9"', 1), ""),
        (lambda text: text.replace('"objective_ms": ', '"objective_ms": 1'), ""),
        (lambda text: text.replace('"compute_ms": ', '"compute_ms": 1', 1), ""),
        (lambda text: "[1]", ""),
        (lambda text: text.replace('"copies": 1', '"copies": NaN'), ""),
    ],
)
def test_bad_plans(
    run: Run, chain: Path, tmp_path: Path, change: Callable[[str], str], words: str
) -> None:
    path = tmp_path / "plan.json"
    assert run("solve", chain, *GOOD, "-o", path).code == 0
    whole = path.read_text(encoding="utf-8")
    changed = change(whole)
    assert changed != whole
    path.write_text(changed, encoding="utf-8")
    for ran in (run("show", path), run("evaluate", "--plan", path)):
        assert (ran.code, ran.out) == (2, "")
        assert len(messages(ran)) == 1
        assert str(path) in ran.err
        assert words in ran.err


def test_show_wants_a_plan(run: Run, chain: Path, tmp_path: Path) -> None:
    assert run("show").code == 2
    assert run("show", tmp_path / "absent.json").code == 2
    assert run("show", tmp_path).code == 2
    assert run("show", chain).code == 2


@pytest.mark.parametrize("names", ["", "dp,dp", "dp,gurobi", ","])
def test_compare_wants_backends(run: Run, chain: Path, names: str) -> None:
    ran = run("compare", chain, *GOOD, "--backends", names)
    assert (ran.code, ran.out) == (2, "")


def test_a_name_too_long_to_write_is_told_before_the_search(run: Run, chain: Path) -> None:
    ran = run("solve", chain, *GOOD, "-o", "x" * 300)
    assert (ran.code, ran.out) == (2, "")
    assert "cannot be written" in ran.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty"),
        (" \n", "the file is empty"),
        ("{}", "schema is missing"),
        ('{"schema": "pipeplan.plan/1", "stages": [', "it ends in the middle"),
        ('{"schema": 7}', "schema is not"),
    ],
)
def test_files_that_are_no_plan_are_told_what_they_lack(
    run: Run, tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    ran = run("show", path)
    assert ran.code == 2
    assert words in ran.err


def test_numbers_without_a_unit_that_are_hardly_bytes_are_warned_of(run: Run, chain: Path) -> None:
    ran = run("solve", chain, "-n", 2, "-b", "4", "--memory", "16")
    assert "-b 4 is 4 B/s; gigabytes are written 4GB/s" in ran.err
    assert "--memory 16 is 16 B; gigabytes are written 16GB" in ran.err
    ran = run("solve", chain, "-n", 2, "-b", "4294967296")
    assert "warning: -b" not in ran.err


def test_a_number_of_gpus_that_is_too_long_is_told_so(run: Run, chain: Path) -> None:
    ran = run("solve", chain, "-n", 1000000000, "-b", "1GB/s")
    assert ran.code == 2
    assert "more than pipeplan takes" in ran.err
