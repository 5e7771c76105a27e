"""Inception-v3 (Szegedy et al., 2015): blocks of parallel branches, and an auxiliary head.

A branch is a list of steps (channels, kernel height, kernel width, stride); "max" and "mean" are
pools. Channels are those of the paper at width 32.
"""

# ruff: noqa: TID253
import torch
from torch import Tensor, nn

__all__ = ["inception_v3"]

Step = tuple[int, int, int, int]
Branch = tuple[Step | str, ...]


def _small(pool: int) -> tuple[Branch, ...]:
    return (
        ((64, 1, 1, 1),),
        ((48, 1, 1, 1), (64, 5, 5, 1)),
        ((64, 1, 1, 1), (96, 3, 3, 1), (96, 3, 3, 1)),
        ("mean", (pool, 1, 1, 1)),
    )


def _long(inner: int) -> tuple[Branch, ...]:
    return (
        ((192, 1, 1, 1),),
        ((inner, 1, 1, 1), (inner, 1, 7, 1), (192, 7, 1, 1)),
        (
            (inner, 1, 1, 1),
            (inner, 7, 1, 1),
            (inner, 1, 7, 1),
            (inner, 7, 1, 1),
            (192, 1, 7, 1),
        ),
        ("mean", (192, 1, 1, 1)),
    )


_REDUCE_1: tuple[Branch, ...] = (
    ((384, 3, 3, 2),),
    ((64, 1, 1, 1), (96, 3, 3, 1), (96, 3, 3, 2)),
    ("max",),
)
_REDUCE_2: tuple[Branch, ...] = (
    ((192, 1, 1, 1), (320, 3, 3, 2)),
    ((192, 1, 1, 1), (192, 1, 7, 1), (192, 7, 1, 1), (192, 3, 3, 2)),
    ("max",),
)
_BLOCKS = (
    *(_small(32), _small(64), _small(64), _REDUCE_1),
    *(_long(128), _long(160), _long(160), _long(192), _REDUCE_2),
)
_AUXILIARY_AFTER = 7


class Unit(nn.Module):
    """A convolution, batch normalisation and a rectifier."""

    def __init__(self, inputs: int, outputs: int, kernel: tuple[int, int], stride: int) -> None:
        super().__init__()
        # Strided convolutions are not padded: that is how the maps shrink.
        padding = (kernel[0] // 2, kernel[1] // 2) if stride == 1 else 0
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Rectified feature maps."""
        maps: Tensor = self.relu(self.bn(self.conv(x)))
        return maps


class Parallel(nn.Module):
    """Branches over the same maps, joined along the channels."""

    def __init__(self, inputs: int, branches: tuple[Branch, ...], width: int) -> None:
        super().__init__()
        self.channels = 0
        made: list[nn.Module] = []
        for branch in branches:
            channels, steps = inputs, list[nn.Module]()
            for step in branch:
                if step == "max":
                    steps.append(nn.MaxPool2d(3, stride=2))
                elif step == "mean":
                    steps.append(nn.AvgPool2d(3, stride=1, padding=1))
                elif not isinstance(step, str):
                    outputs, height, breadth, stride = step
                    scaled = _scaled(outputs, width)
                    steps.append(Unit(channels, scaled, (height, breadth), stride))
                    channels = scaled
            self.channels += channels
            made.append(nn.Sequential(*steps))
        self.branches = nn.ModuleList(made)

    def forward(self, x: Tensor) -> Tensor:
        """The branches' maps, one after the other."""
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class Fork(nn.Module):
    """The last blocks: two of the branches end in a pair of convolutions each."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()

        def unit(a: int, b: int, height: int = 1, breadth: int = 1) -> Unit:
            return Unit(a, _scaled(b, width), (height, breadth), 1)

        middle, deep = _scaled(384, width), _scaled(448, width)
        self.one = unit(inputs, 320)
        self.split_in = unit(inputs, 384)
        self.split_wide, self.split_high = unit(middle, 384, 1, 3), unit(middle, 384, 3, 1)
        self.deep_in = nn.Sequential(unit(inputs, 448), unit(deep, 384, 3, 3))
        self.deep_wide, self.deep_high = unit(middle, 384, 1, 3), unit(middle, 384, 3, 1)
        self.pool = nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1), unit(inputs, 192))
        self.channels = _scaled(320, width) + 4 * middle + _scaled(192, width)

    def forward(self, x: Tensor) -> Tensor:
        """The branches' maps, one after the other."""
        split, deep = self.split_in(x), self.deep_in(x)
        parts = [self.one(x), self.split_wide(split), self.split_high(split)]
        parts += [self.deep_wide(deep), self.deep_high(deep), self.pool(x)]
        return torch.cat(parts, dim=1)


class Auxiliary(nn.Module):
    """A second classifier on maps from the middle of the network, for training."""

    def __init__(self, inputs: int, width: int, classes: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(5)
        self.reduce = Unit(inputs, _scaled(128, width), (1, 1), 1)
        self.expand = nn.Conv2d(_scaled(128, width), _scaled(768, width), 5)
        self.fc = nn.Linear(_scaled(768, width), classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores."""
        scores: Tensor = self.fc(torch.flatten(self.expand(self.reduce(self.pool(x))), 1))
        return scores


class Inception(nn.Module):
    """A stem, eleven blocks of branches, a classifier; in training also the auxiliary scores."""

    def __init__(self, width: int, classes: int, dropout: float, *, auxiliary: bool) -> None:
        super().__init__()
        c32, c64, c80, c192 = (_scaled(c, width) for c in (32, 64, 80, 192))
        self.stem = nn.Sequential(
            Unit(3, c32, (3, 3), 2),
            Unit(c32, c32, (3, 3), 1),
            Unit(c32, c64, (3, 3), 1),
            nn.MaxPool2d(3, stride=2),
            Unit(c64, c80, (1, 1), 1),
            Unit(c80, c192, (3, 3), 1),
            nn.MaxPool2d(3, stride=2),
        )
        channels, blocks = c192, list[nn.Module]()
        self.auxiliary: Auxiliary | None = None
        for i, branches in enumerate(_BLOCKS):
            block = Parallel(channels, branches, width)
            channels = block.channels
            blocks.append(block)
            if i == _AUXILIARY_AFTER and auxiliary:
                self.auxiliary = Auxiliary(channels, width, classes)
        for _ in range(2):
            fork = Fork(channels, width)
            channels = fork.channels
            blocks.append(fork)
        self.blocks = nn.ModuleList(blocks)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Class scores, and in training the auxiliary ones if there is that head."""
        x = self.stem(images)
        extra: Tensor | None = None
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i == _AUXILIARY_AFTER and self.auxiliary is not None and self.training:
                extra = self.auxiliary(x)
        scores: Tensor = self.fc(torch.flatten(self.dropout(self.avgpool(x)), 1))
        return scores if extra is None else (scores, extra)


def _scaled(channels: int, width: int) -> int:
    return max(1, channels * width // 32)


def inception_v3(
    *,
    batch: int = 32,
    image: int = 299,
    width: int = 32,
    classes: int = 1000,
    dropout: float = 0.5,
    auxiliary: bool = True,
) -> tuple[nn.Module, tuple[Tensor]]:
    """Inception-v3 on square images of at least 75 pixels."""
    images = torch.randn(batch, 3, image, image)
    return Inception(width, classes, dropout, auxiliary=auxiliary), (images,)
