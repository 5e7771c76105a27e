"""JSON: strict and bounded in, canonical out."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeplan.core.errors import PipeplanError, PlanError, ProfileError
from pipeplan.core.jsontext import MAX_DEPTH, dump_json, not_json, parse_json

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)


@given(JSON)
def test_what_is_written_reads_back(value: Any) -> None:
    assert not_json(value) is None
    text = dump_json(value)
    assert text.endswith("\n")
    assert parse_json(text, PlanError) == value
    assert dump_json(parse_json(text, PlanError)) == text


@pytest.mark.parametrize(
    ("text", "line", "pattern"),
    [
        ("[1,\n", 2, "not JSON: it ends in the middle"),
        ('{"a": 1,\n "b": }', 2, "not JSON: Expecting value"),
        ('{"a": 1}\n\n{', 3, "not JSON: Extra data"),
        ("{'a': 1}", 1, "not JSON"),
        ('{"x": "\u2028\u2028",\n?}', 2, "not JSON"),
        ('{"a": 1,\n "b": NaN}', 2, "NaN is not a finite number"),
        ("[1,\n\n-Infinity]", 3, "-Infinity is not a finite number"),
        ('["NaN here",\n Infinity]', 2, "Infinity is not"),
        ("[1,\n1e999]", 2, "out of range: '1e999'"),
        ("[0,\n" + "7" * 5000 + "]", 2, "a number has 5000 digits"),
        ('{"a": 1,\n"b": 2,\n"a": 3}', 1, "a key appears twice in one object: '\"a\"'"),
    ],
)
def test_faults_are_located(text: str, line: int, pattern: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse_json(text, ProfileError, "p.json")
    message = str(caught.value)
    assert pattern in message
    assert message.startswith(f"p.json:{line}: ")
    assert message.isprintable()
    assert len(message) < 400


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "[" * 500 + "]" * 500, '{"a":' * 500 + "1" + "}" * 500],
    ids=["unclosed", "lists", "objects"],
)
def test_depth_is_bounded(text: str) -> None:
    with pytest.raises(PlanError, match=f"nested more than {MAX_DEPTH} levels deep"):
        parse_json(text, PlanError)


def test_the_depth_that_is_allowed_can_be_written() -> None:
    text = "[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH
    assert parse_json(dump_json(parse_json(text, PlanError)), PlanError) == json.loads(text)
    with pytest.raises(PlanError, match="nested"):
        parse_json(f"[{text}]", PlanError)


def test_half_characters_are_refused() -> None:
    for text in ('["\\ud800"]', '{"\\udfff": 1}'):
        with pytest.raises(PlanError, match="half a character") as caught:
            parse_json(text, PlanError)
        assert str(caught.value).isprintable()
    assert parse_json('["\\ud83d\\ude00"]', PlanError) == ["\N{GRINNING FACE}"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "finite"),
        ([1, {"a": float("inf")}], "finite"),
        ({1: 2}, "the key of an object"),
        ((1, 2), "a tuple is no JSON value"),
        ({"a": {1, 2}}, "a set is no JSON value"),
        ([b""], "a bytes is no JSON value"),
    ],
)
def test_what_is_no_json(value: Any, reason: str) -> None:
    complaint = not_json(value)
    assert complaint is not None
    assert reason in complaint


@pytest.mark.parametrize("value", [float("nan"), {"a": object()}, {("a",): 1}])
def test_what_cannot_be_written_is_an_error(value: Any) -> None:
    with pytest.raises(PipeplanError, match="cannot be written as JSON"):
        dump_json(value)


@given(st.text(max_size=40))
def test_any_text_is_a_document_or_an_error(text: str) -> None:
    try:
        value = parse_json(text, PlanError)
    except PlanError as error:
        message = str(error)
    else:
        message = dump_json(value).replace("\n", "")
    assert message
