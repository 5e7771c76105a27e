"""Ticks: rounding, caps, and the error that is stated of them."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeplan.core.errors import TooLargeError
from pipeplan.solver.quantize import TICKS_PER_STEP, Ticks, exact_bytes


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=50))
def test_a_sum_is_off_by_at_most_half_a_tick_a_term(times: list[float]) -> None:
    ticks = Ticks.choose(reference_ms=10.0, upper_ms=30.0, devices=16)
    counted = Fraction(sum(map(ticks.of, times))) * Fraction(ticks.tick_ms)
    exact = sum(map(Fraction, times))
    # The division that finds the tick rounds once more, by far less than the bound allows for.
    assert abs(float(counted - exact)) <= ticks.error_ms(len(times)) * (1 + 1e-6) + 1e-12


def test_a_step_is_a_quarter_of_a_millionth_of_the_reference() -> None:
    ticks = Ticks.choose(reference_ms=8.0, upper_ms=9.0, devices=8)
    assert ticks.step_ms == pytest.approx(8.0 * 2.0**-22)
    assert ticks.step_ms == ticks.tick_ms * TICKS_PER_STEP


@given(st.floats(1e-3, 1e6))
def test_steps_enclose_a_time(ms: float) -> None:
    ticks = Ticks.choose(reference_ms=ms, upper_ms=ms, devices=1)
    below, above = ticks.steps_down(ms), ticks.steps_up(ms)
    assert below <= above <= below + 1
    assert below * ticks.step_ms <= ms * (1 + 1e-12)
    assert above * ticks.step_ms >= ms * (1 - 1e-12)


def test_what_exceeds_every_plan_is_cut_off_above_every_plan() -> None:
    ticks = Ticks.choose(reference_ms=1.0, upper_ms=2.0, devices=4)
    assert ticks.of(1e30) == ticks.cap
    assert ticks.cap * ticks.tick_ms > 2.0 * 4
    assert ticks.of(2.0 * 4) < ticks.cap


def test_sums_of_capped_times_fit_64_bits() -> None:
    ticks = Ticks.choose(reference_ms=1e-3, upper_ms=1.0, devices=128)
    assert ticks.cap * 1000 < 2**63


def test_times_too_far_apart_are_refused_with_both_figures() -> None:
    with pytest.raises(TooLargeError, match=r"1e-12 to 1e\+12 ms.*dp"):
        Ticks.choose(reference_ms=1e-12, upper_ms=1e12, devices=16)


def test_free_graphs_have_ticks_too() -> None:
    assert math.isfinite(Ticks.choose(reference_ms=0.0, upper_ms=0.0, devices=4).tick_ms)


def test_bytes_beyond_64_bits_are_refused_by_name() -> None:
    assert exact_bytes(10**12, "x") == 10**12
    with pytest.raises(TooLargeError, match="the memory of a stage"):
        exact_bytes(2**62, "the memory of a stage")
