"""The three modules of GNMT that torch does not have, under the names its profiles give them.

Sequences come first in time: tensors are (time, batch, features) unless `batch_first`. Names of
parameters are those of the public GNMT models for PyTorch, so that their checkpoints load.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

__all__ = ["BahdanauAttention", "Classifier", "EmuBidirLSTM", "RecurrentAttention"]


class EmuBidirLSTM(nn.Module):
    """A bidirectional LSTM over padded sequences: features of both directions, side by side.

    `bidir` holds the weights. `layer1` and `layer2` are the same two directions as plain LSTMs, for
    hardware where those are faster; they share the weights of `bidir` and add none.
    """

    def __init__(
        self, input_size: int, hidden_size: int, *, bias: bool = True, batch_first: bool = False
    ) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.bidir = nn.LSTM(
            input_size, hidden_size, bias=bias, batch_first=batch_first, bidirectional=True
        )
        self.layer1 = nn.LSTM(input_size, hidden_size, bias=bias, batch_first=batch_first)
        self.layer2 = nn.LSTM(input_size, hidden_size, bias=bias, batch_first=batch_first)
        for name in list(self.layer1._parameters):
            setattr(self.layer1, name, getattr(self.bidir, name))
            setattr(self.layer2, name, getattr(self.bidir, f"{name}_reverse"))

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Outputs of both directions; `lengths` (batch) counts the steps that are not padding."""
        steps = inputs.shape[1 if self.batch_first else 0]
        packed = pack_padded_sequence(
            inputs, lengths.cpu(), batch_first=self.batch_first, enforce_sorted=False
        )
        outputs, _ = self.bidir(packed)
        padded: Tensor = pad_packed_sequence(
            outputs, batch_first=self.batch_first, total_length=steps
        )[0]
        return padded


class BahdanauAttention(nn.Module):
    """Additive attention (Bahdanau, Cho and Bengio, 2015), scores normalised as by Salimans and
    Kingma (2016)."""

    def __init__(self, query_size: int, key_size: int, units: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.linear_q = nn.Linear(query_size, units, bias=False)
        self.linear_k = nn.Linear(key_size, units, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.linear_att = nn.Parameter(torch.empty(units).uniform_(-0.1, 0.1))
        self.normalize_scalar = nn.Parameter(torch.full((1,), math.sqrt(1.0 / units)))
        self.normalize_bias = nn.Parameter(torch.zeros(units))

    def forward(self, query: Tensor, keys: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Context and weights, batch first; `valid` (batch, keys) marks what is no padding."""
        summed = self.linear_q(query).unsqueeze(2) + self.linear_k(keys).unsqueeze(1)
        direction = self.linear_att / self.linear_att.norm() * self.normalize_scalar
        scores = torch.tanh(summed + self.normalize_bias).matmul(direction)
        scores = scores.masked_fill(~valid.unsqueeze(1), float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        context: Tensor = torch.bmm(self.dropout(weights), keys)
        return context, weights


class RecurrentAttention(nn.Module):
    """An LSTM whose outputs attend to the encoder: (outputs, state, context, weights)."""

    def __init__(
        self,
        input_size: int,
        context_size: int,
        hidden_size: int,
        *,
        units: int | None = None,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        batch_first: bool = False,
    ) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.rnn = nn.LSTM(input_size, hidden_size, batch_first=batch_first)
        self.attn = BahdanauAttention(
            hidden_size, context_size, units or hidden_size, dropout=attention_dropout
        )
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        inputs: Tensor,
        hidden: tuple[Tensor, Tensor] | None,
        context: Tensor,
        context_lengths: Tensor,
    ) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor, Tensor]:
        """`context` are the encoder's outputs, of which `context_lengths` steps are not padding."""
        outputs, state = self.rnn(self.dropout(inputs), hidden)
        query, keys = outputs, context
        if not self.batch_first:
            query, keys = query.transpose(0, 1), keys.transpose(0, 1)
        steps = torch.arange(keys.shape[1], device=keys.device)
        valid = steps < context_lengths.to(keys.device).unsqueeze(1)
        attended, weights = self.attn(query, keys, valid)
        if not self.batch_first:
            attended = attended.transpose(0, 1)
        return outputs, state, attended.contiguous(), weights


class Classifier(nn.Module):
    """Scores over the vocabulary."""

    def __init__(self, in_features: int, out_features: int, *, bias: bool = True) -> None:
        super().__init__()
        self.classifier = nn.Linear(in_features, out_features, bias=bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """One score a word."""
        scores: Tensor = self.classifier(inputs)
        return scores
