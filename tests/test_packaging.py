"""The wheel holds every package of the tree, under one name only."""

import importlib.util
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]


def folder_of(package: str) -> Path:
    """An import package's folder, by setuptools' own rule."""
    parts = package.split(".")
    for i in range(len(parts), 0, -1):
        head = CONFIG["package-dir"].get(".".join(parts[:i]))
        if head is not None:
            return ROOT.joinpath(head, *parts[i:])
    raise AssertionError(package)


def test_every_folder_is_listed() -> None:
    found = set()
    for top in CONFIG["package-dir"].values():
        for folder, below, files in os.walk(ROOT / top):  # does not follow the links
            below[:] = [name for name in below if name != "__pycache__"]
            if "__init__.py" in files:
                found.add(Path(folder))
    assert {folder_of(package) for package in CONFIG["packages"]} == found


def test_links_cover_every_mapped_folder() -> None:
    for package, folder in CONFIG["package-dir"].items():
        link = ROOT / "src" / Path(*package.split("."))
        if not link.is_dir() and not os.environ.get("CI"):
            pytest.skip("checked out without symlinks (sdist, core.symlinks=false)")
        assert link.resolve() == (ROOT / folder).resolve()


def test_no_top_level_names() -> None:
    names = [folder for folder in CONFIG["package-dir"].values() if "/" not in folder]
    assert "solver" in names
    code = f"import importlib.util as u; print([*filter(u.find_spec, {names!r})])"
    out = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"
    assert importlib.util.find_spec("pipeplan.solver") is not None


def test_data_files_are_listed() -> None:
    """Every file that is no module is covered by package-data, or it would miss in a wheel."""
    for package in CONFIG["packages"]:
        patterns = CONFIG["package-data"].get(package, [])
        for path in folder_of(package).iterdir():
            if path.is_file() and path.suffix not in (".py", ".pyc"):
                assert any(path.match(pattern) for pattern in patterns), path
