"""Of what there is one, no command speaks in the plural."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]

ONE_OF_MANY = re.compile(
    r"(?<![\d.,x-])1 (?:more |further )?(?:stages|ranks|layers|replicas|GPUs|servers|micro-batches|"
    r"devices|threads|records|plans|copies|levels|files|tensors|workers|instances|lines)\b"
)
ONE_LAYER = (
    "node1 -- Input0 -- forward_compute_time=0.0, backward_compute_time=0.0, "
    "activation_size=32.0, parameter_size=0.000\n"
    "node2 -- Linear(in_features=8, out_features=4, bias=True) -- forward_compute_time=1.0, "
    "backward_compute_time=2.0, activation_size=64.0, parameter_size=144.000\n"
    "\tnode1 -- node2\n"
)


def test_one_of_everything(run: Run, tmp_path: Path) -> None:
    profile, plan, package = (tmp_path / x for x in ("one.graph.txt", "plan.json", "package"))
    profile.write_text(ONE_LAYER, encoding="utf-8")
    cluster = ("-n", 1, "-b", "10GB/s")
    batch = ("--schedule", "1f1b", "--micro-batches", 1)
    told = []
    for arguments in (
        ("solve", profile, *cluster, *batch, "-o", plan),
        ("show", plan),
        ("solve", profile, *cluster, "--max-stages", 1, "--workers", 1),
        ("solve", profile, *cluster, "--memory", 100),
        ("evaluate", profile, *cluster, *batch, "--stages", "0:1"),
        ("evaluate", profile, *cluster, "--stages", "0:2"),
        ("compare", profile, *cluster, "--backends", "dp,cpsat"),
        ("simulate", plan, "--micro-batches", 1),
        ("report", plan, "-o", tmp_path / "report.html"),
        ("generate", profile, plan, "-o", package),
    ):
        ran = run(*arguments)
        assert ran.code in (0, 1, 2), (arguments, ran.err)
        told.append(ran.out + ran.err)
    for page in (tmp_path / "report.html", package / "README.md"):
        told.append(page.read_text(encoding="utf-8"))
    assert [found for text in told for found in ONE_OF_MANY.findall(" ".join(text.split()))] == []
