"""Injected faults: a backend that lies about its objective, drops a constraint or claims too much
is caught by the judge; and what solvers and limits say is passed on as it is."""

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from pipeplan.core.cluster import Cluster
from pipeplan.core.cost import evaluate
from pipeplan.core.errors import BackendBugError, ProblemError
from pipeplan.core.graph import Layer, LayerGraph
from pipeplan.core.problem import Constraints, Problem
from pipeplan.solver.backends.cpsat import constraints as cpsat_constraints
from pipeplan.solver.backends.cpsat import objective as cpsat_objective
from pipeplan.solver.backends.cpsat.backend import solve_cpsat
from pipeplan.solver.backends.milp import constraints as milp_constraints
from pipeplan.solver.backends.milp import objective as milp_objective
from pipeplan.solver.backends.milp.backend import solve_milp
from pipeplan.solver.judge import judge
from pipeplan.solver.layout_search import _Search
from pipeplan.solver.linear_dp import linear_plan
from pipeplan.solver.options import SolveOptions
from pipeplan.solver.outcome import Outcome, ProgressEvent
from pipeplan.solver.result import Limit, SolveResult, Status

Solve = Callable[[Problem, SolveOptions], Outcome]
MODULES = {
    "cpsat": (solve_cpsat, cpsat_constraints, cpsat_objective),
    "milp": (solve_milp, milp_constraints, milp_objective),
}
BOTH = pytest.mark.parametrize("backend", MODULES)
OPTIONS = SolveOptions(workers=1)


def network(count: int = 8, *, twins: bool = True) -> LayerGraph:
    """A chain with branches; the last layers hold the weights, as in classifiers."""
    layers = [
        Layer(f"n{i}", 1.0 + i % 3, 2.0, 40_000 // (i + 1), 90_000 if i > count - 3 else 500)
        for i in range(count)
    ]
    edges = [(i, i + 1) for i in range(count - 1)] + ([(1, 3), (2, 5)] if twins else [])
    return LayerGraph.build(layers, [(f"n{a}", f"n{b}") for a, b in edges])


def problem(**fields: object) -> Problem:
    cluster = Cluster.of([2, 2], [2e7, 5e6])
    return Problem(graph=network(), cluster=cluster, **fields)  # type: ignore[arg-type]


def answer(backend: str, asked: Problem, **fields: object) -> SolveResult:
    solve = MODULES[backend][0]
    return judge(asked, solve(asked, replace(OPTIONS, **fields)))  # type: ignore[arg-type]


def chain(*compute_ms: float, output_bytes: int = 1, parameter_bytes: int = 1) -> LayerGraph:
    layers = [
        Layer(f"n{i}", ms / 2, ms / 2, output_bytes, parameter_bytes)
        for i, ms in enumerate(compute_ms)
    ]
    return LayerGraph.build(layers, [(f"n{i}", f"n{i + 1}") for i in range(len(layers) - 1)])


HEAVY = chain(2.0, 2.0, 2.0, 2.0, output_bytes=10**6, parameter_bytes=10**6)
LIGHT = chain(3.0, 3.0, 2.0, parameter_bytes=10**7)


def nested(graph: LayerGraph, cluster: Cluster) -> Problem:
    return Problem(graph, cluster, scope="nested", cost_model="levelwise")


TIME_FAMILIES: dict[str, tuple[Problem, float]] = {
    # Without the family, another plan seems to be cheaper than the best one, whose ms are given.
    "joint devices": (
        # Replicas share the compute, and each has its all-reduce besides: 8 / 4 + 1.5.
        Problem(chain(8.0, parameter_bytes=4 * 10**6), Cluster.of([4], [1e9])),
        3.5,
    ),
    "joint device_ports": (Problem(HEAVY, Cluster.of([4], [1e6])), 8.0),
    "joint ports_inside": (Problem(HEAVY, Cluster.of([2, 2], [1e12, 1e6])), 4.0),
    "joint ports_above": (
        Problem(
            chain(8.0, parameter_bytes=10**6),
            Cluster.of([1, 2], [1e12, 1e6]),
            overlap_sync=True,
        ),
        8.0,
    ),
    "joint batch": (
        Problem(HEAVY, Cluster.of([4], [2e8]), schedule="gpipe", micro_batches=4),
        32.0,
    ),
    "nested devices": (nested(LIGHT, Cluster.of([2, 2], [1e9, 1e9])), 3.0),
    "nested transfers": (nested(HEAVY, Cluster.of([2, 2], [1e6, 1e6])), 8.0),
}


@BOTH
@pytest.mark.parametrize("name", TIME_FAMILIES)
def test_a_dropped_time_family_is_caught(
    backend: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, best_ms = TIME_FAMILIES[name]
    scope, family = name.split()
    module = MODULES[backend][2]
    owner = module.JointObjective if scope == "joint" else module.NestedObjective
    # Without the relaxation, whose bound would end the search before the model is asked.
    monkeypatch.setattr(_Search, "_relax", lambda self, layout, bounds: None)
    honest = answer(backend, asked)
    assert honest.objective_ms == pytest.approx(best_ms, rel=1e-3)
    monkeypatch.setattr(owner, family, lambda self, *rest: None)
    with pytest.raises(BackendBugError, match=r"claims .* ms for a plan that costs"):
        answer(backend, asked)


@BOTH
def test_a_scaled_objective_is_caught(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = MODULES[backend][2]
    right = module.JointObjective.devices

    def cheaper(self: object) -> None:
        reduced = self.reduced  # type: ignore[attr-defined]
        half = tuple(c / 2 for c in reduced.compute_ms)
        fake = replace(reduced)
        object.__setattr__(fake, "compute_ms", half)
        self.reduced = fake  # type: ignore[attr-defined]
        right(self)
        self.reduced = reduced  # type: ignore[attr-defined]

    monkeypatch.setattr(module.JointObjective, "devices", cheaper)
    monkeypatch.setattr(module.JointObjective, "windows", lambda self: None)
    with pytest.raises(BackendBugError, match="claims"):
        answer(backend, Problem(network(), Cluster.of([4], [1e7])))


@BOTH
@pytest.mark.parametrize("family", ["precedence", "memory", "max_stages", "forbidden_cuts"])
def test_a_dropped_constraint_is_caught(
    backend: str, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = Problem(network(twins=False), Cluster.of([4], [1e7]))
    best = answer(backend, free).require_plan()
    assert len(best.stages) > 1
    peak = max(x.peak_bytes for x in evaluate(free, best).memory)
    # Every honest cut costs a second here; with a reader before its producer none does.
    heavy = [Layer(f"n{i}", 1.0, 1.0, 10**6, 10**6) for i in range(4)]
    chain = LayerGraph.build(heavy, [(f"n{i}", f"n{i + 1}") for i in range(3)])
    asked = {
        "precedence": Problem(chain, Cluster.of([4], [1e6])),
        "memory": replace(free, cluster=replace(free.cluster, memory_bytes=peak * 3 // 4)),
        "max_stages": replace(free, constraints=Constraints(max_stages=len(best.stages) - 1)),
        "forbidden_cuts": replace(free, constraints=Constraints(forbidden_cuts=best.prefixes[:-1])),
    }[family]
    module = MODULES[backend][1]
    monkeypatch.setattr(module.Constraints, family, lambda self, *rest: None)
    # Without what bounds the search from outside, so that the model alone decides.
    monkeypatch.setattr(_Search, "_relax", lambda self, layout, bounds: None)
    with pytest.raises(BackendBugError):
        answer(backend, asked)


@BOTH
def test_a_model_that_refuses_a_known_plan_is_caught(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = MODULES[backend][1]
    monkeypatch.setattr(
        module.Constraints,
        "max_stages",
        lambda self: module.Constraints.pinned(self) or _impossible(backend, self),
    )
    with pytest.raises(BackendBugError, match=r"one is known|refuses a valid plan"):
        answer(backend, problem())


def _impossible(backend: str, constraints: object) -> None:
    x = constraints.x  # type: ignore[attr-defined]
    if backend == "cpsat":
        x.model.add_bool_or([])
    else:
        x.row([], -1.0)


@BOTH
def test_infeasible_names_the_memory_that_would_do(backend: str) -> None:
    tight = problem()
    tight = replace(tight, cluster=replace(tight.cluster, memory_bytes=1000))
    result = answer(backend, tight)
    assert result.status is Status.INFEASIBLE
    least = result.smallest_memory_bytes
    assert least is not None
    assert f"({least} bytes)" in result.explanation
    enough = replace(tight, cluster=replace(tight.cluster, memory_bytes=least))
    assert answer(backend, enough).status is Status.OPTIMAL
    short = replace(tight, cluster=replace(tight.cluster, memory_bytes=least - 1))
    assert answer(backend, short).status is Status.INFEASIBLE


@BOTH
def test_infeasible_names_the_demands_that_conflict_and_no_others(backend: str) -> None:
    graph = network()
    asked = Constraints(
        max_stages=3,
        pinned=((0, 1), (7, 2)),
        forbidden_cuts=(graph.down_closure([4]),),
        together=((0, 1),),
    )
    result = answer(backend, problem(constraints=asked))
    assert result.status is Status.INFEASIBLE
    assert "layer n0 in stage 1" in result.explanation
    assert "together" not in result.explanation
    assert "forbidden" not in result.explanation


@BOTH
def test_the_time_limit_returns_the_best_plan_so_far_with_its_bound(backend: str) -> None:
    layers = [Layer(f"n{i}", 1.0 + i * 0.37 % 1, 1.0, 10**6, 10**5) for i in range(60)]
    edges = [(f"n{i}", f"n{j}") for i in range(60) for j in (i + 3, i + 7) if j < 60]
    asked = Problem(LayerGraph.build(layers, edges), Cluster.of([4, 4], [1e9, 1e8]))
    begin = time.perf_counter()
    result = answer(backend, asked, time_limit_s=1.5)
    assert time.perf_counter() - begin < 60
    assert result.plan is not None
    assert result.bound_ms is not None
    assert result.objective_ms is not None
    if result.status is Status.FEASIBLE:
        assert result.limit is Limit.TIME
        assert result.bound_ms < result.objective_ms


@BOTH
def test_what_is_too_large_for_a_model_is_answered_along_a_line(backend: str) -> None:
    layers = [Layer(f"n{i}", 1.0, 1.0, 1000, 100) for i in range(2100)]
    edges = [(f"n{i}", f"n{i + 1}") for i in range(2099)]
    asked = Problem(LayerGraph.build(layers, edges), Cluster.of([4], [1e9]))
    result = answer(backend, asked, time_limit_s=20.0)
    assert result.plan is not None
    assert result.status is Status.OPTIMAL or result.limit in (Limit.SIZE, Limit.TIME)
    assert any("too large" in note for note in result.stats.notes)


@BOTH
def test_one_worker_gives_the_same_plan_twice(backend: str) -> None:
    first, second = (answer(backend, problem(), seed=7) for _ in range(2))
    assert first.plan == second.plan
    assert first.bound_ms == second.bound_ms


@BOTH
def test_a_hint_and_a_bound_are_used_and_not_believed(backend: str) -> None:
    asked = problem()
    solve = MODULES[backend][0]
    best = answer(backend, asked)
    hint = linear_plan(asked)
    assert best.objective_ms is not None
    helped = judge(
        asked,
        solve(asked, OPTIONS, hint=hint, lower_bound_ms=best.bound_ms or 0.0),  # type: ignore[call-arg]
    )
    assert helped.objective_ms == pytest.approx(best.objective_ms, rel=1e-5)
    broken = replace(hint, copies=3)  # type: ignore[type-var]
    assert judge(asked, solve(asked, OPTIONS, hint=broken)).status is Status.OPTIMAL  # type: ignore[call-arg]


def test_progress_reports_plans_and_bounds_in_order() -> None:
    seen: list[ProgressEvent] = []
    asked = Problem(network(12), Cluster.of([4], [1e6]))
    result = judge(asked, solve_cpsat(asked, OPTIONS, seen.append))
    assert seen
    best = [event.incumbent_ms for event in seen if event.incumbent_ms is not None]
    assert best == sorted(best, reverse=True)
    assert result.objective_ms == pytest.approx(best[-1], rel=1e-5)


@BOTH
def test_pipedream_on_branches_names_the_backend_that_can(backend: str) -> None:
    layers = [Layer(x, 1.0, 1.0, 10) for x in "abcd"]
    graph = LayerGraph.build(layers, [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
    asked = Problem(graph, Cluster.of([2], [1e9]), scope="nested", cost_model="pipedream")
    with pytest.raises(ProblemError, match=r"backend dp.*b and c can be cut in either order"):
        answer(backend, asked)


@pytest.mark.parametrize("name", ["highs", "gscip", "cpsat"])
def test_each_milp_solver_proves_the_same(name: str) -> None:
    result = answer("milp", problem(), milp_solver=name)
    assert result.status is Status.OPTIMAL
    assert result.objective_ms == pytest.approx(answer("cpsat", problem()).objective_ms, rel=1e-5)


def test_an_unknown_milp_solver_is_refused() -> None:
    with pytest.raises(ProblemError, match="no MILP solver 'cplex'; choose from highs"):
        SolveOptions(milp_solver="cplex")  # type: ignore[arg-type]
