"""Capture: the same results and gradients node by node, deterministic ids, nothing left behind."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from pipeplan.models.capture import (  # noqa: E402
    CapturedGraph,
    CaptureError,
    DeviceFlag,
    Ref,
    TrainingFlag,
    capture,
    replay,
)
from pipeplan.models.capture.values import leaves  # noqa: E402


def gradients(module: Any, result: Any) -> dict[str, Tensor | None]:
    module.zero_grad()
    total = sum(leaf.float().square().sum() for leaf in leaves(result))
    total.backward()
    return {
        name: None if p.grad is None else p.grad.clone() for name, p in module.named_parameters()
    }


def check(module: Any, inputs: Any, **options: Any) -> CapturedGraph:
    """Capture, and compare the replay with the module itself: outputs and gradients."""
    graph = capture(module, inputs, **options)
    assert len({node.id for node in graph.nodes}) == len(graph.nodes)
    known = {Ref("input", x.name) for x in graph.inputs}
    for node in graph.nodes:
        for ref in node.refs:
            assert ref in known or ref.kind not in ("node", "input")
        known.add(Ref("node", node.id))
    args = inputs if isinstance(inputs, tuple) else (inputs,)
    torch.manual_seed(1)
    expected = module(**inputs) if isinstance(inputs, dict) else module(*args)
    wanted = gradients(module, expected)
    torch.manual_seed(1)
    found = replay(graph, module, inputs)
    for a, b in zip(leaves(found), leaves(expected), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    for name, gradient in gradients(module, found).items():
        torch.testing.assert_close(gradient, wanted[name], msg=name)
    return graph


def test_the_zoo_replays(zoo_name: str, small: Callable[..., Any]) -> None:
    module, inputs = small(zoo_name)
    graph = check(module, inputs)
    assert graph.messages == ()
    assert not graph.needs_values
    assert [node.id for node in capture(module, inputs).nodes] == [n.id for n in graph.nodes]


def test_a_capture_of_another_mode(small: Callable[..., Any]) -> None:
    module, inputs = small("inception_v3")
    graph = check(module.eval(), inputs)
    assert not graph.training
    assert not any(node.id.startswith("auxiliary") for node in graph.nodes)


def test_a_capture_serves_both_modes(small: Callable[..., Any]) -> None:
    module, inputs = small("vgg16")
    graph = capture(module, inputs)
    module.eval()
    torch.testing.assert_close(replay(graph, module, inputs), module(*inputs))


def test_readable_ids(small: Callable[..., Any]) -> None:
    module, inputs = small("resnet18")
    ids = [node.id for node in capture(module, inputs).nodes]
    assert ids[:4] == ["conv1", "bn1", "relu", "maxpool"]
    assert "blocks.0.relu_1" in ids
    assert "blocks.0.add_" in ids
    assert ids[-2:] == ["flatten", "fc"]
    module, inputs = small("seq2seq")
    ids = [node.id for node in capture(module, inputs).nodes]
    assert {"encoder.0", "encoder.0[0]", "encoder.0[1][0]", "encoder.0[1][1]"} <= set(ids)
    # The last decoder's state is read by nobody.
    assert "decoder.1[1][0]" not in ids


@pytest.mark.parametrize("name", ["gpt", "resnet18", "seq2seq", "vgg16"])
def test_nothing_is_left_behind(name: str, small: Callable[..., Any]) -> None:
    module, inputs = small(name)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    module.train()
    next(iter(module.children())).eval()
    flags = [child.training for child in module.modules()]
    versions = [p._version for p in module.parameters()]
    random = torch.get_rng_state()
    capture(module, inputs)
    assert torch.equal(torch.get_rng_state(), random)
    assert [child.training for child in module.modules()] == flags
    assert [p._version for p in module.parameters()] == versions
    for key, value in module.state_dict().items():
        assert torch.equal(value, before[key]), key
    assert all(p.grad is None for p in module.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())


class Run(nn.Module):
    """A module whose forward is the function given."""

    def __init__(self, function: Callable[..., Any], **members: Any) -> None:
        super().__init__()
        self.function = function
        for name, member in members.items():
            setattr(self, name, member)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


def x23() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(2, 3)


def reasons(graph: CapturedGraph) -> dict[str, tuple[str, ...]]:
    return {reason: ids for ids, reason in graph.together}


def test_argument_order_keywords_and_constants() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        y = torch.sub(x, self.a(x), alpha=2)
        z = 1 - torch.cat([y, x], dim=-1)[:, 1:-1].to(torch.float64)
        return z.permute(1, 0).reshape(-1, 2)

    graph = check(Run(forward, a=nn.Linear(3, 3)), x23())
    sub = graph.by_id["sub"]
    assert sub.args == (Ref("input", "arg0"), Ref("node", "a"))
    assert sub.kwargs == {"alpha": 2}
    assert graph.by_id["to"].args[1] is torch.float64
    assert graph.by_id["getitem"].args[1] == (slice(None), slice(1, -1))


def test_sizes_are_plain_numbers() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        return self.a(x).view(x.size(0), -1, x.shape[-1])

    graph = check(Run(forward, a=nn.Linear(3, 6)), x23())
    assert graph.by_id["view"].args[1:] == (2, -1, 3)


def test_inputs_by_name_nested_and_overwritten() -> None:
    def forward(self: Any, x: Tensor, pair: Any = None) -> dict[str, Any]:
        x.add_(1)
        return {"sum": self.a(x) + pair[0], "rest": [pair[1]["k"] * 2]}

    module = Run(forward, a=nn.Linear(3, 3))
    inputs = {"x": x23(), "pair": (x23(), {"k": x23()})}
    graph = capture(module, inputs)
    assert [item.name for item in graph.inputs] == ["x", "pair[0]", "pair[1][k]"]
    assert torch.equal(inputs["x"], x23())
    assert set(graph.output) == {"sum", "rest"}
    found = replay(graph, module, {**inputs, "x": x23()})
    torch.testing.assert_close(found["rest"][0], 2 * x23())


def test_an_input_named_like_a_module() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.x(x)
            return result

    graph = check(Named(), x23())
    assert [item.name for item in graph.inputs] == ["x_input"]


def test_a_module_called_twice_is_tied_to_itself() -> None:
    graph = check(
        Run(lambda self, x: self.a(self.r(self.a(x))), a=nn.Linear(3, 3), r=nn.ReLU()), x23()
    )
    assert [node.id for node in graph.nodes] == ["a", "r", "a_1"]
    assert reasons(graph) == {
        "tied weights a.weight": ("a", "a_1"),
        "tied weights a.bias": ("a", "a_1"),
    }


def test_tied_weights_have_one_name(small: Callable[..., Any]) -> None:
    module, inputs = small("gpt")
    graph = capture(module, inputs)
    assert graph.tied == {"tokens.weight": ("tokens.weight", "head.weight")}
    assert graph.by_id["head"].parameters == ("tokens.weight",)
    assert reasons(graph)["tied weights tokens.weight"] == ("tokens", "head")


def test_parameters_buffers_and_plain_tensors() -> None:
    module = Run(
        lambda self, x: F.linear(x, self.w, self.b) + self.c,
        w=nn.Parameter(torch.randn(3, 3)),
        c=torch.ones(3),
    )
    module.register_buffer("b", torch.ones(3))
    graph = check(module, x23())
    node = graph.by_id["linear"]
    assert node.args[1:] == (Ref("parameter", "w"), Ref("buffer", "b"))
    assert (node.parameters, node.buffers) == (("w",), ("b",))
    assert graph.by_id["add"].args[1] == Ref("constant", "c")


def test_flags() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        x = F.dropout(self.a(x), 0.5, self.training)
        x = F.dropout(x, p=0.5, training=self.training)
        return x + torch.arange(3, device=x.device)

    module = Run(forward, a=nn.Linear(3, 3))
    graph = check(module, x23())
    assert graph.by_id["dropout"].kwargs["training"] == TrainingFlag()
    assert graph.by_id["dropout_1"].kwargs["training"] == TrainingFlag()
    assert graph.by_id["arange"].kwargs == {"device": DeviceFlag()}
    module.eval()
    torch.testing.assert_close(replay(graph, module, x23()), module(x23()))


def test_constants() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        steps = torch.arange(3).unsqueeze(0).float()
        noise = torch.rand(3)
        return self.a(x + steps) * steps + noise

    graph = check(Run(forward, a=nn.Linear(3, 3)), x23())
    assert [n.id for n in graph.nodes if n.is_constant] == ["arange", "unsqueeze", "float"]
    ids = [ids for ids, reason in graph.together if reason == "constant with its consumer"]
    assert ids == [("arange", "unsqueeze"), ("unsqueeze", "float")]


# -- memory ---------------------------------------------------------------------------------------


def in_place(function: Callable[..., Any]) -> CapturedGraph:
    return check(Run(function, a=nn.Linear(3, 3), r=nn.ReLU(inplace=True)), x23())


WELDED = "memory overwritten in place"


def test_a_chain_in_place_is_free() -> None:
    graph = in_place(lambda self, x: self.r(self.a(x)).view(-1) * 2)
    assert graph.by_id["r"].mutates == (Ref("node", "a"),)
    assert graph.by_id["view"].alias_of == Ref("node", "r")
    assert graph.together == ()


def test_later_readers_read_the_overwrite() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        y = self.a(x)
        y += 1
        y *= 2
        return y + self.r(x * 1)

    graph = in_place(forward)
    assert graph.by_id["mul_"].args[0] == Ref("node", "add_")
    assert Ref("node", "mul_") in graph.by_id["add"].args
    assert graph.together == ()


def test_a_reader_before_the_overwrite_shares_its_stage() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        y = self.a(x)
        z = y + 1
        y.mul_(3)
        return y + z

    assert reasons(in_place(forward))[WELDED] == ("add", "mul_", "add_1")


def test_a_view_before_the_overwrite_shares_its_stage() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        y = self.a(x)
        head = y[0]
        y.mul_(3)
        return y + head

    assert set(reasons(in_place(forward))[WELDED]) == {"getitem", "mul_", "add"}


def test_an_overwrite_through_a_view_is_seen() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        y = self.a(x)
        y[0] = 0.5
        y[:, 1:].add_(1)
        return y * 2

    graph = in_place(forward)
    assert graph.by_id["setitem"].value_argument == 0
    assert {"getitem", "add_", "mul"} <= set(reasons(graph)[WELDED])


def test_items_overwritten_in_place_are_free_too() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        first, second = self.a(x).chunk(2, 0)
        return self.r(first * 1) + second

    assert WELDED not in reasons(in_place(forward))
    overwriting = in_place(lambda self, x: self.r(torch.max(self.a(x), 0)[0]) + 1)
    assert [r for r in reasons(overwriting)] == ["a tuple and its items"]


def test_iterating_over_a_tensor() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        first, second = self.a(x)
        return first * 2 + sum(row for row in x * 1) + second

    graph = check(Run(forward, a=nn.Linear(3, 3)), x23())
    assert [n.id for n in graph.nodes if n.target.endswith("unbind")] == ["unbind", "unbind_1"]


def test_buffers_that_the_model_writes() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        before = self.a(x) * self.count
        self.count.add_(1)
        return before + self.count

    module = Run(forward, a=nn.Linear(3, 3))
    module.register_buffer("count", torch.zeros(1))
    graph = capture(module, x23())
    assert float(module.count) == 0
    assert reasons(graph)[WELDED] == ("mul", "add_", "add")
    assert graph.by_id["add"].args[1] == Ref("node", "add_")


# -- what cannot be followed -----------------------------------------------------------------------


class Doubling(torch.autograd.Function):
    """Its backward is not that of its forward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 5


def branching(self: Any, x: Tensor) -> Tensor:
    result: Tensor = self.a(x) if x.sum() > 1000 else self.a(x) * 2
    return result


def detached(self: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        y = self.a(x) * 2
    return y + self.a(x)


def cast(self: Any, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return (self.a(x) @ x.T).float()


@pytest.mark.parametrize(
    ("function", "message", "needs_values"),
    [
        (branching, "depends on values of tensors", True),
        (lambda self, x: self.a(x[x[:, 0] > -9]), "depends on values of tensors", True),
        (lambda self, x: self.a(x) * x.nonzero().shape[0], "depends on values", True),
        (lambda self, x: Doubling.apply(self.a(x)), "its own backward", False),
        (detached, "without gradients", False),
        (cast, "autocast", False),
    ],
)
def test_a_module_that_cannot_be_followed_is_kept_whole(
    function: Callable[..., Any], message: str, needs_values: bool
) -> None:
    inner = Run(function, a=nn.Linear(3, 3))
    module = Run(lambda self, x: self.last(self.inner(self.first(x))) + 1)
    module.first, module.inner, module.last = nn.Linear(3, 3), inner, nn.LazyLinear(2)
    module(x23())
    graph = check(module, x23())
    assert [node.id for node in graph.nodes] == ["first", "inner", "last", "add"]
    assert graph.by_id["inner"].parameters == ("inner.a.weight", "inner.a.bias")
    assert len(graph.messages) == 1
    assert graph.messages[0].startswith("inner is kept whole:")
    assert message in graph.messages[0]
    assert graph.needs_values is needs_values


def test_values_read_by_the_whole_model_are_said() -> None:
    module = Run(
        lambda self, x: self.a(x) if bool(x.sum() > 1000) else self.a(x) * 2, a=nn.Linear(3, 3)
    )
    graph = check(module, x23())
    assert [node.id for node in graph.nodes][-2:] == ["a", "mul"]
    assert graph.messages == (
        "the model: torch.Tensor.__bool__ was read: the branch that the example took is what was "
        "captured",
    )


def test_values_are_needed_and_there_are_none() -> None:
    with torch.device("meta"):
        module = Run(branching, a=nn.Linear(3, 3))
        x = torch.randn(2, 3)
    with pytest.raises(CaptureError, match="built without memory"):
        capture(module, x)


def test_custom_backward_in_the_model_itself_is_an_error() -> None:
    module = Run(lambda self, x: Doubling.apply(self.a(x)), a=nn.Linear(3, 3))
    with pytest.raises(CaptureError, match="own backward"):
        capture(module, x23())
    # The watch on autograd functions is off again.
    assert Doubling.apply(x23()).shape == (2, 3)


def test_keep_whole() -> None:
    module = nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), nn.Linear(3, 3))
    graph = check(module, x23(), keep_whole=["0"])
    assert [node.id for node in graph.nodes] == ["0", "1"]
    assert graph.messages == ()
    with pytest.raises(CaptureError, match="no module 'zz'"):
        capture(module, x23(), keep_whole=["zz"])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda self, x: self.a(x.view(7)), "fails on its example inputs"),
        (lambda self, x: {"a": {1, 2}, "b": self.a(x)}, "set"),
        (lambda self, x: x, "no call"),
    ],
)
def test_models_that_cannot_be_captured(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        capture(Run(function, a=nn.Linear(3, 3)), x23())


def test_inputs_of_the_wrong_kind() -> None:
    with pytest.raises(CaptureError, match="example inputs are of type int"):
        capture(nn.Linear(3, 3), 5)


# -- modules of torch ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "shape", "ids"),
    [
        (nn.GRU(3, 4, 2, bidirectional=True), (5, 2, 3), ["gru", "gru[0]"]),
        (nn.TransformerEncoderLayer(4, 2, 8, 0.0), (5, 2, 4), None),
        (nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), (2, 3), ["gru"]),
        (nn.Sequential(nn.Flatten(), nn.Identity(), nn.Linear(6, 2)), (2, 2, 3), None),
        (nn.BatchNorm1d(3), (4, 3), ["gru"]),
    ],
)
def test_modules_of_torch(module: Any, shape: tuple[int, ...], ids: list[str] | None) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        result = self.gru(x)
        first: Tensor = result[0] if isinstance(result, tuple) else result
        return first

    torch.manual_seed(0)
    graph = check(Run(forward, gru=module), torch.randn(shape))
    if ids is not None:
        assert [node.id for node in graph.nodes] == ids


def test_multi_head_attention_is_one_layer() -> None:
    graph = check(
        Run(lambda self, x: self.m(x, x, x)[0], m=nn.MultiheadAttention(4, 2)), torch.randn(5, 2, 4)
    )
    assert [node.id for node in graph.nodes] == ["m", "m[0]"]
    assert set(graph.by_id["m"].parameters) >= {"m.in_proj_weight", "m.out_proj.weight"}
