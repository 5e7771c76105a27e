"""Residual networks (He et al., 2015): ResNet-18 with plain blocks, ResNet-50 with bottlenecks."""

# ruff: noqa: TID253
import torch
from torch import Tensor, nn

__all__ = ["resnet18", "resnet50"]


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class Residual(nn.Module):
    """A branch of convolutions, added to its input or to a 1x1 projection of it."""

    def __init__(self, inputs: int, width: int, outputs: int, stride: int) -> None:
        super().__init__()
        bottleneck = outputs != width
        self.conv1 = _conv(inputs, width, 1 if bottleneck else 3, 1 if bottleneck else stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride if bottleneck else 1)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv(width, outputs, 1) if bottleneck else None
        self.bn3 = nn.BatchNorm2d(outputs) if bottleneck else None
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = (
            nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
            if stride != 1 or inputs != outputs
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, rectified."""
        branch = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if self.conv3 is not None and self.bn3 is not None:
            branch = self.bn3(self.conv3(self.relu(branch)))
        branch += x if self.shortcut is None else self.shortcut(x)
        rectified: Tensor = self.relu(branch)
        return rectified


class ResNet(nn.Module):
    """A stem, four groups of residual blocks, and a linear classifier."""

    def __init__(self, blocks: tuple[int, ...], width: int, expansion: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = width
        groups: list[nn.Module] = []
        for i, count in enumerate(blocks):
            inner = width * 2**i
            for j in range(count):
                stride = 2 if i > 0 and j == 0 else 1
                groups.append(Residual(channels, inner, inner * expansion, stride))
                channels = inner * expansion
        self.blocks = nn.Sequential(*groups)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores of a batch of images."""
        maps = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        scores: Tensor = self.fc(torch.flatten(self.avgpool(self.blocks(maps)), 1))
        return scores


def resnet18(
    *, batch: int = 64, image: int = 224, width: int = 64, classes: int = 1000
) -> tuple[nn.Module, tuple[Tensor]]:
    """ResNet-18 on square images."""
    images = torch.randn(batch, 3, image, image)
    return ResNet((2, 2, 2, 2), width, 1, classes), (images,)


def resnet50(
    *, batch: int = 64, image: int = 224, width: int = 64, classes: int = 1000
) -> tuple[nn.Module, tuple[Tensor]]:
    """ResNet-50 on square images."""
    images = torch.randn(batch, 3, image, image)
    return ResNet((3, 4, 6, 3), width, 4, classes), (images,)
