"""Bare graphs as programs and stages: each case that PipeDream's generator gets wrong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeplan.codegen.from_text import program_from_text
from pipeplan.codegen.layer_error import LayerError
from pipeplan.codegen.package import build_package
from pipeplan.codegen.stages import split
from pipeplan.core.errors import PlanError, ProfileError
from pipeplan.core.graph import LayerGraph

Given = Callable[..., Any]


def built(files: dict[str, str], stages: int) -> list[Any]:
    """Instances of the generated stages."""
    out = []
    for s in range(stages):
        names: dict[str, Any] = {"__name__": f"stage_{s}"}
        exec(compile(files[f"stage_{s}.py"], f"stage_{s}.py", "exec"), names)
        out.append(names["Stage"]().double())
    return out


def chained(stages: list[Any], **inputs: Tensor) -> tuple[Tensor, ...]:
    values: tuple[Tensor, ...] = ()
    for stage in stages:
        values = stage(*values, *(inputs[name] for name in stage.INPUTS))
    return values


def source_of(graph: LayerGraph, given_plan: Given, stages: list[list[str]]) -> dict[str, str]:
    return dict(build_package(given_plan(graph, stages)).files)


CHAIN = """
    n1 Input
    n2 Conv2d(3, 4, kernel_size=(3, 3), padding=(1, 1))
    n3 ReLU(inplace)
    n4 Dropout(p=0.5, inplace=False)
    n5 ReLU(inplace=True)
    n6 Size(0)
    n7 View(-1)
    n8 Linear(in_features=64, out_features=5, bias=True)
    n1 > n2
    n2 > n3
    n3 > n4
    n4 > n5
    n5 > n6
    n6 > n7
    n5 > n7
    n7 > n8
"""


def test_old_and_new_spellings_make_a_module_that_runs(
    graph_text: Given, given_plan: Given
) -> None:
    graph = graph_text(CHAIN)
    stages = built(
        source_of(graph, given_plan, [["n2", "n3"], ["n4", "n5"], ["n6", "n7", "n8"]]), 3
    )
    (out,) = chained(stages, n1=torch.randn(2, 3, 4, 4, dtype=torch.float64))
    assert out.shape == (2, 5)
    out.sum().backward()
    assert all(p.grad is not None for stage in stages for p in stage.parameters())


def test_a_received_tensor_is_copied_before_it_is_overwritten(
    graph_text: Given, given_plan: Given
) -> None:
    files = source_of(
        graph_text(CHAIN), given_plan, [["n2"], ["n3", "n4", "n5"], ["n6", "n7", "n8"]]
    )
    stages = built(files, 3)
    leaf = torch.randn(2, 4, 4, 4, dtype=torch.float64, requires_grad=True)
    before = leaf.detach().clone()
    stages[1](leaf)[0].sum().backward()
    assert torch.equal(leaf, before)
    assert "n2_copy = n2.clone()" in files["stage_1.py"]


def test_argument_order_is_that_of_the_file(graph_text: Given, given_plan: Given) -> None:
    short = """
        x Input
        b ReLU()
        a Sigmoid()
        c Concat(1)
        x > a
        x > b
        b > c
        x > c
        a > c
    """
    stages = built(source_of(graph_text(short), given_plan, [["a", "b", "c"]]), 1)
    x = torch.randn(2, 3, dtype=torch.float64)
    (out,) = chained(stages, x=x)
    assert torch.equal(out, torch.cat([x.relu(), x, x.sigmoid()], 1))


def test_a_sum_changes_neither_of_its_operands(graph_text: Given, given_plan: Given) -> None:
    short = """
        x Input
        a Sigmoid()
        b Tanh()
        s Add(inplace)
        c Concat(1)
        x > a
        x > b
        a > s
        b > s
        a > c
        b > c
        s > c
    """
    stages = built(source_of(graph_text(short), given_plan, [["a", "b"], ["s", "c"]]), 2)
    x = torch.randn(2, 3, dtype=torch.float64)
    (out,) = chained(stages, x=x)
    a, b = x.sigmoid(), x.tanh()
    assert torch.equal(out, torch.cat([a, b, a + b], 1))


def test_in_place_is_dropped_where_others_read_the_value(
    graph_text: Given, given_plan: Given
) -> None:
    short = """
        x Input
        a Linear(in_features=3, out_features=3, bias=True)
        v View(-1, 3)
        r ReLU(inplace)
        c Concat(1)
        x > a
        a > v
        v > r
        a > c
        r > c
    """
    files = source_of(graph_text(short), given_plan, [["a", "v", "r", "c"]])
    assert "# not in place: a has other readers" in files["stage_0.py"]
    (stage,) = built(files, 1)
    x = torch.randn(2, 3, dtype=torch.float64)
    (out,) = chained([stage], x=x)
    a = stage.a(x)
    assert torch.equal(out, torch.cat([a, a.relu()], 1))


RECURRENT = """
    x Input
    h hidden
    h0 __getitem__(0)
    h1 __getitem__(1)
    l LSTM(4, 4)
    o __getitem__(0)
    s __getitem__(1)
    m LSTM(4, 4)
    p __getitem__(0)
    h > h0
    h > h1
    x > l
    h0 > l
    l > o
    l > s
    o > m
    h1 > m
    m > p
"""


@pytest.mark.parametrize(
    "cut",
    [
        [["h", "h0", "h1", "l"], ["o", "s", "m", "p"]],
        [["h", "h0", "l", "o", "s"], ["h1", "m"], ["p"]],
        [["h", "h0", "h1"], ["l", "o", "s", "m", "p"]],
    ],
    ids=["tuple and item", "three", "constants alone"],
)
def test_no_tuple_and_no_constant_crosses_a_cut(
    cut: list[list[str]], graph_text: Given, given_plan: Given
) -> None:
    graph = graph_text(RECURRENT)
    whole = built(source_of(graph, given_plan, [[x.id for x in graph.layers]]), 1)
    stages = built(source_of(graph, given_plan, cut), len(cut))
    for stage in stages:
        stage.load_state_dict(whole[0].state_dict())
    x = torch.randn(5, 2, 4, dtype=torch.float64)
    assert torch.equal(chained(stages, x=x)[0], chained(whole, x=x)[0])


def test_unread_items_leave_no_code(graph_text: Given, given_plan: Given) -> None:
    graph = graph_text(RECURRENT)
    source = source_of(graph, given_plan, [[x.id for x in graph.layers]])["stage_0.py"]
    assert "s = " not in source
    assert "self.l(x, None)" in source


def test_a_tensor_used_later_is_relayed_by_every_stage_between(
    graph_text: Given, given_plan: Given
) -> None:
    short = """
        x Input
        a Sigmoid()
        b Tanh()
        c ReLU()
        s Add
        x > a
        a > b
        b > c
        c > s
        a > s
        x > s
    """
    graph = graph_text(short)
    stages = built(source_of(graph, given_plan, [["a"], ["b"], ["c"], ["s"]]), 4)
    assert [stage.SENDS for stage in stages] == [("a",), ("a", "b"), ("a", "c"), ()]
    assert [stage.INPUTS for stage in stages] == [("x",), (), (), ("x",)]
    x = torch.randn(2, 3, dtype=torch.float64)
    (out,) = chained(stages, x=x)
    assert torch.equal(out, x.sigmoid().tanh().relu() + x.sigmoid() + x)


def test_an_auxiliary_result_is_relayed_to_the_loss(graph_text: Given, given_plan: Given) -> None:
    short = """
        x Input
        a Linear(in_features=3, out_features=3, bias=True)
        head Linear(in_features=3, out_features=2, bias=True)
        b ReLU()
        c Linear(in_features=3, out_features=2, bias=True)
        x > a
        a > head
        a > b
        b > c
    """
    stages = built(source_of(graph_text(short), given_plan, [["a", "head"], ["b"], ["c"]]), 3)
    assert [stage.SENDS for stage in stages] == [("a", "head"), ("b", "head"), ()]
    assert stages[-1].RETURNS == ("c", "head")


@pytest.mark.parametrize(
    ("size", "view", "shape"),
    [
        ("Size(0)", "View(-1)", (2, 12)),
        ("Size(inplace)", "View(inplace)", (2, 12)),
        ("Size(0)", "View(3, 4)", (2, 3, 4)),
        ("Size(0)", "View", (2, 12)),
        ("Size", "View", (2, 3, 4)),
    ],
)
def test_views_with_a_size(
    size: str, view: str, shape: tuple[int, ...], graph_text: Given, given_plan: Given
) -> None:
    short = f"""
        x Input
        a Sigmoid()
        s {size}
        v {view}
        x > a
        a > s
        s > v
        a > v
    """
    graph = graph_text(short)
    for cut in ([["a", "s", "v"]], [["a"], ["s", "v"]], [["a", "s"], ["v"]]):
        stages = built(source_of(graph, given_plan, cut), len(cut))
        (out,) = chained(stages, x=torch.randn(2, 3, 4, dtype=torch.float64))
        assert out.shape == shape


@pytest.mark.parametrize(
    ("view", "shape"),
    [
        ("View(12)", (2, 12)),
        ("View(-1)", (24,)),
        ("View(4, -1)", (4, 6)),
        ("Transpose(0, 2)", (4, 3, 2)),
    ],
)
def test_views_without_a_size(
    view: str, shape: tuple[int, ...], graph_text: Given, given_plan: Given
) -> None:
    short = f"x Input\na Sigmoid()\nv {view}\nx > a\na > v"
    stages = built(source_of(graph_text(short), given_plan, [["a"], ["v"]]), 2)
    (out,) = chained(stages, x=torch.randn(2, 3, 4, dtype=torch.float64))
    assert out.shape == shape


def test_a_slice_without_bounds_is_all_or_an_error(graph_text: Given, given_plan: Given) -> None:
    short = "x Input\na Sigmoid()\ng __getitem__\nb ReLU()\nx > a\na > g\ng > b"
    source = source_of(graph_text(short), given_plan, [["a", "g", "b"]])["stage_0.py"]
    assert "# a slice whose bounds the profile does not hold" in source


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ("Conv2d(__import__('os').system('x'))", "only numbers"),
        ("Conv2d(3, 8, shell=True)", "no parameter 'shell'"),
        ("Conv2d(3, 8, 3, kernel_size=3)", "given twice"),
        ("MultiheadAttention((out_proj): Linear(4, 4))", "no module"),
        ("Sequential((0): ReLU() (2): ReLU())", "numbered from 0"),
        ("Sequential((0): LSTM(3, 3) (1): ReLU())", "one tensor"),
        ("Add", "it takes two or more"),
        ("Concat", "1 to 1 numbers"),
        ("RecurrentAttention((rnn): LSTM(4, 4))", "needs a child"),
        ("Mystery", "neither a module nor"),
        ("os.system('x')", "something follows"),
        ("Classifier((classifier): Linear(4, shell=1))", "no parameter"),
        ("Linear(in_features=4, out_features='four')x", "something follows"),
    ],
)
def test_a_layer_that_is_not_understood_is_named(
    layer: str, message: str, graph_text: Given
) -> None:
    graph = graph_text(f"x Input\nbad {layer}\nx > bad")
    with pytest.raises(LayerError, match=message) as caught:
        program_from_text(graph)
    assert caught.value.layer == "bad"
    assert str(caught.value).startswith("layer bad: ")


def test_a_tuple_is_not_a_tensor(graph_text: Given) -> None:
    graph = graph_text("x Input\nl LSTM(4, 4)\nr ReLU()\nx > l\nl > r")
    with pytest.raises(LayerError, match="without taking an item"):
        program_from_text(graph)


def test_gnmt_modules_take_their_sizes_from_their_parts(graph_text: Given) -> None:
    attention = (
        "RecurrentAttention((rnn): LSTM(6, 8) (attn): BahdanauAttention((linear_q): "
        "Linear(in_features=8, out_features=5, bias=False) (linear_k): Linear(in_features=4, "
        "out_features=5, bias=False) (dropout): Dropout(p=0)) (dropout): Dropout(p=0.1))"
    )
    short = f"""
        x Input0
        n Input1
        y Input2
        e EmuBidirLSTM((bidir): LSTM(3, 2) (layer1): LSTM(3, 2) (layer2): LSTM(3, 2))
        h hidden
        h0 __getitem__(0)
        a {attention}
        o __getitem__(0)
        x > e
        n > e
        h > h0
        y > a
        h0 > a
        e > a
        n > a
        a > o
    """
    program = program_from_text(graph_text(short))
    assert program.members["e"].constructor == ("gnmt.EmuBidirLSTM", (3, 2), {})
    constructor = program.members["a"].constructor
    assert constructor is not None
    # In the order of the constructor: input, context, hidden.
    assert constructor[:2] == ("gnmt.RecurrentAttention", (6, 4, 8))
    assert constructor[2] == {"units": 5, "dropout": 0.1, "attention_dropout": 0}


def test_arguments_that_are_not_the_edges_are_refused(graph_text: Given) -> None:
    graph = graph_text("x Input\na ReLU()\nb ReLU()\nc Add\nx > a\nx > b\na > c\nb > c")
    graph.metadata["arguments"]["c"] = ["a", "evil"]  # type: ignore[index]
    with pytest.raises(ProfileError, match="arguments of layer c"):
        program_from_text(graph)


def test_what_is_no_tensor_cannot_cross(graph_text: Given, given_plan: Given) -> None:
    # The state of an LSTM, itself a tuple, read by another one.
    layers = "x Input\nl LSTM(4, 4)\no __getitem__(0)\ns __getitem__(1)\nm LSTM(4, 4)\n"
    graph = graph_text(layers + "p __getitem__(0)\nx > l\nl > o\nl > s\no > m\ns > m\nm > p")
    (stage,) = built(source_of(graph, given_plan, [[x.id for x in graph.layers]]), 1)
    assert stage(torch.randn(5, 2, 4, dtype=torch.float64))[0].shape == (5, 2, 4)
    with pytest.raises(
        PlanError, match="layer m of stage 1 reads s of stage 0, which is no tensor"
    ):
        build_package(given_plan(graph, [["l", "o", "s"], ["m", "p"]]))


def test_a_plan_of_other_layers_is_refused(graph_text: Given, given_plan: Given) -> None:
    graph, other = graph_text(CHAIN), graph_text("x Input\na ReLU()\nx > a")
    with pytest.raises(PlanError, match="the plan is of profile"):
        build_package(given_plan(other, [["a"]]), graph)


def test_splitting_needs_every_layer_placed(graph_text: Given, given_plan: Given) -> None:
    graph = graph_text(CHAIN)
    plan = given_plan(graph, [[x.id for x in graph.layers]]).plan
    stages = split(program_from_text(graph), graph, plan)
    assert [x.index for x in stages] == [0]
    assert stages[0].returns == ("n8",)
