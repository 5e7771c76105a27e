"""GNMT's three modules: padding never shows, weights are shared as they should be."""

import torch
from torch import nn

from pipeplan.runtime.gnmt import Classifier, EmuBidirLSTM, RecurrentAttention


def test_the_bidirectional_encoder_does_not_see_padding() -> None:
    torch.manual_seed(0)
    encoder = EmuBidirLSTM(3, 4).double()
    inputs = torch.randn(6, 2, 3, dtype=torch.float64)
    lengths = torch.tensor([6, 4])
    out = encoder(inputs, lengths)
    assert out.shape == (6, 2, 8)
    changed = inputs.clone()
    changed[4:, 1] = 99
    assert torch.equal(encoder(changed, lengths), out)
    alone = encoder(inputs[:4, 1:], torch.tensor([4]))
    assert torch.allclose(alone[:, 0], out[:4, 1], rtol=0, atol=1e-12)


def test_the_two_plain_layers_share_the_weights_of_the_bidirectional_one() -> None:
    encoder = EmuBidirLSTM(3, 4)
    assert sum(p.numel() for p in encoder.parameters()) == sum(
        p.numel() for p in nn.LSTM(3, 4, bidirectional=True).parameters()
    )
    with torch.no_grad():
        encoder.bidir.weight_hh_l0_reverse.fill_(7)
    assert encoder.layer2.weight_hh_l0.unique().tolist() == [7]


def test_attention_ignores_padded_keys_and_sums_to_one() -> None:
    torch.manual_seed(0)
    attention = RecurrentAttention(3, 5, 4).double()
    inputs = torch.randn(3, 2, 3, dtype=torch.float64)
    context = torch.randn(6, 2, 5, dtype=torch.float64)
    lengths = torch.tensor([6, 2])
    outputs, (h, c), attended, weights = attention(inputs, None, context, lengths)
    assert outputs.shape == (3, 2, 4)
    assert h.shape == c.shape == (1, 2, 4)
    assert attended.shape == (3, 2, 5)
    assert weights.shape == (2, 3, 6)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 3, dtype=torch.float64))
    assert weights[1, :, 2:].abs().max() == 0
    changed = context.clone()
    changed[2:, 1] = 99
    assert torch.equal(attention(inputs, None, changed, lengths)[2], attended)


def test_batch_first_is_the_transpose() -> None:
    torch.manual_seed(0)
    plain = RecurrentAttention(3, 5, 4).double()
    first = RecurrentAttention(3, 5, 4, batch_first=True).double()
    first.load_state_dict(plain.state_dict())
    inputs = torch.randn(3, 2, 3, dtype=torch.float64)
    context = torch.randn(6, 2, 5, dtype=torch.float64)
    lengths = torch.tensor([6, 2])
    a = plain(inputs, None, context, lengths)
    b = first(inputs.transpose(0, 1), None, context.transpose(0, 1), lengths)
    assert torch.allclose(a[2], b[2].transpose(0, 1), rtol=0, atol=1e-12)


def test_the_classifier_is_linear() -> None:
    classifier = Classifier(3, 5)
    assert list(classifier.state_dict()) == ["classifier.weight", "classifier.bias"]
    assert classifier(torch.randn(2, 3)).shape == (2, 5)
