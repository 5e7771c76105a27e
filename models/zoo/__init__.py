"""Networks of the families people plan, in plain torch: `FACTORIES[name]` is MODULE:FACTORY.

Each factory returns (module, example inputs) and takes its sizes as keyword arguments. This file
names them without importing torch.
"""

from typing import Final

__all__ = ["FACTORIES"]

FACTORIES: Final = {
    "gpt": "pipeplan.models.zoo.gpt:gpt",
    "resnet50": "pipeplan.models.zoo.resnet:resnet50",
    "unet": "pipeplan.models.zoo.unet:unet",
    "vgg16": "pipeplan.models.zoo.vgg:vgg16",
}
