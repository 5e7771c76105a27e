"""Networks of the families people plan, in plain torch: `FACTORIES[name]` is MODULE:FACTORY.

Each factory returns (module, example inputs) and takes its sizes as keyword arguments. This file
names them without importing torch.
"""

from typing import Final

__all__ = ["FACTORIES"]

FACTORIES: Final = {
    "alexnet": "pipeplan.models.zoo.alexnet:alexnet",
    "encoder_decoder": "pipeplan.models.zoo.encoder_decoder:encoder_decoder",
    "gpt": "pipeplan.models.zoo.gpt:gpt",
    "inception_v3": "pipeplan.models.zoo.inception:inception_v3",
    "moe": "pipeplan.models.zoo.moe:moe",
    "resnet18": "pipeplan.models.zoo.resnet:resnet18",
    "resnet50": "pipeplan.models.zoo.resnet:resnet50",
    "seq2seq": "pipeplan.models.zoo.seq2seq:seq2seq",
    "unet": "pipeplan.models.zoo.unet:unet",
    "vgg16": "pipeplan.models.zoo.vgg:vgg16",
}
