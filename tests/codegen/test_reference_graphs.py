"""Every profile that PipeDream ships becomes stages that import, build, and run both ways."""

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pipeplan.codegen.package import build_package, write_package
from pipeplan.models.formats import read_profile

ROOT = Path(__file__).parents[3] / "shared" / "reference" / "pipedream"
PROFILES = sorted(ROOT.glob("*.graph.txt"))
RESULTS = {"inception_v3": 2, "nasnetamobile": 2}

pytestmark = [
    pytest.mark.reference,
    pytest.mark.skipif(not PROFILES, reason="no ../shared/reference/pipedream"),
]


def stages_of(path: Path, folder: Path, given_plan: Callable[..., Any], count: int) -> list[Any]:
    graph = read_profile(path).graph
    size = -(-len(graph) // count)
    ids = [layer.id for layer in graph.layers]
    plan = given_plan(graph, [ids[i : i + size] for i in range(0, len(ids), size)])
    target = folder / path.name.partition(".")[0]
    write_package(build_package(plan), target)
    classes = []
    for s in range(count):
        spec = importlib.util.spec_from_file_location(
            f"{target.name}_{s}", target / f"stage_{s}.py"
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        classes.append(module.Stage)
    shutil.rmtree(target)
    return classes


def run(stages: list[nn.Module], inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
    values: tuple[Tensor, ...] = ()
    for stage in stages:
        values = stage(*values, *(inputs[name] for name in stage.INPUTS))  # type: ignore[union-attr]
    sum(x.square().mean() for x in values).backward()  # type: ignore[union-attr]
    for stage in stages:
        assert [n for n, p in stage.named_parameters() if p.grad is None] == []
    return values


def images(name: str, batch: int) -> dict[str, Tensor]:
    side = 299 if name == "inception_v3" else 224
    return {"node1": torch.randn(batch, 3, side, side)}


@pytest.mark.parametrize(
    "path", [x for x in PROFILES if "gnmt" not in x.name], ids=lambda x: x.name.partition(".")[0]
)
def test_networks_of_images(path: Path, tmp_path: Path, given_plan: Callable[..., Any]) -> None:
    """Shapes and gradients of the full networks, on torch's meta device: without the arithmetic."""
    name = path.name.partition(".")[0]
    classes = stages_of(path, tmp_path, given_plan, 4)
    with torch.device("meta"):
        results = run([cls() for cls in classes], images(name, 2))
    assert [tuple(x.shape) for x in results] == [(2, 1000)] * RESULTS.get(name, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [x for x in PROFILES if "gnmt" not in x.name], ids=lambda x: x.name.partition(".")[0]
)
def test_networks_of_images_with_numbers(
    path: Path, tmp_path: Path, given_plan: Callable[..., Any]
) -> None:
    name = path.name.partition(".")[0]
    classes = stages_of(path, tmp_path, given_plan, 4)
    torch.manual_seed(0)
    results = run([cls() for cls in classes], images(name, 2))
    assert all(bool(x.isfinite().all()) for x in results)


@pytest.mark.parametrize("count", [1, 4, 9])
@pytest.mark.parametrize(
    "path", [x for x in PROFILES if "gnmt" in x.name], ids=lambda x: x.name.partition(".")[0]
)
def test_gnmt(
    path: Path, count: int, tmp_path: Path, given_plan: Callable[..., Any], small_gnmt: Path
) -> None:
    """GNMT with its three own modules; nine stages cut between tuples and their items."""
    classes = stages_of(small_gnmt, tmp_path, given_plan, count)
    inputs = {
        "node1": torch.randint(40, (6, 2)),
        "node2": torch.tensor([6, 4]),
        "node3": torch.randint(40, (5, 2)),
    }
    torch.manual_seed(0)
    (result,) = run([cls() for cls in classes], inputs)
    assert result.shape == (5, 2, 40)
    assert bool(result.isfinite().all())


@pytest.fixture
def small_gnmt(tmp_path: Path) -> Path:
    """The shipped profile with a vocabulary and a width that fit a test."""
    text = (ROOT / "gnmt.graph.txt").read_text()
    for old, new in (("32320", "40"), ("2048", "16"), ("1024", "8")):
        text = (
            text.replace(f"({old}", f"({new}")
            .replace(f" {old}", f" {new}")
            .replace(f"={old}", f"={new}")
        )
    small = tmp_path / "small.graph.txt"
    small.write_text(text)
    return small
