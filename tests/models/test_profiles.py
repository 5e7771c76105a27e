"""Packaged profiles: listed from their heads, sound, and the same when built again."""

import json
from pathlib import Path

import pytest

from pipeplan.models import profiles
from pipeplan.models.formats import dump_profile, read_profile
from pipeplan.models.formats.suspicions import suspicions
from pipeplan.models.profiles import list_profiles, packaged_names, packaged_path
from pipeplan.models.profiles.build import RECIPES, compute, main

FOLDER = Path(profiles.__file__).parent


def test_every_recipe_is_there() -> None:
    assert packaged_names() == tuple(sorted(RECIPES))
    assert {"vgg16", "resnet50", "gpt", "unet"} <= set(packaged_names())
    assert packaged_path("vgg17") is None


def test_the_list_agrees_with_the_files() -> None:
    for summary in list_profiles():
        graph = read_profile(summary.name).graph
        assert summary.layers == len(graph)
        assert summary.parameter_bytes == graph.total_parameter_bytes
        assert summary.batch == graph.metadata["batch"]
        assert summary.device in ("v100", "a100")
        assert summary.description == RECIPES[summary.name].description


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_profiles_are_sound(name: str) -> None:
    profile = read_profile(name)
    assert profile.warnings == ()
    assert suspicions(profile.graph) == ()
    assert profile.graph.name == name
    assert (FOLDER / f"{name}.json").stat().st_size < 400_000
    assert dump_profile(profile.graph) == (FOLDER / f"{name}.json").read_text()
    assert profile.graph.metadata["method"] == "estimated"


@pytest.mark.parametrize("name", ["vgg16", "seq2seq", "resnet18"])
def test_building_again_gives_the_same_file(name: str) -> None:
    torch = pytest.importorskip("torch")
    saved = json.loads((FOLDER / f"{name}.json").read_text())["metadata"]
    if saved["torch"] != torch.__version__.partition("+")[0]:
        pytest.skip(f"built with torch {saved['torch']}; this is {torch.__version__}")
    again = dump_profile(compute(name, date=saved["date"]))
    assert again == (FOLDER / f"{name}.json").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RECIPES))
def test_building_all_again_gives_the_same_files(name: str, request: pytest.FixtureRequest) -> None:
    if "slow" not in request.config.option.markexpr:
        pytest.skip("two minutes for all: run with -m slow")
    test_building_again_gives_the_same_file(name)


REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "pipedream"


@pytest.mark.reference
@pytest.mark.skipif(not REFERENCE.is_dir(), reason="../shared/reference is absent")
@pytest.mark.parametrize("name", ["alexnet", "inception_v3", "resnet18", "resnet50", "vgg16"])
def test_estimates_are_near_measurements(name: str) -> None:
    """Of the same networks on a GPU of about that time, at the batch that the inputs tell."""
    measured = read_profile(REFERENCE / f"{name}.graph.txt").graph
    ours = read_profile(name).graph
    batches = measured.inputs[0].output_bytes / ours.inputs[0].output_bytes
    ratio = ours.total_compute_ms * batches / measured.total_compute_ms
    assert 0.6 < ratio < 1.5
    # The parameters differ by what that profiler leaves out: nothing of weight.
    assert ours.total_parameter_bytes == pytest.approx(measured.total_parameter_bytes, rel=0.01)


def test_an_unknown_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vgg17"]) == 2
    assert "no recipe 'vgg17'" in capsys.readouterr().err
