"""Every page fits the terminal, and no figure is cut off or torn from its unit."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

CLUSTER = ("-n", 2, 2, "-b", "4GiB/s", "2GiB/s")
NESTED = ("--scope", "nested", "--cost-model", "pipedream", "--activation_compression_ratio", 1)
BATCH = ("--schedule", "1f1b", "--micro-batches", 8)


@pytest.mark.parametrize("columns", [80, 200])
def test_pages_fit(run: Run, tmp_path: Path, columns: int) -> None:
    joint, nested, batch = (tmp_path / x for x in ("j.json", "n.json", "b.json"))
    for arguments in (
        ("profiles",),
        ("solve", "alexnet", *CLUSTER, "-o", joint),
        ("solve", "alexnet", *CLUSTER, *NESTED, "-o", nested),
        ("solve", "alexnet", *CLUSTER, *BATCH, "-o", batch),
        ("solve", "alexnet", *CLUSTER, "--memory", "900MB"),
        ("show", nested),
        ("evaluate", "alexnet", *CLUSTER, "--stages", "0-9:3", "10-21:1"),
        ("compare", "alexnet", *CLUSTER, "--backends", "dp,cpsat"),
        ("simulate", joint),
        ("simulate", batch),
    ):
        ran = run(*arguments, columns=columns)
        assert ran.code in (0, 1), ran.err
        lines = ran.out.splitlines()
        assert max(map(len, lines)) <= columns, arguments
        assert "\u2026" not in ran.out, arguments
        # A unit alone in its cell, or at the head of a line of a table, was torn from its number.
        torn = [x for x in lines if re.fullmatch(r"\s*(?:[kMGT]?B|ms|%)\s*", x)]
        assert torn == [], arguments
