"""Flags of several values: where they end, and that nothing is swallowed."""

from collections.abc import Callable
from typing import Any

import pytest

from pipeplan.cli.several import NUMBER, QUANTITY, STAGE, gather, split_values, torn_quantity

FLAGS = {"-n": NUMBER, "--all_num_machines": NUMBER, "-b": QUANTITY, "--stages": STAGE}


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("-n 8 2 vgg16", ["-n", "8 2", "vgg16"]),
        ("vgg16 -n 8 2", ["vgg16", "-n", "8 2"]),
        ("-n 8,2 vgg16", ["-n", "8,2", "vgg16"]),
        ("-n8 2 vgg16", ["-n", "8 2", "vgg16"]),
        ("--all_num_machines=8 2 vgg16", ["--all_num_machines", "8 2", "vgg16"]),
        ("-b 4GiB/s 2GiB/s vgg16.graph.txt", ["-b", "4GiB/s 2GiB/s", "vgg16.graph.txt"]),
        ("-b 4294967296 2147483648 -n 8 2", ["-b", "4294967296 2147483648", "-n", "8 2"]),
        ("-b 25Gbps 1.5e9 x", ["-b", "25Gbps 1.5e9", "x"]),
        ("-b 25Gb/s,1GB/s x", ["-b", "25Gb/s,1GB/s", "x"]),
        ("-n 8 2 -- 3", ["-n", "8 2", "--", "3"]),
        ("-- -n 8 2", ["--", "-n", "8", "2"]),
        ("-n eight 2", ["-n", "eight 2"]),
        ("-n", ["-n"]),
        ("-n --json", ["-n", "--json"]),
        ("--stages 0-24:15 25-39:1 vgg16", ["--stages", "0-24:15 25-39:1", "vgg16"]),
        ("--stages 0-24@0-6,8-14 25-39@7,15", ["--stages", "0-24@0-6,8-14 25-39@7,15"]),
        ("--stages 0-24 25-39 vgg16", ["--stages", "0-24 25-39", "vgg16"]),
        ("--stages a-b:2 c/d.txt", ["--stages", "a-b:2", "c/d.txt"]),
    ],
)
def test_where_the_values_end(typed: str, wanted: list[str]) -> None:
    assert gather(typed.split(), FLAGS) == wanted


def test_values_are_split_at_blanks_and_commas() -> None:
    assert split_values("8 2,4,  1") == ["8", "2", "4", "1"]
    assert split_values("10 GB/s, 2 GiB/s 5") == ["10GB/s", "2GiB/s", "5"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-n 8 2 -b 10 GB/s 2 GB/s", "-b: write 10GB/s,"),
        ("-n 8 2 -b 10GB/s 2 GB/s", "-b: write 2GB/s,"),
        ("vgg16 -n 8 -b 1GB/s --memory 16 GiB", "--memory: write 16GiB,"),
        ("vgg16 --time-limit 60 s", "--time-limit: write 60s,"),
        ("-f g.txt --network_bandwidths 25 Gb/s", "--network_bandwidths: write 25Gb/s,"),
    ],
)
def test_a_unit_apart_from_its_number_is_put_right(line: str, words: str) -> None:
    assert str(torn_quantity(line.split())).startswith(words)


@pytest.mark.parametrize(
    "line",
    ["-n 8 2 -b 10GB/s 2GB/s vgg16", "-n 8 -b 1e9 b", "-n 8 s", "-- -b 10 GB/s", "16 GB", ""],
)
def test_what_is_no_quantity_is_left_alone(line: str) -> None:
    assert torn_quantity(line.split()) is None


def test_the_command_line_says_so(run: Callable[..., Any]) -> None:
    ran = run("solve", "vgg16", "-n", 8, 2, "-b", 10, "GB/s", 2, "GB/s")
    assert ran.code == 2
    assert "write 10GB/s" in ran.err
