"""AlexNet in its one-tower form (Krizhevsky, 2014): five convolutions, three large layers."""

# ruff: noqa: TID253
import torch
from torch import Tensor, nn

__all__ = ["alexnet"]


class AlexNet(nn.Module):
    """Convolutions of 11x11, 5x5 and 3x3, then a classifier with dropout."""

    def __init__(self, width: int, hidden: int, classes: int) -> None:
        super().__init__()
        w = width
        self.features = nn.Sequential(
            nn.Conv2d(3, w, 11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(w, 3 * w, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(3 * w, 6 * w, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(6 * w, 4 * w, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(4 * w, 4 * w, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
        )
        self.pool = nn.AdaptiveAvgPool2d(6)
        self.classifier = nn.Sequential(
            nn.Dropout(0.5),
            nn.Linear(4 * w * 36, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Class scores of a batch of images."""
        maps: Tensor = self.pool(self.features(images))
        scores: Tensor = self.classifier(torch.flatten(maps, 1))
        return scores


def alexnet(
    *, batch: int = 256, image: int = 224, width: int = 64, hidden: int = 4096, classes: int = 1000
) -> tuple[nn.Module, tuple[Tensor]]:
    """AlexNet on square images of at least 63 pixels."""
    return AlexNet(width, hidden, classes), (torch.randn(batch, 3, image, image),)
