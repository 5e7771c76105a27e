"""Messages are one printable, short line, whatever they quote."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeplan.core.errors import PlanError, SourceError, shown


@given(st.text())
def test_quoted_text_is_printable_and_short(text: str) -> None:
    message = str(SourceError("bad", path="f", line=3, text=text))
    assert message.startswith("f:3: bad: ")
    assert message.isprintable()
    assert len(str(PlanError("bad", text=text * 100))) < 2_000


def test_places_are_as_far_as_known() -> None:
    assert str(SourceError("bad")) == "bad"
    assert str(SourceError("bad", path="f")) == "f: bad"
    assert str(SourceError("bad", line=3)) == "3: bad"
    assert str(SourceError("bad", path="a\nb", text="x")) == "'a\\nb': bad: 'x'"


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    ["x" * 10**6, list(range(10**5)), {str(i): i for i in range(10**4)}, 10**400, deep(5_000)],
    ids=["text", "list", "object", "number", "deep"],
)
def test_any_value_is_shown_in_a_short_line(value: Any) -> None:
    assert len(shown(value)) < 1_000
    assert shown(value).isprintable()


def test_numbers_that_python_does_not_write_out() -> None:
    assert shown(10**5000) == "(int, too large to show)"
    assert shown([10**5000]) == "(list, too large to show)"
