"""The zoo: published parameter counts, shapes, and sizes as arguments."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from pipeplan.models.profiler.factory import build_model, load_factory  # noqa: E402
from pipeplan.models.zoo import FACTORIES  # noqa: E402


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # As published with the pretrained weights of these networks; inception's 27,161,264 count
        # a batch normalisation in the auxiliary head's last step, where there is a bias here.
        ("alexnet", 61_100_840),
        ("vgg16", 138_357_544),
        ("resnet18", 11_689_512),
        ("resnet50", 25_557_032),
        ("inception_v3", 27_160_496),
        ("gpt", 354_823_168),
    ],
)
def test_parameters_at_full_size(name: str, parameters: int) -> None:
    module, _ = build_model(load_factory(FACTORIES[name]), without_memory=True)
    assert sum(p.numel() for p in module.parameters()) == parameters


def test_every_network_runs_forward_and_backward(zoo_name: str, small: Callable[..., Any]) -> None:
    module, inputs = small(zoo_name)
    result = module(*inputs)
    parts = result if isinstance(result, tuple) else (result,)
    sum(part.sum() for part in parts).backward()
    without = [name for name, p in module.named_parameters() if p.grad is None]
    assert without == []


def test_the_auxiliary_head_is_for_training(small: Callable[..., Any]) -> None:
    module, inputs = small("inception_v3")
    scores, extra = module(*inputs)
    assert scores.shape == extra.shape == (2, 5)
    assert module.eval()(*inputs).shape == (2, 5)
    plain, _ = small("inception_v3", auxiliary=False)
    assert plain(*inputs).shape == (2, 5)


def test_tied_or_not(small: Callable[..., Any]) -> None:
    tied, _ = small("gpt")
    assert tied.head.weight is tied.tokens.weight
    free, _ = small("gpt", tied=False)
    assert free.head.weight is not free.tokens.weight


def test_experts_are_exact_when_there_is_room(small: Callable[..., Any]) -> None:
    module, _ = small("moe", room=3.0, dropout=0.0)
    experts = module.blocks[0].experts
    x = torch.randn(2, 6, 8)
    weights = torch.softmax(experts.gate(x), -1)
    best = weights.argmax(-1)
    expected = torch.stack(
        [
            torch.stack([experts.experts[e](t) * w[e] for e, t, w in zip(*row, strict=True)])
            for row in zip(best, x, weights, strict=True)
        ]
    )
    torch.testing.assert_close(experts(x), expected)


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [("gpt", {"width": 9}, "2 heads"), ("unet", {"image": 30}, "halved")],
)
def test_sizes_that_do_not_fit(
    name: str, sizes: dict[str, int], message: str, small: Callable[..., Any]
) -> None:
    with pytest.raises(Exception, match=message):
        small(name, **sizes)
