"""Typed access to JSON: each kind takes its own and names the place of anything else."""

from typing import Any

import pytest

from pipeplan.core.errors import PlanError, ProfileError
from pipeplan.core.reader import Reader

VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "whole": 7,
    "real": 2.5,
    "round": 3.0,
    "large": 2**200,
    "text": "x",
    "list": [1],
    "texts": ["a", "b"],
    "object": {"a": 1},
    "objects": [{"a": 1}],
}

ACCEPTED: dict[str, set[str]] = {
    "text": {"text"},
    "optional_text": {"text", "null"},
    "integer": {"whole"},
    "optional_integer": {"whole", "null"},
    "whole": {"whole", "round"},
    "number": {"whole", "real", "round", "large"},
    "optional_number": {"whole", "real", "round", "large", "null"},
    "flag": {"true"},
    "items": {"list", "texts", "objects"},
    "texts": {"texts"},
    "integers": {"list"},
    "mapping": {"object"},
    "object": {"object"},
    "objects": {"objects"},
}


@pytest.mark.parametrize("method", sorted(ACCEPTED))
def test_each_kind_takes_its_own(method: str) -> None:
    reader = Reader(VALUES, "here", PlanError)
    for key, value in VALUES.items():
        if key in ACCEPTED[method]:
            found = getattr(reader, method)(key)
            if method not in ("object", "objects"):
                assert found == value
        else:
            with pytest.raises(PlanError, match=r"^here: ") as caught:
                getattr(reader, method)(key)
            assert key in str(caught.value)


@pytest.mark.parametrize(
    "method", ["text", "integer", "whole", "number", "flag", "items", "object"]
)
def test_what_is_missing_is_said(method: str) -> None:
    with pytest.raises(ProfileError, match="here: size is missing"):
        getattr(Reader({}, "here", ProfileError), method)("size")


def test_defaults_stand_for_what_is_left_out_alone() -> None:
    reader = Reader({"n": "x"}, "here", PlanError)
    assert reader.text("t", "") == ""
    assert reader.whole("w", 0) == 0
    assert reader.items("l", []) == []
    assert reader.mapping("m", {}) == {}
    with pytest.raises(PlanError, match="n is not a number"):
        reader.whole("n", 0)


@pytest.mark.parametrize("value", [2**62 + 1, -(2**62) - 1, 1e300, 10**400])
def test_whole_numbers_are_bounded(value: Any) -> None:
    reader = Reader({"n": value}, "here", PlanError)
    with pytest.raises(PlanError, match="n is "):
        reader.integer("n")
    with pytest.raises(PlanError, match="n is out of range"):
        reader.whole("n")


def test_numbers_beyond_floats_are_out_of_range() -> None:
    with pytest.raises(PlanError, match="n is out of range"):
        Reader({"n": 10**400}, "here", PlanError).number("n")


def test_places_are_spelt_out() -> None:
    reader = Reader({"a": [{"b": {"c": 1}}]}, "plan", PlanError)
    inner = reader.objects("a")[0].object("b")
    with pytest.raises(PlanError, match=r"^plan: a\[0\]: b: c is not text: '1'"):
        inner.text("c")
    with pytest.raises(PlanError, match=r"^plan: this is not an object: '5'"):
        Reader(5, "plan", PlanError)
