"""Layer texts: what the grammar takes, and that nothing else gets through."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeplan.codegen.layer_text import BadTextError, LayerText, parse_layer_text


@pytest.mark.parametrize(
    ("text", "name", "args", "kwargs"),
    [
        ("ReLU(inplace)", "ReLU", (), {"inplace": True}),
        ("ReLU(inplace=True)", "ReLU", (), {"inplace": True}),
        ("ReLU()", "ReLU", (), {}),
        ("Dropout(p=0.2)", "Dropout", (), {"p": 0.2}),
        ("Dropout(p=0.5, inplace=False)", "Dropout", (), {"p": 0.5, "inplace": False}),
        (
            "Conv2d(3, 64, kernel_size=(3, 3), stride=(1, 1), bias=False)",
            "Conv2d",
            (3, 64),
            {"kernel_size": (3, 3), "stride": (1, 1), "bias": False},
        ),
        ("View(-1)", "View", (-1,), {}),
        ("View(8, -1)", "View", (8, -1), {}),
        ("BatchNorm2d(64, eps=1e-05)", "BatchNorm2d", (64,), {"eps": 1e-05}),
        ("BatchNorm2d(64, momentum=None)", "BatchNorm2d", (64,), {"momentum": None}),
        ("GELU(approximate='none')", "GELU", (), {"approximate": "none"}),
        ("LayerNorm([8, 8])", "LayerNorm", ((8, 8),), {}),
        ("__getitem__(2)", "__getitem__", (2,), {}),
        ("Add(inplace)", "Add", (), {"inplace": True}),
        ("Linear(in_features=9216, out_features=4096, bias=True)", "Linear", (),
         {"in_features": 9216, "out_features": 4096, "bias": True}),
    ],
)  # fmt: skip
def test_calls_of_literals(text: str, name: str, args: tuple[object, ...], kwargs: object) -> None:
    found = parse_layer_text(text)
    assert (found.name, found.args, found.keywords(), found.bare) == (name, args, kwargs, False)


@pytest.mark.parametrize("name", ["Add", "hidden", "__getitem__", "Size", "View", "Input0"])
def test_bare_names(name: str) -> None:
    assert parse_layer_text(name) == LayerText(name, bare=True)


def test_slices_belong_to_getitem_alone() -> None:
    text = "__getitem__((slice(None, None, None), slice(1, None, None)))"
    assert parse_layer_text(text).args == ((slice(None), slice(1, None, None)),)
    assert parse_layer_text("__getitem__(...)").args == (...,)
    with pytest.raises(BadTextError):
        parse_layer_text("View(slice(0, 1, 2))")


def test_children_as_torch_prints_them_on_one_line() -> None:
    text = (
        "RecurrentAttention(  (rnn): LSTM(1024, 1024)  (attn): BahdanauAttention(    (linear_q): "
        "Linear(in_features=4, out_features=8, bias=False)    (dropout): Dropout(p=0)  )  "
        "(dropout): Dropout(p=0))"
    )
    found = parse_layer_text(text)
    assert [key for key, _ in found.children] == ["rnn", "attn", "dropout"]
    attention = found.child("attn")
    assert attention is not None
    query = attention.child("linear_q")
    assert query is not None
    assert query.keywords() == {"in_features": 4, "out_features": 8, "bias": False}


HOSTILE = [
    "Conv2d(__import__('os').system('touch pwned'))",
    "Conv2d(3, 64, kernel_size=__import__('os'))",
    "Conv2d(*[1, 2])",
    "Conv2d(**{'a': 1})",
    "Conv2d(open)",
    "Conv2d((lambda: 1)())",
    "Conv2d([x for x in (1,)])",
    "Conv2d(f'{1}')",
    "Conv2d(1 + 1)",
    "Conv2d(9**9**9)",
    "Conv2d('a' * 10)",
    "Conv2d(x := 1)",
    "Conv2d(1).__class__",
    "Conv2d(1); import os",
    "Conv2d(1)\nimport os",
    "Conv2d(\n1)",
    "Conv2d(1) # comment",
    "Conv2d(1)(2)",
    "Conv2d(1",
    "Conv2d)1(",
    "Conv2d('two words')",
    "Conv2d('../../etc/passwd')",
    "Conv2d('\\x41')",
    "Conv2d(b'a')",
    "Conv2d(1j)",
    "Conv2d(1e999)",
    "Conv2d(99999999999999999999)",
    "Conv2d({1: 2})",
    "Conv2d({1, 2})",
    "Conv2d(True and False)",
    "Conv2d(-True)",
    "Conv2d(---------1)",
    "Conv2d(p=1, p=2)",
    "Conv2d(inplace, inplace=False)",
    "torch.nn.Conv2d(1)",
    "os.system('x')",
    "../../evil",
    "evil\\n",
    "",
    " ",
    "Conv2d(\u202e1)",
    "Conv2d(\u0661)",
    "Cönv2d(1)",
    "A((a): B((b): ",
    "A((a): B(1) (a): B(2))",
    "A((a): B(1) junk)",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_whatever_is_no_literal_is_refused_and_not_run(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadTextError) as caught:
        parse_layer_text(text)
    assert 0 <= caught.value.position <= max(len(text), 1)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [
        "Conv2d(" + "1, " * 400_000 + "1)",
        "Conv2d(" + "(" * 3000 + ")" * 3000 + ")",
        "A((a): " * 1400 + "B(1)" + ")" * 1400,
        "Conv2d(" + "-" * 1900 + "1)",
        "x" * 1_000_000,
    ],
    ids=["long", "deep parentheses", "deep layers", "many signs", "long name"],
)
def test_size_and_depth_are_bounded_before_anything_is_parsed(text: str) -> None:
    with pytest.raises(BadTextError):
        parse_layer_text(text)


def test_position_is_that_of_the_offending_argument() -> None:
    text = "Conv2d(3, 64, kernel_size=open)"
    with pytest.raises(BadTextError) as caught:
        parse_layer_text(text)
    assert text[caught.value.position :] == "open)"


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=80))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        found = parse_layer_text(text)
    except BadTextError:
        found = None
    assert found is None or text.startswith(found.name)
