"""Running the command line as a user does: `main` with sys.argv, in this process."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

LAYERS = (
    ("node1", "Input0", 0.0, 0.0, 4000, 0),
    ("node2", "Conv2d(3, 8)", 10.0, 20.0, 8000000, 1000),
    ("node3", "ReLU(inplace)", 2.0, 3.0, 8000000, 0),
    ("node4", "Conv2d(8, 8)", 11.0, 19.0, 4000000, 2000),
    ("node5", "Linear(8, 8)", 4.0, 6.0, 1000000, 90000000),
    ("node6", "Linear(8, 4)", 3.0, 4.0, 500000, 60000000),
)


def chain_text() -> str:
    """A graph.txt of an input and five layers in a row."""
    lines = [
        f"{name} -- {text} -- forward_compute_time={forward}, backward_compute_time={backward}, "
        f"activation_size={output}.0, parameter_size={weights}.000"
        for name, text, forward, backward, output, weights in LAYERS
    ]
    lines += [f"\t{a[0]} -- {b[0]}" for a, b in pairwise(LAYERS)]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Ran:
    """What a command line left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("solve", "vgg16", ...)`, with `columns` as the width of the output."""

    def go(*args: object, columns: int = 100) -> Ran:
        from pipeplan.cli.app import main

        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "argv", ["pipeplan", *map(str, args)])
        # The process and its signals are pytest's.
        monkeypatch.setattr("pipeplan.cli.app.take_over", lambda: None)
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        code = left.value.code
        return Ran(code if isinstance(code, int) else 0, captured.out, captured.err)

    return go


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """A profile of five layers in a row and one input."""
    path = tmp_path / "chain.graph.txt"
    path.write_text(chain_text(), encoding="utf-8")
    return path
