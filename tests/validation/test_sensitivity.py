"""Sweeps: axes as typed, where plans change, tolerances, and the drawing."""

import itertools
from xml.etree import ElementTree

import pytest

from pipeplan.core.cluster import Cluster
from pipeplan.core.cost import evaluate
from pipeplan.core.errors import PipeplanError
from pipeplan.core.graph import Layer, LayerGraph
from pipeplan.core.problem import Problem
from pipeplan.solver.api import solve
from pipeplan.solver.result import SolveResult, Status
from pipeplan.validation.sensitivity import (
    Axis,
    current_value,
    parse_axis,
    plan_words,
    show_value,
    sweep,
    tolerance,
    with_value,
)
from pipeplan.validation.sensitivity_svg import sweep_svg


@pytest.fixture
def problem() -> Problem:
    """Two layers of 3 ms on 2 GPUs: one GPU takes 6 ms, the cut max(3 ms, 3e6 bytes / B), and two
    replicas 3 ms + 2e6 bytes / B."""
    layers = [Layer("a", 1.0, 2.0, 3_000_000, 0), Layer("<b>", 1.0, 2.0, 0, 4_000_000)]
    graph = LayerGraph.build(layers, [("a", "<b>")], name="<two>")
    return Problem(graph, Cluster.of((2,), (1e9,)))


def exhaustive(problem: Problem) -> SolveResult:
    return solve(problem, "exhaustive")


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("bandwidth=1..100GB/s:20", Axis("bandwidth", 1e9, 100e9, 20)),
        ("bandwidth2=500MB/s..2GB/s", Axis("bandwidth2", 5e8, 2e9, 13)),
        ("memory=8GB..80GB:3", Axis("memory", 8e9, 80e9, 3)),
        ("devices=1..4", Axis("devices", 1, 4, 4)),
        ("bandwidth=1e9..2e9:2", Axis("bandwidth", 1e9, 2e9, 2)),
    ],
)
def test_axes_as_people_write_them(text: str, axis: Axis) -> None:
    found = parse_axis(text)
    assert (found.name, found.points) == (axis.name, axis.points)
    assert (found.low, found.high) == pytest.approx((axis.low, axis.high))
    values = found.values()
    assert len(values) == axis.points
    assert values[0] == found.low
    assert values[-1] == found.high
    ratios = [b / a for a, b in itertools.pairwise(values)]
    if not axis.whole:
        assert ratios == pytest.approx([ratios[0]] * len(ratios))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("speed=1..2", "not a sweep"),
        ("bandwidth=1", "not a sweep"),
        ("bandwidth9=1..2", "not a sweep"),
        ("bandwidth=2..1GB/s", "must ascend"),
        ("bandwidth=0..1GB/s", "must ascend"),
        ("bandwidth=1..2GB/s:1", "1 points"),
        ("bandwidth=1..2GB/s:100000", "100000 points"),
        ("memory=1..lots", "not a size"),
        ("devices=1.5..3", "not a whole number"),
    ],
)
def test_axes_that_are_none(text: str, words: str) -> None:
    with pytest.raises(PipeplanError, match=words):
        parse_axis(text)


def test_a_level_that_the_cluster_lacks_is_named(problem: Problem) -> None:
    with pytest.raises(PipeplanError, match=r"bandwidth2: the cluster has 1 level$"):
        with_value(problem, "bandwidth2", 1e9)


def test_values_reach_the_question(problem: Problem) -> None:
    assert current_value(with_value(problem, "bandwidth", 5e8), "bandwidth1") == 5e8
    assert current_value(with_value(problem, "memory", 7e9), "memory") == 7e9
    assert current_value(problem, "memory") is None
    assert current_value(with_value(problem, "devices", 3), "devices") == 3
    assert show_value("memory", 7e9) == "7 GB"


def test_the_change_of_plan_is_found_where_arithmetic_puts_it(problem: Problem) -> None:
    found = sweep(problem, Axis("bandwidth", 1e8, 1e11, 4), exhaustive, precision=1e-4)
    # Below 0.5 GB/s the cut takes longer than one GPU's 6 ms; two replicas always more than it.
    assert [plan_words(x) for x in found.plans] == ["0-1:1", "0-0:1 1-1:1"]
    (change,) = found.changes
    assert change.low <= 0.5e9 <= change.high <= change.low * 1.0002
    for point in found.points:
        asked = with_value(problem, "bandwidth", point.value)
        assert point.status is Status.OPTIMAL
        best = min(evaluate(asked, plan).objective_ms for plan in found.plans)
        assert point.objective_ms == pytest.approx(best)
        assert point.plan is not None
        chosen = evaluate(asked, found.plans[point.plan]).objective_ms
        assert chosen == pytest.approx(best, rel=1e-9)


def test_every_change_separates_two_plans_by_price(problem: Problem) -> None:
    found = sweep(problem, Axis("bandwidth", 1e8, 1e11, 7), exhaustive)
    assert found.changes
    for change in found.changes:
        assert change.before is not None
        assert change.after is not None
        assert change.before != change.after
        low, high = (with_value(problem, "bandwidth", x) for x in (change.low, change.high))
        before, after = found.plans[change.before], found.plans[change.after]
        assert evaluate(low, before).objective_ms <= evaluate(low, after).objective_ms
        assert evaluate(high, after).objective_ms < evaluate(high, before).objective_ms
    stretches = found.stretches
    assert stretches[0].open_low
    assert stretches[-1].open_high
    assert len(stretches) == len(found.changes) + 1


def test_too_little_memory_is_a_stretch_without_a_plan(problem: Problem) -> None:
    found = sweep(problem, Axis("memory", 1e6, 64e6, 4), exhaustive)
    assert found.points[0].status is Status.INFEASIBLE
    assert found.points[0].plan is None
    assert found.stretches[0].plan is None
    (first, *_) = found.changes
    assert first.before is None
    assert first.high - first.low <= 0.011 * first.low
    fits = solve(with_value(problem, "memory", first.high), "exhaustive")
    assert fits.plan is not None


def test_tolerance_is_where_another_plan_becomes_better(problem: Problem) -> None:
    here = tolerance(problem, "bandwidth", exhaustive, precision=1e-3)
    assert here is not None
    assert here.low <= 1e9 <= here.high
    assert here.open_high
    assert not here.open_low
    plan = exhaustive(problem).require_plan()
    inside = with_value(problem, "bandwidth", here.low)
    outside = with_value(problem, "bandwidth", here.low * 0.995)
    best = exhaustive(inside).objective_ms
    assert evaluate(inside, plan).objective_ms == pytest.approx(best)
    assert evaluate(outside, plan).objective_ms > (exhaustive(outside).objective_ms or 0.0)
    assert tolerance(problem, "memory", exhaustive) is None
    devices = tolerance(problem, "devices", exhaustive, reach=3.0)
    assert devices is not None
    assert devices.low <= 2 <= devices.high


def test_the_drawing_is_well_formed_and_escaped(problem: Problem) -> None:
    axes = [Axis("bandwidth", 1e8, 1e11, 4), Axis("memory", 1e6, 64e6, 3)]
    found = [sweep(problem, axis, exhaustive) for axis in axes]
    text = sweep_svg(found, name="<two>", now=[1e9, None])
    root = ElementTree.fromstring(text)
    assert "<two>: objective against bandwidth" in "".join(root.itertext())
    lines = list(root.iter("{http://www.w3.org/2000/svg}polyline"))
    assert len(lines) == 4
    assert sweep_svg(found, name="<two>", now=[1e9, None]) == text
