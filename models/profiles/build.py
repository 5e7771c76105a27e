"""Recomputes the packaged profiles: `python -m pipeplan.models.profiles.build [NAME ...]`.

Needs torch. The files change only in their date, and with the estimator or the networks.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pipeplan.core.graph import LayerGraph

__all__ = ["RECIPES", "Recipe", "compute", "main"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a packaged profile is made: a factory of the zoo, its sizes, and the device."""

    factory: str
    description: str
    device: str = "v100"
    dtype: str = "float32"
    sizes: Mapping[str, int | float | bool] = field(default_factory=dict)


RECIPES: Final[Mapping[str, Recipe]] = {
    "alexnet": Recipe("alexnet", "AlexNet, one tower, on 224x224 images"),
    "encoder_decoder": Recipe(
        "encoder_decoder", "Transformer big, 6+6 blocks, 128 tokens", "a100", "bfloat16"
    ),
    "gpt": Recipe(
        "gpt",
        "GPT-2 medium sized decoder, 24 blocks, 1024 tokens, output layer not tied",
        "a100",
        "bfloat16",
        {"tied": False},
    ),
    "gpt_tied": Recipe(
        "gpt",
        "the same decoder, output layer tied to the embedding: they share a stage",
        "a100",
        "bfloat16",
    ),
    "inception_v3": Recipe("inception_v3", "Inception-v3 with auxiliary head, 299x299 images"),
    "moe": Recipe("moe", "decoder of 4 blocks with 8 experts each, 512 tokens", "a100", "bfloat16"),
    "resnet18": Recipe("resnet18", "ResNet-18 on 224x224 images"),
    "resnet50": Recipe("resnet50", "ResNet-50 on 224x224 images"),
    "seq2seq": Recipe("seq2seq", "LSTM translation with attention, 4+4 layers, 50 tokens"),
    "unet": Recipe("unet", "U-Net with long skips, depth 4, 256x256 images"),
    "vgg16": Recipe("vgg16", "VGG16 on 224x224 images"),
}


def compute(name: str, *, date: str | None = None) -> LayerGraph:
    """The profile of a recipe, for one micro-batch of the factory's default size."""
    import torch

    from pipeplan.models.profiler import profile_model
    from pipeplan.models.profiler.factory import build_model, load_factory
    from pipeplan.models.zoo import FACTORIES

    recipe = RECIPES[name]
    factory = load_factory(FACTORIES[recipe.factory])
    module, inputs = build_model(factory, without_memory=True, sizes=recipe.sizes)
    return profile_model(
        module.to(getattr(torch, recipe.dtype)),
        inputs,
        name=name,
        estimate=recipe.device,
        description=recipe.description,
        factory=FACTORIES[recipe.factory],
        sizes=recipe.sizes,
        date=date,
    )


def main(names: Sequence[str]) -> int:
    """Write the profiles of these names, or all, beside this file; returns the exit code."""
    from pipeplan.models.formats import write_profile

    unknown = [name for name in names if name not in RECIPES]
    if unknown:
        print(f"no recipe {unknown[0]!r}; known: {', '.join(RECIPES)}", file=sys.stderr)
        return 2
    for name in names or RECIPES:
        path = Path(__file__).with_name(f"{name}.json")
        write_profile(compute(name), path, force=True)
        print(f"{path.name}: {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
