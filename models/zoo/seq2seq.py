"""Recurrent translation with attention (after Luong et al., 2015): tuples between the LSTMs."""

# ruff: noqa: TID253
import torch
from torch import Tensor, nn

__all__ = ["seq2seq"]

State = tuple[Tensor, Tensor]


class Attend(nn.Module):
    """Scores of a linear form between decoder and encoder states, and what they gather."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.form = nn.Linear(width, width, bias=False)
        self.softmax = nn.Softmax(dim=-1)
        self.mix = nn.Linear(2 * width, width)
        self.tanh = nn.Tanh()

    def forward(self, states: Tensor, memory: Tensor) -> Tensor:
        """The states joined with what they gather from `memory`; (batch, length, width) each."""
        weights = self.softmax(torch.bmm(self.form(states), memory.transpose(1, 2)))
        gathered = torch.bmm(weights, memory)
        joined: Tensor = self.tanh(self.mix(torch.cat([states, gathered], dim=-1)))
        return joined


class Seq2Seq(nn.Module):
    """Each decoder layer starts from the final state of the encoder layer at its height."""

    def __init__(self, vocabulary: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.source = nn.Embedding(vocabulary, width)
        self.target = nn.Embedding(vocabulary, width)
        self.encoder = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(layers))
        self.decoder = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)
        self.attend = Attend(width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Scores over the vocabulary at each position of the target."""
        memory = self.dropout(self.source(source))
        states: list[State] = []
        for layer in self.encoder:
            memory, state = layer(memory)
            states.append(state)
        x = self.dropout(self.target(target))
        for layer, state in zip(self.decoder, states, strict=True):
            x, _ = layer(x, state)
        scores: Tensor = self.head(self.attend(x, memory))
        return scores


def seq2seq(
    *,
    batch: int = 64,
    length: int = 50,
    vocabulary: int = 32000,
    width: int = 1024,
    layers: int = 4,
    dropout: float = 0.2,
) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """`layers` LSTMs on either side; two inputs, source and target ids."""
    ids = torch.randint(vocabulary, (batch, length)), torch.randint(vocabulary, (batch, length))
    return Seq2Seq(vocabulary, width, layers, dropout), ids
