"""A GPT-style decoder (after Radford et al., 2019), by default with the sizes of GPT-2 medium."""

# ruff: noqa: TID253
import torch
from torch import Tensor, nn

from pipeplan.models.zoo.attention import Attention, FeedForward

__all__ = ["gpt"]


class Block(nn.Module):
    """Causal attention and a feed-forward part, each after a layer norm and added to its input."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, dropout, causal=True)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = FeedForward(width, 4 * width, dropout)

    def forward(self, x: Tensor) -> Tensor:
        """The residual stream after this block."""
        normed = self.norm1(x)
        x = x + self.attn(normed, normed)
        mixed: Tensor = x + self.mlp(self.norm2(x))
        return mixed


class GPT(nn.Module):
    """Token and position embeddings, blocks, and scores over the vocabulary."""

    def __init__(
        self,
        *,
        vocabulary: int,
        length: int,
        width: int,
        heads: int,
        layers: int,
        dropout: float,
        tied: bool,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Scores over the vocabulary at each position."""
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.dropout(self.tokens(ids) + self.positions(places))
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(self.norm(x))
        return scores


def gpt(
    *,
    batch: int = 4,
    length: int = 1024,
    vocabulary: int = 50257,
    width: int = 1024,
    heads: int = 16,
    layers: int = 24,
    dropout: float = 0.1,
    tied: bool = True,
) -> tuple[nn.Module, tuple[Tensor]]:
    """A decoder; `tied` shares the embedding with the output layer, which then share a stage."""
    model = GPT(
        vocabulary=vocabulary,
        length=length,
        width=width,
        heads=heads,
        layers=layers,
        dropout=dropout,
        tied=tied,
    )
    return model, (torch.randint(vocabulary, (batch, length)),)
