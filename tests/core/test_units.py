"""Sizes, rates and durations as people write them."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeplan.core.errors import PipeplanError
from pipeplan.core.units import (
    format_bytes,
    format_ms,
    format_rate,
    parse_bytes,
    parse_duration_s,
    parse_rate,
    plural,
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("16", 16),
        ("16B", 16),
        ("16GB", 16 * 10**9),
        ("16 GB", 16 * 10**9),
        (" 16gb ", 2 * 10**9),
        ("16GiB", 16 * 2**30),
        ("80Gb", 10**10),
        ("2.3GB", 2_300_000_000),
        ("1.1GiB", 1_181_116_006),
        (".5kB", 500),
        ("16e9", 16 * 10**9),
        ("9007199254740993", 9007199254740993),
        ("1.000000000000000001GB", 10**9),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_sizes(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("4294967296", 2.0**32),
        ("4GiB/s", 2.0**32),
        ("10GB/s", 1e10),
        ("10GBps", 1e10),
        ("25Gb/s", 3.125e9),
        ("25Gbps", 3.125e9),
        ("100 Mb/s", 1.25e7),
        ("2.5e9", 2.5e9),
        ("0.1B/s", 0.1),
    ],
)
def test_rates(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60", 60.0),
        ("60s", 60.0),
        ("0.1s", 0.1),
        ("500ms", 0.5),
        ("5us", 5e-6),
        ("2m", 120.0),
        ("2min", 120.0),
        ("1.5h", 5400.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


BAD = [
    "",
    " ",
    "-1",
    "+1",
    "1,5",
    "nan",
    "inf",
    "0x10",
    "1e",
    "1..2",
    "1 2",
    "GB",
    "\u0661",
    "1e9999",
]
HUGE = [
    pytest.param("9" * 100_000, id="digits"),
    pytest.param("1" + "0" * 61, id="zeros"),
    pytest.param("0." + "1" * 100, id="decimals"),
    "1e-999999999",
    "1e999999999",
]


@pytest.mark.parametrize("text", [*BAD, *HUGE, "16XB", "8b", "16GiB/s", str(2**63), "1e999"])
def test_no_size(text: str) -> None:
    with pytest.raises(PipeplanError, match="size") as caught:
        parse_bytes(text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", [*BAD, *HUGE, "16GB", "16G", "16GB/h", "16GB/", "1e999"])
def test_no_rate(text: str) -> None:
    with pytest.raises(PipeplanError, match="bandwidth") as caught:
        parse_rate(text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", [*BAD, *HUGE, "5d", "60 sec", "1m30s", "1e999"])
def test_no_duration(text: str) -> None:
    with pytest.raises(PipeplanError, match="duration") as caught:
        parse_duration_s(text)
    assert len(str(caught.value)) < 300


@given(st.text(max_size=30))
def test_any_text_is_a_figure_or_an_error(text: str) -> None:
    for parse in (parse_bytes, parse_rate, parse_duration_s):
        try:
            found = parse(text)
        except PipeplanError as error:
            found, message = 0, str(error)
        else:
            message = ""
        assert found >= 0
        assert all(c.isprintable() for c in message)


@given(
    st.decimals(0, 9000, places=4),
    st.sampled_from(
        [
            ("kB", 10**3),
            ("MB", 10**6),
            ("GB", 10**9),
            ("KiB", 2**10),
            ("MiB", 2**20),
            ("GiB", 2**30),
        ]
    ),
)
def test_values_are_exact(number: Decimal, unit: tuple[str, int]) -> None:
    name, factor = unit
    exact = int(number * factor)
    assert parse_bytes(f"{number:f}{name}") == exact
    assert parse_rate(f"{number:f}{name}/s") == float(number * factor)


@given(st.integers(0, 10**16))
def test_what_is_shown_reads_back_to_four_digits(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=5e-4, abs=1)
    assert parse_rate(format_rate(count)) == pytest.approx(count, rel=5e-4, abs=1e-9)


def test_figures_for_people() -> None:
    assert format_bytes(553_432_081) == "553.4 MB"
    assert format_bytes(12) == "12 B"
    assert format_rate(2**32) == "4.295 GB/s"
    assert format_ms(44.66775904) == "44.668 ms"
    assert format_ms(0.000123456789) == "0.000123457 ms"
    assert format_ms(0) == "0 ms"


def test_plural() -> None:
    assert plural(1, "stage") == "1 stage"
    assert plural(0, "stage") == "0 stages"
    assert plural(2, "micro-batch") == "2 micro-batches"
    assert plural(3, "copy", "copies") == "3 copies"
