"""Flags of several values: where they end, and that nothing is swallowed."""

import pytest

from pipeplan.cli.several import NUMBER, QUANTITY, STAGE, gather, split_values

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
