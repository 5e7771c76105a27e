"""Captured models as programs: forms of calls, and captures that try to be more than data."""

import ast
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from pipeplan.codegen.from_capture import program_from_capture
from pipeplan.codegen.package import build_package
from pipeplan.codegen.source import program_of
from pipeplan.core.captured import (
    CAPTURE_KEY,
    CapturedCall,
    CapturedInput,
    CapturedModel,
    CapturedModule,
    CapturedState,
    CapturedTensor,
    Named,
    Ref,
    TrainingFlag,
    capture_from_dict,
    capture_to_dict,
)
from pipeplan.core.errors import ProfileError
from pipeplan.core.graph import Layer, LayerGraph

Given = Callable[..., Any]
FLOAT = CapturedTensor((2, 3), "float32", True)
X = Ref("input", "x")


def call(target: str, *args: Any, **changes: Any) -> CapturedCall:
    return CapturedCall("v", "function", target, args, outputs=(FLOAT,), **changes)


def model(*calls: CapturedCall, **changes: Any) -> CapturedModel:
    return CapturedModel(
        factory=changes.pop("factory", "nets:net"),
        training=True,
        inputs=(CapturedInput("x", (0, 0), FLOAT),),
        calls=calls,
        output=Ref("node", calls[-1].id),
        **changes,
    )


def graph_of(captured: CapturedModel) -> LayerGraph:
    ids = [x.id for x in captured.calls]
    return LayerGraph.build(
        [Layer(x, 1.0, 1.0, 8) for x in ids],
        list(pairwise(ids)),
        metadata={CAPTURE_KEY: capture_to_dict(captured)},
    )


def statement(captured: CapturedModel, given_plan: Given) -> str:
    """The statement that computes the last value."""
    graph = graph_of(captured)
    source = build_package(given_plan(graph, [[x.id for x in graph.layers]])).files["stage_0.py"]
    lines = source.splitlines()
    end = next(i for i, line in enumerate(lines) if "# returned" in line)
    return lines[end - 1].strip()


TENSOR = "torch.Tensor"
LONG_INDEX = (slice(None), slice(1, None), None, ...)
CPU = {"device": Named("device", "cpu")}


@pytest.mark.parametrize(
    ("captured", "expected"),
    [
        (call(f"{TENSOR}.add", X, 1), "x + 1"),
        (call(f"{TENSOR}.add", X, 1, kwargs={"alpha": 2}), "x.add(1, alpha=2)"),
        (call(f"{TENSOR}.__rsub__", X, 1), "1 - x"),
        (call(f"{TENSOR}.__neg__", X), "-x"),
        (call(f"{TENSOR}.mul", X, -2.5), "x * (-2.5)"),
        (call(f"{TENSOR}.view", X, 2, -1), "x.view(2, -1)"),
        (call(f"{TENSOR}.T.__get__", X), "x.T"),
        (call("torch.nn.functional.relu", X), "F.relu(x)"),
        (call("torch.functional.einsum", "i j -> j i", X), 'torch.einsum("ij->ji", x)'),
        (call("torch.cat", [X, X], 1), "torch.cat([x, x], 1)"),
        (call("torch.special.expit", X), "torch.special.expit(x)"),
        (call(f"{TENSOR}.__getitem__", X, LONG_INDEX), "x[:, 1:, None, ...]"),
        (call(f"{TENSOR}.__getitem__", X, 0), "x[0]"),
        (call(f"{TENSOR}.to", X, Named("dtype", "int64")), "x.to(torch.int64)"),
        (
            call(f"{TENSOR}.to", X, Named("dtype", "float32")),
            "x.to(self.precision(torch.float32))",
        ),
        (call("torch.zeros", (2, 3), kwargs=CPU), "torch.zeros((2, 3), device=self.device)"),
        (call("torch.arange", 4), "torch.arange(4, device=self.device)"),
        (call(f"{TENSOR}.clamp", X, float("-inf")), 'x.clamp(float("-inf"))'),
        (
            call("torch.nn.functional.dropout", X, 0.5, TrainingFlag()),
            "F.dropout(x, 0.5, self.training)",
        ),
    ],
)
def test_calls_read_like_python(captured: CapturedCall, expected: str, given_plan: Given) -> None:
    assert statement(model(captured), given_plan) == f"v = {expected}"


def test_a_call_that_yields_nothing_stands_for_what_it_changed(given_plan: Given) -> None:
    changed = call(
        "torch.Tensor.__setitem__", X, 0, 1.0, value_argument=0, mutates=(X,), alias_of=X
    )
    graph = graph_of(model(changed))
    source = build_package(given_plan(graph, [["v"]])).files["stage_0.py"]
    assert "x_copy = x.clone()" in source
    assert "        x_copy.__setitem__(0, 1.0)\n        v = x_copy\n" in source


def test_a_value_that_is_sent_is_not_overwritten(given_plan: Given) -> None:
    """Also where a plan parts what the capture wants together."""
    captured = model(
        CapturedCall("a", "function", "torch.sin", (X,), outputs=(FLOAT,)),
        CapturedCall(
            "b", "function", "torch.Tensor.relu_", (Ref("node", "a"),), outputs=(FLOAT,),
            mutates=(Ref("node", "a"),), alias_of=Ref("node", "a"),
        ),
        CapturedCall(
            "c", "function", "torch.Tensor.add", (Ref("node", "a"), Ref("node", "b")),
            outputs=(FLOAT,),
        ),
    )  # fmt: skip
    graph = graph_of(captured)
    source = build_package(given_plan(graph, [["a", "b"], ["c"]])).files["stage_0.py"]
    assert "b = a.clone().relu_()" in source or "b = (a.clone()).relu_()" in source


def test_a_module_of_the_users_own_is_taken_from_the_factory(given_plan: Given) -> None:
    captured = model(
        CapturedCall("own", "module", "block.own", (X,), outputs=(FLOAT,)),
        modules=(CapturedModule("block.own", "nets.Own", "Own(3)"),),
        sizes={"width": 3},
    )
    graph = graph_of(captured)
    source = build_package(given_plan(graph, [["own"]])).files["stage_0.py"]
    assert 'original = original_model("nets:net", {"width": 3})' in source
    assert 'self.block_own = original.get_submodule("block.own")' in source
    assert "import nets" not in source


def test_a_bias_that_the_text_does_not_tell_is_told_by_the_parameters() -> None:
    text = "LayerNorm((3,), eps=1e-05, elementwise_affine=True)"
    captured = model(
        CapturedCall("n", "module", "n", (X,), outputs=(FLOAT,), parameters=("n.weight",)),
        modules=(CapturedModule("n", "torch.nn.modules.normalization.LayerNorm", text),),
    )
    program = program_from_capture(graph_of(captured), captured)
    constructor = program.members["n"].constructor
    assert constructor is not None
    assert constructor[2]["bias"] is False


def test_the_capture_comes_back_from_its_json() -> None:
    captured = model(
        call("torch.Tensor.__getitem__", X, (slice(None, -1, 2), ..., None), is_constant=False),
        state=(CapturedState("w", "parameter", FLOAT),),
        tied={"w": ("w", "v")},
        sizes={"n": 3, "flag": True},
    )
    assert capture_from_dict(capture_to_dict(captured)) == captured
    assert program_of(graph_of(captured)).factory == "nets:net"


@pytest.mark.parametrize(
    "target",
    [
        "torch.load", "torch.save", "torch.hub.load", "torch.utils.cpp_extension.load", "os.system",
        "builtins.eval", "torch.Tensor.numpy", "torch.Tensor.register_hook", "torch.Tensor.apply_",
        "torch.ops.load_library", "torch.Tensor.__class__", "torch.__builtins__", "torch", "",
        "torch.cat); import os; (", "torch.Tensor.grad_fn.__get__", "torch.os.system",
        "torch.nn.functional.torch.load", "subprocess.run", "torch.Tensor.view.__globals__",
    ],
)  # fmt: skip
def test_what_is_not_on_the_list_is_not_called(target: str) -> None:
    captured = model(call(target, X))
    with pytest.raises(ProfileError, match="layer v"):
        program_from_capture(graph_of(captured), captured)


@pytest.mark.parametrize(
    "argument",
    ["; import os", "a\nb", "'", '"', "../x", "/etc/passwd", "x" * 200, 10**30,
     Named("dtype", "float32); evil("), Named("layout", "__class__")],
)  # fmt: skip
def test_arguments_are_plain(argument: Any) -> None:
    captured = model(call("torch.Tensor.to", X, argument))
    with pytest.raises(ProfileError, match="layer v"):
        program_from_capture(graph_of(captured), captured)


def test_keywords_are_names() -> None:
    captured = model(call("torch.Tensor.to", X, kwargs={"a=1, b": 2}))
    with pytest.raises(ProfileError, match="keyword"):
        program_from_capture(graph_of(captured), captured)


@pytest.mark.parametrize(
    "factory", ["nets", "nets:net()", "nets:net; import os", "a b:c", "../x:y", ""]
)
def test_a_factory_is_a_dotted_name(factory: str) -> None:
    captured = model(call("torch.sin", X), factory=factory)
    with pytest.raises(ProfileError, match="MODULE:FACTORY"):
        program_from_capture(graph_of(captured), captured)


@pytest.mark.parametrize("path", ['a"); evil("', "a b", "a..b", "", "a\n"])
def test_paths_of_modules_are_dotted_names(path: str) -> None:
    captured = model(
        CapturedCall("m", "module", path, (X,), outputs=(FLOAT,)),
        modules=(CapturedModule(path, "nets.Own"),),
    )
    with pytest.raises(ProfileError, match="no dotted name"):
        program_from_capture(graph_of(captured), captured)


@pytest.mark.parametrize("name", ["m.weight = evil()", "m.w; import os", "m.x()", ""])
def test_names_of_tied_parameters_are_dotted_names(name: str) -> None:
    captured = model(
        CapturedCall("m", "module", "m", (X,), outputs=(FLOAT,)),
        modules=(CapturedModule("m", "nets.Own"),),
        tied={"m.weight": ("m.weight", name)},
    )
    with pytest.raises(ProfileError, match="no dotted name"):
        program_from_capture(graph_of(captured), captured)


def test_tied_parameters_inside_numbered_modules_are_tied(given_plan: Given) -> None:
    captured = model(
        CapturedCall("a", "module", "a", (X,), outputs=(FLOAT,)),
        CapturedCall("b", "module", "b", (Ref("node", "a"),), outputs=(FLOAT,)),
        modules=(CapturedModule("a", "nets.Own"), CapturedModule("b", "nets.Own")),
        tied={"a.0.weight": ("a.0.weight", "b.0.weight")},
    )
    graph = graph_of(captured)
    files = build_package(given_plan(graph, [["a", "b"]])).files
    assert 'self.tie("b.0.weight", "a.0.weight")' in files["stage_0.py"]


def test_texts_among_the_sizes_stay_texts(given_plan: Given) -> None:
    sizes = {"mode": 'a, b"); import os; (' + "'x" * 60}
    captured = model(
        CapturedCall("m", "module", "m", (X,), outputs=(FLOAT,)),
        modules=(CapturedModule("m", "nets.Own"),),
        sizes=sizes,
    )
    source = build_package(given_plan(graph_of(captured), [["m"]])).files["stage_0.py"]
    calls = [x for x in ast.walk(ast.parse(source)) if isinstance(x, ast.Call)]
    found = [x for x in calls if isinstance(x.func, ast.Name) and x.func.id == "original_model"]
    assert ast.literal_eval(found[0].args[1]) == sizes
    assert not any(isinstance(x, ast.Import) for x in ast.walk(ast.parse(source)))


def test_a_text_that_is_no_constructor_is_taken_from_the_factory_not_run() -> None:
    captured = model(
        CapturedCall("m", "module", "m", (X,), outputs=(FLOAT,)),
        modules=(
            CapturedModule("m", "torch.nn.modules.linear.Linear", "Linear(__import__('os'))"),
        ),
    )
    assert program_from_capture(graph_of(captured), captured).members["m"].constructor is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"args": (Ref("node", "later"),)}, "does not exist by then"),
        ({"args": (Ref("parameter", "w"),)}, "does not exist by then"),
        ({"kind": "module", "target": "m"}, "not listed"),
        ({"kind": "item", "args": (3,)}, "item of what is no value"),
        ({"value_argument": 5}, "has no argument 5"),
    ],
)
def test_a_capture_that_does_not_hold_together(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        model(replace(call("torch.sin", X), **changes))


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "pipeplan.capture/9"}, {"calls": 3}, {"calls": [3]}, {"inputs": [{"name": "x"}]},
        {"output": {"eval": "1"}}, {"output": {"ref": ["node"]}}, {"sizes": {"a b": 1}},
        {"sizes": {"a": []}}, {"tied": {"w": [1]}}, {"state": [{"name": "w", "kind": "evil"}]},
    ],
)  # fmt: skip
def test_a_malformed_capture_is_an_error_that_names_the_place(change: dict[str, Any]) -> None:
    data = {**capture_to_dict(model(call("torch.sin", X))), **change}
    with pytest.raises(ProfileError, match="capture"):
        capture_from_dict(data)


def test_deep_arguments_are_bounded() -> None:
    nested: Any = 1
    for _ in range(60):
        nested = [nested]
    data = capture_to_dict(model(call("torch.sin", X)))
    data["calls"][0]["args"] = [nested]
    with pytest.raises(ProfileError, match="levels deep"):
        capture_from_dict(data)
