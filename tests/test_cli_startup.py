"""`pipeplan --help` stays fast: nothing heavy is imported before a command runs."""

import subprocess
import sys

import pytest

from pipeplan.cli.app import COMMANDS

HEAVY = {"ortools", "torch", "pandas", "numpy", "networkx"}


def _imported(code: str) -> set[str]:
    out = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print('MODULES', *sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(out.stdout.rpartition("MODULES")[2].split())


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['pipeplan', '--help']\n"
        "from pipeplan.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as left:\n    assert left.code in (0, None)\n"
        "import sys"
    )
    found = _imported(code)
    assert "pipeplan.cli.app" in found
    assert not HEAVY & found
    # Rich takes longer than all the rest; help is plain.
    assert "rich.console" not in found
    assert not [name for name in found if name.startswith("pipeplan.cli.commands.")]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_s_help_imports_nothing_heavy(name: str) -> None:
    code = (
        f"import sys; sys.argv = ['pipeplan', {name!r}, '--help']\n"
        "from pipeplan.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as left:\n    assert left.code in (0, None)\n"
        "import sys"
    )
    found = _imported(code)
    assert f"pipeplan.cli.commands.{name}" in found
    assert not HEAVY & found


def test_the_public_api_is_lazy() -> None:
    found = _imported("import pipeplan")
    assert not (HEAVY | {"typer", "rich"}) & found
    assert "pipeplan.core.graph" not in found
