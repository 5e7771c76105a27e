"""What the README shows is what the program does."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(mark: str, language: str) -> str:
    """The fenced block right under a mark."""
    found = re.search(
        rf"^<!-- {re.escape(mark)} -->\n```{language}\n(.*?)^```$", README, re.S | re.M
    )
    assert found, mark
    return found[1]


@pytest.mark.parametrize("name", ["plan", "test"])
def test_newcomers_have_one_command_line(name: str) -> None:
    assert len(block(f"newcomer: {name}", "sh").splitlines()) == 1


def test_the_output_shown_is_the_real_one() -> None:
    shown = re.search(r"<!-- output: (pipeplan .*) -->", README)
    assert shown
    command = shlex.split(shown[1])
    assert shown[1] in block("newcomer: plan", "sh")
    out = subprocess.run(
        [sys.executable, "-m", *command],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert block(f"output: {shown[1]}", "text") == out.stdout


def test_the_python_shown_runs(capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"^```python\n(.*?)^```$", README, re.S | re.M)
    assert found
    exec(compile(found[1], "README.md", "exec"), {})
    assert "OPTIMAL" in capsys.readouterr().out


def test_every_command_is_shown() -> None:
    from pipeplan.cli.app import COMMANDS

    for name in COMMANDS:
        assert f"pipeplan {name}" in README, name
        assert f"pipeplan {name}" in (ROOT / "docs" / "cli.md").read_text(encoding="utf-8"), name


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))])
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target
