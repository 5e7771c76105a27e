"""Small networks of the zoo, built on demand."""

from collections.abc import Callable
from typing import Any

import pytest

Built = tuple[Any, tuple[Any, ...]]

# Sizes at which every network runs in a moment on a CPU.
_TEXT = {"batch": 2, "length": 6, "vocabulary": 11, "width": 8, "heads": 2, "layers": 2}
_IMAGE = {"batch": 2, "image": 32, "width": 4, "classes": 5}
SMALL: dict[str, dict[str, int]] = {
    "alexnet": {**_IMAGE, "image": 64, "hidden": 8},
    "encoder_decoder": _TEXT,
    "gpt": _TEXT,
    "inception_v3": {**_IMAGE, "image": 75, "width": 2},
    "moe": {**_TEXT, "experts": 3},
    "resnet18": _IMAGE,
    "resnet50": _IMAGE,
    "seq2seq": {"batch": 2, "length": 5, "vocabulary": 11, "width": 8, "layers": 2},
    "unet": {**_IMAGE, "depth": 2},
    "vgg16": {**_IMAGE, "hidden": 16},
}


@pytest.fixture(params=sorted(SMALL))
def zoo_name(request: pytest.FixtureRequest) -> str:
    """Each network of the zoo in turn."""
    return str(request.param)


@pytest.fixture
def small() -> Callable[..., Built]:
    """Builds a small network of the zoo by name, the same at every call."""
    torch = pytest.importorskip("torch")
    from pipeplan.models.profiler.factory import build_model, load_factory
    from pipeplan.models.zoo import FACTORIES

    torch.set_num_threads(1)

    def build(name: str, **sizes: Any) -> Built:
        torch.manual_seed(0)
        factory = load_factory(FACTORIES[name])
        module, inputs = build_model(factory, sizes={**SMALL[name], **sizes})
        return module, inputs

    return build
