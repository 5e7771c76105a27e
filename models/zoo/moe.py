"""A decoder with mixtures of experts (after Fedus et al., 2021): each token goes to one expert."""

# ruff: noqa: TID253
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeplan.models.zoo.attention import Attention, FeedForward

__all__ = ["moe"]


class Experts(nn.Module):
    """Parallel feed-forward parts, each with room for a fixed number of tokens.

    The fixed room keeps every shape known in advance, so that the experts are branches of the
    graph. A token that finds its expert full passes by it.
    """

    def __init__(self, width: int, experts: int, room: float, dropout: float) -> None:
        super().__init__()
        self.room = room
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(FeedForward(width, 4 * width, dropout) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        """The tokens after their experts, weighted by the gate; same shape as `x`."""
        tokens = x.reshape(-1, x.shape[-1])
        count = len(self.experts)
        places = max(1, int(self.room * tokens.shape[0] / count))
        weights = F.softmax(self.gate(tokens), dim=-1)
        chosen = F.one_hot(weights.argmax(dim=-1), count).to(weights.dtype)
        # A token's place in its expert's queue, counted from 1; one_hot drops those beyond the
        # room.
        queue = (torch.cumsum(chosen, dim=0) * chosen).sum(dim=-1).clamp(max=places + 1).long()
        place = F.one_hot(queue, places + 2)[:, 1:-1].to(weights.dtype)
        dispatch = torch.einsum("te,tp->etp", chosen, place)
        packed = torch.einsum("etp,tw->epw", dispatch, tokens)
        worked = [expert(part) for expert, part in zip(self.experts, packed.unbind(0), strict=True)]
        gates = dispatch * weights.transpose(0, 1).unsqueeze(-1)
        joined = torch.einsum("etp,epw->tw", gates, torch.stack(worked))
        return joined.reshape(x.shape)


class Block(nn.Module):
    """Causal attention, then experts, each added to its input."""

    def __init__(self, width: int, heads: int, experts: int, room: float, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, dropout, causal=True)
        self.norm2 = nn.LayerNorm(width)
        self.experts = Experts(width, experts, room, dropout)

    def forward(self, x: Tensor) -> Tensor:
        """The residual stream after this block."""
        normed = self.norm1(x)
        x = x + self.attn(normed, normed)
        mixed: Tensor = x + self.experts(self.norm2(x))
        return mixed


class MixtureDecoder(nn.Module):
    """An embedding, blocks with experts, and scores over the vocabulary."""

    def __init__(self, vocabulary: int, width: int, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Scores over the vocabulary at each position."""
        scores: Tensor = self.head(self.norm(self.blocks(self.tokens(ids))))
        return scores


def moe(
    *,
    batch: int = 8,
    length: int = 512,
    vocabulary: int = 32000,
    width: int = 768,
    heads: int = 12,
    layers: int = 4,
    experts: int = 8,
    room: float = 1.25,
    dropout: float = 0.1,
) -> tuple[nn.Module, tuple[Tensor]]:
    """A decoder; each expert has room for `room` times its even share of the tokens."""
    blocks: list[nn.Module] = [Block(width, heads, experts, room, dropout) for _ in range(layers)]
    model = MixtureDecoder(vocabulary, width, blocks)
    return model, (torch.randint(vocabulary, (batch, length)),)
