"""`import pipeplan` offers what the README promises, lazily, and nothing by accident."""

import pytest

import pipeplan


def test_every_promised_name_is_there() -> None:
    for name in pipeplan.__all__:
        assert getattr(pipeplan, name) is not None
        assert name in dir(pipeplan)


def test_names_are_the_very_objects_of_their_modules() -> None:
    from pipeplan.core.graph import LayerGraph
    from pipeplan.models.formats import read_profile

    assert pipeplan.LayerGraph is LayerGraph
    assert pipeplan.read_profile is read_profile


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'slove'"):
        pipeplan.slove  # noqa: B018


def test_version_is_the_one_of_the_distribution() -> None:
    from importlib.metadata import version

    assert version("pipeplan") == pipeplan.__version__
