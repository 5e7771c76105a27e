"""MODULE:FACTORY: found here or installed, with errors that say which part is wrong."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from pipeplan.models.profiler.factory import (  # noqa: E402
    FactoryError,
    build_model,
    load_factory,
)

GOOD = """
import torch
from torch import nn

class Space:
    @staticmethod
    def inner(width=3):
        return nn.Linear(width, width), (torch.randn(2, width),)

def fails():
    raise ValueError("not today")

def wrong():
    return 5

number = 5
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("my_nets", "broken_nets", "needy_nets"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "my_nets.py").write_text(GOOD)
    (tmp_path / "broken_nets.py").write_text("x = = 1")
    (tmp_path / "needy_nets.py").write_text("import absent_package_zz")
    return tmp_path


def test_a_factory_in_the_current_folder(here: Path) -> None:
    before = list(sys.path)
    factory = load_factory("my_nets:Space.inner")
    assert sys.path == before
    module, inputs = build_model(factory, sizes={"width": 5})
    assert module(*inputs).shape == (2, 5)
    module, inputs = build_model(factory, without_memory=True)
    assert inputs[0].is_meta
    assert next(module.parameters()).is_meta


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("my_nets", "not MODULE:FACTORY"),
        ("my_nets:", "not MODULE:FACTORY"),
        ("my_nets:f();import os", "not MODULE:FACTORY"),
        ("../my_nets:f", "not MODULE:FACTORY"),
        ("absent_nets:f", "no module 'absent_nets'"),
        ("my_nets.deeper:f", "cannot be imported|no module"),
        ("needy_nets:f", "'needy_nets' cannot be imported: No module named 'absent_package_zz'"),
        ("broken_nets:f", "cannot be imported: SyntaxError"),
        ("my_nets:absent", "has no 'absent'"),
        ("my_nets:Space.absent", "has no 'Space.absent'"),
        ("my_nets:number", "is a int; it must be callable"),
    ],
)
def test_what_cannot_be_loaded(here: Path, spec: str, message: str) -> None:
    with pytest.raises(FactoryError, match=message):
        load_factory(spec)


def test_what_cannot_be_built(here: Path) -> None:
    with pytest.raises(FactoryError, match="the factory failed: ValueError: not today"):
        build_model(load_factory("my_nets:fails"))
    with pytest.raises(FactoryError, match="returned int"):
        build_model(load_factory("my_nets:wrong"))
    with pytest.raises(FactoryError, match="failed: TypeError"):
        build_model(load_factory("my_nets:Space.inner"), sizes={"height": 1})
