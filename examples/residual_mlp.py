"""A small network as pipeplan wants it: a factory that returns (module, example inputs).

Sizes are keyword arguments, the example inputs are one micro-batch.
"""

# ruff: noqa: TID253
import torch
from torch import Tensor, nn

__all__ = ["residual_mlp"]


class Block(nn.Module):
    """Two linear layers around a GELU, added to what comes in."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.activation = nn.GELU()
        self.contract = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """The stream after this block."""
        added: Tensor = self.dropout(self.contract(self.activation(self.expand(self.norm(x)))))
        return x + added


def residual_mlp(
    *,
    batch: int = 16,
    features: int = 32,
    width: int = 64,
    blocks: int = 4,
    classes: int = 10,
    dropout: float = 0.1,
) -> tuple[nn.Module, tuple[Tensor]]:
    """A classifier of feature vectors."""
    module = nn.Sequential(
        nn.Linear(features, width),
        *(Block(width, dropout) for _ in range(blocks)),
        nn.LayerNorm(width),
        nn.Linear(width, classes),
    )
    return module, (torch.randn(batch, features),)
