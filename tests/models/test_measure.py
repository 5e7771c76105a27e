"""Measured profiles: plausible times, nothing of the module touched."""

import time
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from pipeplan.core.errors import PipeplanError  # noqa: E402
from pipeplan.core.graph import LayerGraph  # noqa: E402
from pipeplan.models.formats.suspicions import suspicions  # noqa: E402
from pipeplan.models.profiler import profile_model  # noqa: E402


def measure(module: Any, inputs: Any, **options: Any) -> LayerGraph:
    options = {"warm_up": 1, "repeats": 3, **options}
    return profile_model(module, inputs, name="x", **options)


class Sleeper(nn.Module):
    """Takes 20 ms forward and 30 ms backward."""

    class Nap(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            time.sleep(0.02)
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            time.sleep(0.03)
            return grad

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.Nap.apply(x)
        return result


def test_times_are_those_of_each_layer() -> None:
    graph = measure(nn.Sequential(nn.Linear(4, 4), Sleeper(), nn.Linear(4, 4)), torch.randn(2, 4))
    nap = graph.layers[graph.index["1"]]
    assert nap.forward_ms >= 20
    assert nap.backward_ms >= 30
    for name in ("0", "2"):
        linear = graph.layers[graph.index[name]]
        assert 0 < linear.forward_ms < nap.forward_ms
        assert 0 < linear.backward_ms < nap.backward_ms
    assert graph.metadata["method"] == "measured"
    assert graph.metadata["device"].startswith("cpu")
    assert graph.metadata["repeats"] == 3
    assert graph.metadata["threads"] == torch.get_num_threads()


def test_how_far_repeats_lie_apart_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0
    steps = iter([0.010, 0.020, 0.030, 0.040, 0.050])

    def tick() -> float:
        # Every second call ends what is timed: forward passes of the one layer, no backward pass.
        nonlocal clock
        tick.calls += 1  # type: ignore[attr-defined]
        if tick.calls % 2 == 0:  # type: ignore[attr-defined]
            clock += next(steps)
        return clock

    tick.calls = 0  # type: ignore[attr-defined]
    monkeypatch.setattr("pipeplan.models.profiler.measure.time.perf_counter", tick)
    module = nn.Sequential(nn.Linear(4, 4)).requires_grad_(False)
    graph = measure(module, torch.randn(2, 4), warm_up=0, repeats=5)
    assert graph.layers[0].forward_ms == pytest.approx(30)
    # The middle half of 10, 20, 30, 40, 50 is 20 to 40: 20 ms of 30.
    assert graph.metadata["scatter"] == {"total": 0.6667, "layers": {"0": 0.6667}}
    assert "scatter by 67 %" in suspicions(graph)[0]


def test_of_two_repeats_nothing_is_said_about_scatter() -> None:
    graph = measure(nn.Linear(4, 4), torch.randn(2, 4), repeats=2)
    assert "scatter" not in graph.metadata


@pytest.mark.parametrize("name", ["gpt", "resnet18", "seq2seq"])
def test_measured_and_estimated_agree_on_all_but_time(name: str, small: Callable[..., Any]) -> None:
    module, inputs = small(name)
    measured = measure(module, inputs, warm_up=0, repeats=1)
    estimated = profile_model(module, inputs, name="x", estimate="v100")
    assert measured.edges == estimated.edges
    assert measured.together == estimated.together
    for a, b in zip(measured.layers, estimated.layers, strict=True):
        assert (a.id, a.output_bytes, a.parameter_bytes, a.tensors) == (
            (b.id, b.output_bytes, b.parameter_bytes, b.tensors)
        )
        if "LSTM" not in a.description:
            assert a.saved_bytes == b.saved_bytes, a.id
    assert measured.total_compute_ms > 0


@pytest.mark.parametrize("name", ["gpt", "resnet18", "seq2seq"])
def test_the_module_is_left_as_it_was(name: str, small: Callable[..., Any]) -> None:
    module, inputs = small(name)
    module.train()
    next(iter(module.children())).eval()
    gradients = {}
    for key, parameter in module.named_parameters():
        parameter.grad = gradients[key] = torch.full_like(parameter, 0.5)
    state = {key: value.clone() for key, value in module.state_dict().items()}
    given = [x.clone() for x in inputs]
    flags = [child.training for child in module.modules()]
    random = torch.get_rng_state()
    measure(module, inputs)
    assert torch.equal(torch.get_rng_state(), random)
    assert [child.training for child in module.modules()] == flags
    for key, value in module.state_dict().items():
        assert torch.equal(value, state[key]), key
    for key, parameter in module.named_parameters():
        assert parameter.grad is gradients[key]
        assert bool((parameter.grad == 0.5).all())
    assert all(torch.equal(a, b) for a, b in zip(inputs, given, strict=True))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())


def test_the_module_is_left_as_it_was_even_when_it_fails() -> None:
    class Fails(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            Fails.calls += 1
            if bool(x.sum() > 1e9) or Fails.calls > 3:
                raise RuntimeError("no more")
            return x * 2

    module = nn.Sequential(nn.BatchNorm1d(3), Fails())
    before = {key: value.clone() for key, value in module.state_dict().items()}
    x = torch.randn(4, 3)
    random = torch.get_rng_state()
    with pytest.raises((RuntimeError, PipeplanError), match="no more"):
        measure(module, x, warm_up=5)
    for key, value in module.state_dict().items():
        assert torch.equal(value, before[key]), key
    assert torch.equal(torch.get_rng_state(), random)


def test_frozen_parameters_have_no_backward() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).requires_grad_(False)
    graph = measure(module, torch.randn(2, 4))
    assert [layer.backward_ms for layer in graph.layers] == [0, 0]
    assert [layer.saved_bytes for layer in graph.layers] == [0, 0]


def test_bad_requests() -> None:
    with pytest.raises(PipeplanError, match="at least 0 and 1"):
        measure(nn.Linear(2, 2), torch.randn(1, 2), repeats=0)
    with torch.device("meta"):
        module, x = nn.Linear(2, 2), torch.randn(1, 2)
    with pytest.raises(PipeplanError, match="estimate it instead"):
        measure(module, x)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu(small: Callable[..., Any]) -> None:
    module, inputs = small("gpt")
    graph = measure(module.cuda(), tuple(x.cuda() for x in inputs))
    assert graph.total_compute_ms > 0
    assert "cpu" not in graph.metadata["device"]
