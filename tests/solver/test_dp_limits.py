"""What the dp says when it is stopped, and when demands contradict each other."""

from collections.abc import Callable
from typing import NoReturn

import pytest

from pipeplan.core.cluster import Cluster
from pipeplan.core.errors import ProblemError, TooLargeError
from pipeplan.core.graph import Layer, LayerGraph, Together
from pipeplan.core.problem import Constraints, Problem
from pipeplan.models.synthetic import random_dag
from pipeplan.solver import api
from pipeplan.solver.backends.dp import backend
from pipeplan.solver.clock import Clock, OutOfTimeError
from pipeplan.solver.ideals import enumerate_ideals
from pipeplan.solver.linear_dp import linear_plan
from pipeplan.solver.options import BackendName, SolveOptions
from pipeplan.solver.outcome import Outcome
from pipeplan.solver.result import Limit, Status


def chain(count: int) -> LayerGraph:
    layers = [Layer(f"n{i}", 1.0 + i % 3, 1.0, 1000, 500) for i in range(count)]
    return LayerGraph.build(layers, [(f"n{i}", f"n{i + 1}") for i in range(count - 1)])


def stop_after(monkeypatch: pytest.MonkeyPatch, checks: int, error: type[BaseException]) -> None:
    """Stop the search at its n-th look at the clock: no test depends on how fast a machine is."""
    left = iter(range(checks))

    def check(self: Clock) -> None:
        if next(left, None) is None:
            raise error

    monkeypatch.setattr(Clock, "check", check)


@pytest.mark.parametrize("checks", [0, 60, 150])
@pytest.mark.parametrize(
    ("error", "limit"), [(OutOfTimeError, Limit.TIME), (KeyboardInterrupt, Limit.INTERRUPT)]
)
def test_a_stopped_search_gives_what_it_has(
    monkeypatch: pytest.MonkeyPatch, checks: int, error: type[BaseException], limit: Limit
) -> None:
    problem = Problem(chain(12), Cluster.of([4, 2], [1e6, 5e5]))
    best = api.solve(problem, "dp")
    stop_after(monkeypatch, checks, error)
    result = api.solve(problem, "dp", SolveOptions(time_limit_s=1000))
    assert result.limit is limit
    assert result.status in (Status.FEASIBLE, Status.NO_SOLUTION)
    assert best.objective_ms is not None
    assert result.bound_ms is not None
    assert result.bound_ms <= best.objective_ms
    if result.status is Status.FEASIBLE:
        assert result.objective_ms is not None
        assert result.objective_ms >= best.objective_ms * (1 - 1e-12)
    if limit is Limit.TIME:
        assert result.plan is not None


def test_a_stopped_nested_search_falls_back_to_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(
        chain(8), Cluster.of([2, 2], [1e6, 5e5]), scope="nested", cost_model="levelwise"
    )
    best = linear_plan(problem)

    def too_slow(*_: object) -> Outcome:
        raise OutOfTimeError

    monkeypatch.setattr(backend, "solve_nested", too_slow)
    result = api.solve(problem, "dp", SolveOptions(time_limit_s=1000))
    assert (result.status, result.limit) == (Status.FEASIBLE, Limit.TIME)
    assert result.plan == best


@pytest.mark.parametrize("name", ["dp", "cpsat", "milp", "exhaustive", "auto"])
def test_without_any_time_there_is_a_plan(name: BackendName) -> None:
    problem = Problem(random_dag(40, seed=1, sources=6), Cluster.of([4, 2], [1e9, 1e8]))
    result = api.solve(problem, name, SolveOptions(time_limit_s=1e-6))
    assert (result.status, result.limit) == (Status.FEASIBLE, Limit.TIME)
    assert result.bound_ms is not None


def test_auto_goes_on_where_ideals_cannot_be_listed_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def half_gone(self: Clock, share: float) -> bool:
        return share == 0.5 and self.share(1) is not None

    monkeypatch.setattr(Clock, "used", half_gone)
    problem = Problem(chain(12), Cluster.of([4], [1e6]))
    options = SolveOptions(time_limit_s=1000, workers=1)
    assert api.solve(problem, "dp", options).stats.backend == "dp"
    result = api.solve(problem, "auto", options)
    assert (result.stats.backend, result.status) == ("cpsat", Status.OPTIMAL)
    assert any("could not be listed" in note for note in result.stats.notes)


def test_a_gap_stops_early_and_says_so() -> None:
    problem = Problem(random_dag(10, seed=1), Cluster.of([4], [1e9]))
    exact = api.solve(problem, "dp")
    rough = api.solve(problem, "dp", SolveOptions(gap=0.9))
    assert exact.status is Status.OPTIMAL
    assert rough.bound_ms is not None
    assert rough.objective_ms is not None
    assert exact.objective_ms is not None
    assert rough.bound_ms <= exact.objective_ms <= rough.objective_ms
    assert rough.objective_ms - rough.bound_ms <= 0.9 * rough.objective_ms
    if rough.status is Status.FEASIBLE:
        assert rough.limit is Limit.GAP


def test_a_limit_on_ideals_is_said_with_its_count(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = LayerGraph.build([Layer(f"n{i}", 1.0, 1.0, 10) for i in range(12)], [])
    monkeypatch.setattr(
        backend,
        "enumerate_ideals",
        lambda reduced, **rest: enumerate_ideals(reduced, **{**rest, "limit": 1000}),
    )
    problem = Problem(graph, Cluster.of([2], [1e9]))
    with pytest.raises(TooLargeError, match=r"counted \d+ before stopping.*cpsat"):
        api.solve(problem, "dp")
    # auto goes on with who can, and says why.
    result = api.solve(problem, "auto")
    assert result.stats.backend == "cpsat"
    assert result.objective_ms == pytest.approx(12.0, rel=1e-5)
    assert any("counted" in note for note in result.stats.notes)


def test_conflicting_demands_are_named() -> None:
    graph = LayerGraph.build(
        [Layer(x, 1.0, 1.0, 10) for x in "abcd"],
        [("a", "b"), ("b", "c"), ("c", "d")],
        together=[Together(("b", "c"), "tied weights")],
    )
    cluster = Cluster.of([4], [1e9])

    def ask(**asked: object) -> str:
        problem = Problem(graph, cluster, constraints=Constraints(**asked))  # type: ignore[arg-type]
        result = api.solve(problem, "dp")
        assert result.status is Status.INFEASIBLE
        return result.explanation

    # A forced cut through layers that must stay together.
    assert "forced cut" in ask(forced_cuts=(frozenset({0, 1}),))
    # More forced cuts than stages allow; the limit and the cuts are named, the rest is not.
    words = ask(forced_cuts=(frozenset({0}), frozenset({0, 1, 2})), max_stages=2, straight=True)
    assert "at most 2 stages" in words
    assert "forced cut" in words
    assert "straight" not in words
    # Pinned backwards.
    words = ask(pinned=((0, 1), (3, 0)))
    assert "layer d in stage 0" in words or "layer a in stage 1" in words


def test_what_the_nested_dp_does_not_know_it_says() -> None:
    problem = Problem(
        chain(4),
        Cluster.of([2, 2], [1e6, 1e6]),
        scope="nested",
        cost_model="levelwise",
        constraints=Constraints(max_stages=2),
    )
    with pytest.raises(ProblemError, match=r"limit on stages.*cpsat"):
        api.solve(problem, "dp")


@pytest.mark.parametrize("checks", [0, 4, 40])
@pytest.mark.parametrize("batch", [None, 4])
def test_ctrl_c_at_any_time_leaves_a_plan(
    checks: int, batch: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster.of([2, 2], [1e6, 1e5])
    asked = Problem(chain(12), cluster)
    if batch is not None:
        asked = Problem(chain(12), cluster, schedule="gpipe", micro_batches=batch)
    best = api.solve(asked, "dp").objective_ms
    assert best is not None
    stop_after(monkeypatch, checks, KeyboardInterrupt)
    found = api.solve(asked, "dp")
    assert found.objective_ms is not None
    assert found.bound_ms is not None
    assert found.bound_ms <= best * (1 + 1e-9)
    assert best <= found.objective_ms * (1 + 1e-9)
    # Stopped too early to have proven anything, or too late to matter.
    assert (found.status, found.limit) in (
        (Status.FEASIBLE, Limit.INTERRUPT),
        (Status.OPTIMAL, None),
    )
    assert checks or found.status is Status.FEASIBLE


def loading(cause: BaseException | None) -> Callable[..., NoReturn]:
    """As pybind11 has it: whatever ends the loading of an extension module is its ImportError."""

    def fails(*_: object) -> NoReturn:
        raise ImportError("initialization failed") from cause

    return fails


def test_ctrl_c_while_a_solver_is_loaded_gives_the_first_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = Problem(chain(4), Cluster.of((2,), (1e9,)))
    monkeypatch.setattr(api, "_outcome", loading(KeyboardInterrupt()))
    found = api.solve(problem, "cpsat")
    assert (found.status, found.limit) == (Status.FEASIBLE, Limit.INTERRUPT)
    assert found.plan is not None
    monkeypatch.setattr(api, "_outcome", loading(None))
    with pytest.raises(ImportError, match="initialization"):
        api.solve(problem, "cpsat")
