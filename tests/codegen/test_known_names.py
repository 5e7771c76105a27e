"""Whitelists and reserved names, against the torch that is installed."""

import functools
import re

import pytest
import torch
from torch import nn

from pipeplan.codegen.callables import CALLABLES, FACTORIES, PROPERTIES
from pipeplan.codegen.layer_text import parse_layer_text
from pipeplan.codegen.names import MODULE_NAMES, attribute_names, comment, value_names
from pipeplan.codegen.text_modules import member_of
from pipeplan.codegen.torch_modules import NN_MODULES
from pipeplan.runtime.stage import StageModule

ARGUMENTS = {
    "Conv": (4, 8, 3), "ConvTranspose": (4, 8, 3), "BatchNorm": (4,), "InstanceNorm": (4,),
    "LayerNorm": (4,), "RMSNorm": (4,), "GroupNorm": (2, 4), "LocalResponseNorm": (2,),
    "MaxPool": (2,), "AvgPool": (2,), "AdaptiveAvgPool": (2,), "AdaptiveMaxPool": (2,),
    "LPPool": (2, 2), "Linear": (3, 4), "Bilinear": (3, 4, 5), "Embedding": (10, 4),
    "LSTM": (3, 4, 2), "GRU": (3, 4), "RNN": (3, 4), "Threshold": (0.1, 20), "PixelShuffle": (2,),
    "PixelUnshuffle": (2,), "ChannelShuffle": (2,), "Unfold": (3,), "Fold": ((4, 5), 2),
    "ZeroPad": (1,), "ReflectionPad": (1,), "ReplicationPad": (1,), "CircularPad": (1,),
    "ConstantPad": (1, 0.5), "Unflatten": (1, (2, 2)), "Upsample": (None, 2.0),
}  # fmt: skip


@pytest.mark.parametrize("name", NN_MODULES)
def test_todays_repr_of_every_listed_module_builds_the_same_module(name: str) -> None:
    module = getattr(nn, name)(*ARGUMENTS.get(re.sub(r"[123]d$", "", name), ()))
    constructor = member_of("x", parse_layer_text(re.sub(r"\s+", " ", repr(module)))).constructor
    assert constructor is not None
    target, args, kwargs = constructor
    assert target == f"nn.{name}"
    assert repr(getattr(nn, name)(*args, **kwargs)) == repr(module)


def test_every_listed_callable_is_one() -> None:
    for owner, names in CALLABLES.items():
        holder = functools.reduce(getattr, owner.split(".")[1:], torch)
        assert [x for x in sorted(names) if not callable(getattr(holder, x, None))] == []
    assert [x for x in PROPERTIES if not hasattr(torch.Tensor, x)] == []
    assert CALLABLES["torch"] >= FACTORIES


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("torch", "load"), ("torch", "save"), ("torch", "compile"), ("torch", "from_file"),
        ("torch", "hub"), ("torch", "set_default_device"), ("torch", "manual_seed"),
        ("torch.Tensor", "numpy"), ("torch.Tensor", "apply_"), ("torch.Tensor", "map_"),
        ("torch.Tensor", "register_hook"), ("torch.Tensor", "__reduce_ex__"),
        ("torch.Tensor", "backward"), ("torch.Tensor", "share_memory_"), ("torch.Tensor", "set_"),
        ("torch.Tensor", "__class__"), ("torch.nn.functional", "handle_torch_function"),
    ],
)  # fmt: skip
def test_what_reads_files_or_changes_state_is_not_listed(owner: str, name: str) -> None:
    assert name not in CALLABLES[owner]


def test_no_layer_can_hide_an_attribute_of_a_stage() -> None:
    public = {x for x in dir(StageModule) if not x.startswith("_")}
    assert public | {"training"} <= MODULE_NAMES


def test_names_are_distinct_identifiers() -> None:
    ids = [
        "forward",
        "a.b",
        "a_b",
        "a-b",
        "class",
        "match",
        "0",
        "",
        "self",
        "é",
        "x" * 500,
        "__a__",
    ]
    for names in (value_names(ids), attribute_names(ids)):
        assert list(names) == ids
        assert len(set(names.values())) == len(ids)
        assert all(x.isidentifier() and x.isascii() and len(x) < 80 for x in names.values())
    assert attribute_names(["forward"])["forward"] != "forward"


@pytest.mark.parametrize("text", ['a"""b', "a\nb", "a\\", "é\u2028", "x" * 1000, "\x00\x1b[31m"])
def test_comments_are_one_harmless_line(text: str) -> None:
    found = comment(text)
    assert found.isascii()
    assert found.isprintable()
    assert '"' not in found
    assert "\\" not in found
    assert len(found) <= 100
