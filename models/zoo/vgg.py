"""VGG16 (Simonyan & Zisserman, 2014): a plain chain of 3x3 convolutions and three large layers."""

# ruff: noqa: TID253
import torch
from torch import Tensor, nn

__all__ = ["vgg16"]

# Convolutions of each block at width 64; a 2x2 maximum ends each block.
_BLOCKS = ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3))


class VGG(nn.Module):
    """Five blocks of convolutions, then a classifier of three linear layers."""

    def __init__(self, width: int, hidden: int, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for factor, count in _BLOCKS:
            for _ in range(count):
                layers += [nn.Conv2d(channels, factor * width, 3, padding=1), nn.ReLU(inplace=True)]
                channels = factor * width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(49 * channels, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(hidden, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Class scores of a batch of images."""
        maps: Tensor = self.pool(self.features(images))
        scores: Tensor = self.classifier(torch.flatten(maps, 1))
        return scores


def vgg16(
    *, batch: int = 64, image: int = 224, width: int = 64, hidden: int = 4096, classes: int = 1000
) -> tuple[nn.Module, tuple[Tensor]]:
    """VGG16 with dropout and without batch normalisation, on square images."""
    return VGG(width, hidden, classes), (torch.randn(batch, 3, image, image),)
