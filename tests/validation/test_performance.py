"""Performance profiles, by hand."""

import pytest

from pipeplan.validation.performance import SHORTEST_S, performance


def test_shares_and_means_by_hand() -> None:
    found = performance(
        ("a", "b", "c"),
        [
            {"a": 1.0, "b": 3.0, "c": 2.0},
            {"a": 4.0, "b": 1.0, "c": None},
            {"a": 5.0, "b": None, "c": None},
            {"a": None, "b": None, "c": None},
        ],
    )
    assert (found.instances, found.common) == (4, 1)
    assert found.factors == (1, 2, 4)
    a, b, c = found.curves
    assert [x.backend for x in found.curves] == ["a", "b", "c"]
    assert (a.proved, a.shares) == (3, (0.5, 0.5, 0.75))
    assert (b.proved, b.shares) == (2, (0.25, 0.25, 0.5))
    assert (c.proved, c.shares) == (1, (0.0, 0.25, 0.25))
    assert a.mean_ratio == pytest.approx((1 * 4 * 1) ** (1 / 3))
    assert b.mean_ratio == pytest.approx(3**0.5)
    assert (a.mean_ratio_common, b.mean_ratio_common, c.mean_ratio_common) == (
        pytest.approx(1.0),
        pytest.approx(3.0),
        pytest.approx(2.0),
    )


def test_times_that_only_measure_noise_are_equal() -> None:
    found = performance(("a", "b"), [{"a": 0.0, "b": SHORTEST_S / 2}])
    assert found.factors == (1,)
    assert [x.shares for x in found.curves] == [(1.0,), (1.0,)]


@pytest.mark.parametrize("slower", [1.0, 2.0, 2.0000000001, 1000.0, 3e5])
def test_the_last_factor_takes_every_proof_in(slower: float) -> None:
    found = performance(("a", "b"), [{"a": 1.0, "b": slower}])
    assert found.curves[1].shares[-1] == 1.0
    assert found.factors == tuple(2**k for k in range(len(found.factors)))
    assert all(factor < slower for factor in found.factors[:-1])


@pytest.mark.parametrize("times", [[], [{"a": None, "b": None}]])
def test_where_nobody_proved_anything_there_is_no_mean(
    times: list[dict[str, float | None]],
) -> None:
    found = performance(("a", "b"), times)
    assert found.factors == (1,)
    assert found.common == 0
    for curve in found.curves:
        assert (curve.proved, curve.shares) == (0, (0.0,))
        assert curve.mean_ratio is None
        assert curve.mean_ratio_common is None


def test_a_backend_that_proves_nothing_leaves_no_common_instance() -> None:
    found = performance(("a", "b"), [{"a": 1.0, "b": None}])
    assert found.common == 0
    assert found.curves[0].mean_ratio == pytest.approx(1.0)
    assert found.curves[0].mean_ratio_common is None
