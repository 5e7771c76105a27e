"""An encoder-decoder transformer (after Vaswani et al., 2017), norms first, sizes of "big"."""

# ruff: noqa: TID253
import torch
from torch import Tensor, nn

from pipeplan.models.zoo.attention import Attention, FeedForward

__all__ = ["encoder_decoder"]


class Encoding(nn.Module):
    """Self-attention and a feed-forward part, each added to its input."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = FeedForward(width, 4 * width, dropout)

    def forward(self, x: Tensor) -> Tensor:
        """The source after this block."""
        normed = self.norm1(x)
        x = x + self.attn(normed, normed)
        encoded: Tensor = x + self.mlp(self.norm2(x))
        return encoded


class Decoding(nn.Module):
    """Causal self-attention, attention to the encoder's output, and a feed-forward part."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, dropout, causal=True)
        self.norm2 = nn.LayerNorm(width)
        self.cross = Attention(width, heads, dropout)
        self.norm3 = nn.LayerNorm(width)
        self.mlp = FeedForward(width, 4 * width, dropout)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        """The target after this block."""
        normed = self.norm1(x)
        x = x + self.attn(normed, normed)
        x = x + self.cross(self.norm2(x), memory)
        decoded: Tensor = x + self.mlp(self.norm3(x))
        return decoded


class EncoderDecoder(nn.Module):
    """The encoder's output is read by every block of the decoder: an edge across many layers."""

    def __init__(
        self, *, vocabulary: int, length: int, width: int, heads: int, layers: int, dropout: float
    ) -> None:
        super().__init__()
        self.source = nn.Embedding(vocabulary, width)
        self.target = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.zeros(length, width))
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.ModuleList(Encoding(width, heads, dropout) for _ in range(layers))
        self.encoded = nn.LayerNorm(width)
        self.decoder = nn.ModuleList(Decoding(width, heads, dropout) for _ in range(layers))
        self.decoded = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Scores over the vocabulary at each position of the target."""
        memory = self.dropout(self.source(source) + self.positions[: source.shape[1]])
        for encoding in self.encoder:
            memory = encoding(memory)
        memory = self.encoded(memory)
        x = self.dropout(self.target(target))
        for decoding in self.decoder:
            x = decoding(x, memory)
        scores: Tensor = self.head(self.decoded(x))
        return scores


def encoder_decoder(
    *,
    batch: int = 32,
    length: int = 128,
    vocabulary: int = 32000,
    width: int = 1024,
    heads: int = 16,
    layers: int = 6,
    dropout: float = 0.1,
) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """`layers` blocks on either side; two inputs, source and target ids."""
    model = EncoderDecoder(
        vocabulary=vocabulary,
        length=length,
        width=width,
        heads=heads,
        layers=layers,
        dropout=dropout,
    )
    ids = torch.randint(vocabulary, (batch, length)), torch.randint(vocabulary, (batch, length))
    return model, ids
