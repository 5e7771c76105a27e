"""Blocks that the transformers of the zoo share."""

# ruff: noqa: TID253
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Attention", "FeedForward"]


class Attention(nn.Module):
    """Multi-head attention of one sequence to another, or to itself."""

    def __init__(self, width: int, heads: int, dropout: float, *, causal: bool = False) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"a width of {width} does not divide into {heads} heads")
        self.heads = heads
        self.causal = causal
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.project = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def _split(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        return x.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        """What each position of `x` gathers from `memory`; both are (batch, length, width)."""
        key, value = self.key_value(memory).chunk(2, dim=-1)
        gathered = F.scaled_dot_product_attention(
            self._split(self.query(x)), self._split(key), self._split(value), is_causal=self.causal
        )
        merged = gathered.transpose(1, 2).reshape(x.shape)
        projected: Tensor = self.dropout(self.project(merged))
        return projected


class FeedForward(nn.Module):
    """Two linear layers around a GELU, applied at each position."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.expand = nn.Linear(width, hidden)
        self.activation = nn.GELU()
        self.contract = nn.Linear(hidden, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """The transformed positions, of the shape of `x`."""
        transformed: Tensor = self.dropout(self.contract(self.activation(self.expand(x))))
        return transformed
