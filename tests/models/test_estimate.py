"""Estimates: counts that can be checked by hand, bytes kept for backward, models without memory."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.autograd.graph import saved_tensors_hooks  # noqa: E402

from pipeplan.core.errors import PipeplanError  # noqa: E402
from pipeplan.core.graph import Layer, LayerGraph  # noqa: E402
from pipeplan.models.formats import dump_profile, read_profile_text  # noqa: E402
from pipeplan.models.profiler import DEVICES, device_named, profile_model  # noqa: E402


def estimate(module: Any, inputs: Any, device: str = "v100") -> LayerGraph:
    return profile_model(module, inputs, name="x", estimate=device, date="2026-01-01")


def layer(graph: LayerGraph, name: str) -> Layer:
    return graph.layers[graph.index[name]]


def roofline(flops: float, moved: float) -> float:
    return 0.005 + 1000 * max(flops / (0.7 * 15.7e12), moved / (0.8 * 900e9))


def test_a_linear_layer_by_hand() -> None:
    rows, a, b = 512, 1024, 2048
    module = nn.Sequential(nn.Linear(a, a, bias=False), nn.Linear(a, b, bias=False))
    graph = estimate(module, (torch.randn(rows, a),))
    second = layer(graph, "1")
    flops = 2 * rows * a * b
    moved = 4 * (rows * a + a * b + rows * b)
    assert second.forward_ms == pytest.approx(roofline(flops, moved), abs=1e-6)
    # The gradients of the input and of the weights.
    assert second.backward_ms == pytest.approx(2 * roofline(flops, moved), abs=1e-6)
    # No gradient flows to the network's input.
    first = layer(graph, "0")
    once = roofline(2 * rows * a * a, 4 * (2 * rows * a + a * a))
    assert first.backward_ms == pytest.approx(once, abs=1e-6)
    assert second.output_bytes == 4 * rows * b
    assert second.parameter_bytes == 4 * a * b
    assert second.tensors == ({"bytes": 4 * rows * b, "dtype": "float32", "shape": [rows, b]},)


def test_a_pointwise_layer_is_bound_by_memory() -> None:
    graph = estimate(nn.Sequential(nn.Linear(8, 4096), nn.ReLU()), (torch.randn(4096, 8),))
    size = 4 * 4096 * 4096
    relu = layer(graph, "1")
    assert relu.forward_ms == pytest.approx(roofline(0, 2 * size), abs=1e-6)
    assert relu.backward_ms == pytest.approx(roofline(0, 3 * size), abs=1e-6)


def test_views_and_items_are_free() -> None:
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 8)

        def forward(self, x: Tensor) -> Tensor:
            left, right = self.a(x).chunk(2, -1)
            return left.transpose(0, 1) @ right

    graph = estimate(Views(), (torch.randn(3, 4),))
    for name in ("chunk[0]", "chunk[1]", "transpose"):
        view = layer(graph, name)
        assert (view.forward_ms, view.backward_ms, view.saved_bytes) == (0, 0, 0)
        assert view.output_bytes == 4 * 3 * 4
    assert [g.reason for g in graph.together] == ["a tuple and its items"]


@pytest.mark.parametrize("name", ["gpt", "resnet18", "unet", "vgg16"])
def test_bytes_kept_are_those_of_the_whole_run(name: str, small: Callable[..., Any]) -> None:
    module, inputs = small(name)
    graph = estimate(module, inputs)
    state = {t.untyped_storage().data_ptr() for t in (*module.parameters(), *module.buffers())}
    kept: dict[int, int] = {}
    alive: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        alive.append(tensor)
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in state:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = module(*inputs)
    assert result.requires_grad
    found = sum(layer.kept_bytes for layer in graph.layers)
    # A layer that overwrites its input works on a copy here, so the shared memory may differ.
    assert found == pytest.approx(sum(kept.values()), rel=0.02)


def test_tied_weights_count_once(small: Callable[..., Any]) -> None:
    module, inputs = small("gpt")
    graph = estimate(module, inputs)
    unique = sum(p.numel() * p.element_size() for p in module.parameters())
    assert graph.total_parameter_bytes == unique
    assert layer(graph, "head").parameter_bytes == 0
    assert (("tokens", "head"), "tied weights tokens.weight") in [
        (g.layers, g.reason) for g in graph.together
    ]


def test_a_shared_constant_moves_no_bytes() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            mask = torch.ones(4, 4).tril()
            return self.b(self.a(x) @ mask) @ mask

    graph = estimate(Masked(), (torch.randn(4, 4),))
    assert layer(graph, "tril").output_bytes == 0
    assert graph.metadata["constants"] == ["tril"]


def test_recurrent_layers_have_steps() -> None:
    short = estimate(nn.Sequential(nn.LSTM(64, 64)), (torch.randn(10, 8, 64),))
    long = estimate(nn.Sequential(nn.LSTM(64, 64)), (torch.randn(100, 8, 64),))
    assert layer(long, "0").forward_ms > 5 * layer(short, "0").forward_ms > 0.05
    both = estimate(nn.Sequential(nn.GRU(64, 64, bidirectional=True)), (torch.randn(10, 8, 64),))
    assert layer(both, "0").backward_ms > layer(both, "0").forward_ms > 0.1


def test_a_model_larger_than_memory() -> None:
    with torch.device("meta"):
        module = nn.Sequential(nn.Linear(2**20, 2**20), nn.ReLU(), nn.Linear(2**20, 2**18))
        inputs = (torch.randn(2**10, 2**20),)
    graph = estimate(module, inputs, "h200")
    assert graph.total_parameter_bytes > 5 * 2**40
    assert graph.metadata["batch"] == 1024
    # The same module with memory gives the same figures.
    with torch.device("meta"):
        bare = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True))
        x = torch.randn(4, 16)
    real = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True))
    assert estimate(bare, (x,)) == estimate(real, (torch.randn(4, 16),))


def test_code_that_depends_on_values_is_estimated_too() -> None:
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.a(x) if x.sum() > 0 else self.a(-x)
            return result

    module = nn.Sequential(Branch(), nn.Linear(4, 4))
    graph = estimate(module, (torch.randn(4, 4),))
    assert [x.id for x in graph.layers] == ["0", "1"]
    assert layer(graph, "0").forward_ms > 0
    assert graph.metadata["messages"][0].startswith("0 is kept whole")


def test_faster_devices_take_less_time(small: Callable[..., Any]) -> None:
    module, inputs = small("vgg16", image=64, width=16)
    times = [estimate(module, inputs, name).total_compute_ms for name in DEVICES]
    assert list(DEVICES) == ["v100", "a100", "h100", "h200"]
    assert times == sorted(times, reverse=True)


def test_half_precision_is_faster() -> None:
    module, x = nn.Sequential(nn.Linear(4096, 4096)), torch.randn(4096, 4096)
    single = estimate(module, (x,), "a100").total_compute_ms
    half = estimate(module.to(torch.bfloat16), (x.to(torch.bfloat16),), "a100")
    assert half.metadata["dtype"] == "bfloat16"
    assert half.total_compute_ms < single / 8


def test_unknown_device() -> None:
    with pytest.raises(PipeplanError, match="known: v100, a100, h100, h200"):
        device_named("abacus")
    assert device_named("H100").name == "h100"


def test_metadata_and_round_trip(small: Callable[..., Any]) -> None:
    module, inputs = small("resnet18")
    graph = profile_model(module, inputs, name="r", estimate="a100", date="2026-01-01")
    assert {key: graph.metadata[key] for key in ("method", "device", "batch", "dtype", "date")} == {
        "method": "estimated",
        "device": "a100",
        "batch": 2,
        "dtype": "float32",
        "date": "2026-01-01",
    }
    assert graph.metadata["torch"] == torch.__version__.partition("+")[0]
    again = read_profile_text(dump_profile(graph), "x")
    assert again.graph == graph
    assert again.warnings == ()


def test_progress_is_told(small: Callable[..., Any]) -> None:
    module, inputs = small("vgg16")
    seen: list[tuple[int, int, str]] = []
    profile_model(
        module, inputs, name="v", estimate="v100", progress=lambda *done: seen.append(done)
    )
    assert [done for done, _, _ in seen] == list(range(1, len(seen) + 1))
    assert {total for _, total, _ in seen} == {40}


@pytest.mark.parametrize(
    ("options", "winograd"), [({}, 1.6), ({"stride": 2}, 1), ({"groups": 4}, 1)]
)
def test_plain_3x3_convolutions_are_winograd(options: dict[str, int], winograd: float) -> None:
    module = nn.Conv2d(64, 128, 3, padding=1, bias=False, **options)
    graph = estimate(nn.Sequential(module), (torch.randn(64, 64, 56, 56),))
    side = 56 // options.get("stride", 1)
    products = 64 * 128 * side * side * 9 * 64 // options.get("groups", 1)
    expected = 0.005 + 1000 * 2 * products / (0.7 * 15.7e12) / winograd
    moved = 4 * (64 * 64 * 56 * 56 + 64 * 128 * side * side)
    assert layer(graph, "0").forward_ms == pytest.approx(
        max(expected, roofline(0, moved)), rel=1e-2
    )
    # The device with TF32 has units for it, and no transform.
    on_a100 = layer(estimate(nn.Sequential(module), (torch.randn(64, 64, 56, 56),), "a100"), "0")
    tf32 = 0.005 + 1000 * max(2 * products / (0.7 * 156e12), moved / (0.8 * 2039e9))
    assert on_a100.forward_ms == pytest.approx(tf32, rel=1e-2)
