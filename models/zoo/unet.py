"""A U-Net (after Ronneberger et al., 2015): an encoder and a decoder joined by long skips."""

# ruff: noqa: TID253
import torch
from torch import Tensor, nn

__all__ = ["unet"]


class Double(nn.Module):
    """Two 3x3 convolutions, each with batch normalisation and a rectifier."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu2 = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Feature maps of the same height and width."""
        x = self.relu1(self.bn1(self.conv1(x)))
        maps: Tensor = self.relu2(self.bn2(self.conv2(x)))
        return maps


class UNet(nn.Module):
    """At each depth the encoder's maps are kept and joined to the decoder's."""

    def __init__(self, channels: int, width: int, depth: int, classes: int) -> None:
        super().__init__()
        widths = [width * 2**i for i in range(depth + 1)]
        self.encoder = nn.ModuleList(
            Double(a, b) for a, b in zip([channels, *widths[:-2]], widths[:-1], strict=True)
        )
        self.pool = nn.MaxPool2d(2)
        self.bottom = Double(widths[-2], widths[-1])
        self.rise = nn.ModuleList(
            nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths[:-1])
        )
        self.decoder = nn.ModuleList(Double(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores for each pixel."""
        kept: list[Tensor] = []
        for down in self.encoder:
            kept.append(down(x))
            x = self.pool(kept[-1])
        x = self.bottom(x)
        for rise, up in zip(self.rise, self.decoder, strict=True):
            x = up(torch.cat([kept.pop(), rise(x)], dim=1))
        scores: Tensor = self.head(x)
        return scores


def unet(
    *,
    batch: int = 8,
    image: int = 256,
    channels: int = 3,
    width: int = 64,
    depth: int = 4,
    classes: int = 2,
) -> tuple[nn.Module, tuple[Tensor]]:
    """A U-Net on square images whose side divides by 2**depth."""
    if image % 2**depth:
        raise ValueError(f"an image of {image} pixels cannot be halved {depth} times")
    return UNet(channels, width, depth, classes), (torch.randn(batch, channels, image, image),)
