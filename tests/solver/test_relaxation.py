"""What the relaxation claims of cuts and plans, against all cuts and the best plans."""

from dataclasses import replace

import pytest

from pipeplan.core.cluster import Cluster
from pipeplan.core.memory import stage_memory
from pipeplan.core.problem import Problem, Scope
from pipeplan.core.schedule import Schedule
from pipeplan.models.synthetic import random_dag, transformer
from pipeplan.solver.api import solve
from pipeplan.solver.arcs import Layout
from pipeplan.solver.cell_cuts import CellCuts
from pipeplan.solver.cells import Crossing, cell_sums, cells_of
from pipeplan.solver.clock import unhurried
from pipeplan.solver.ideals import enumerate_ideals
from pipeplan.solver.layout_search import layouts_of
from pipeplan.solver.neighbours import Neighbours
from pipeplan.solver.reduce import reduce_graph
from pipeplan.solver.relaxation import Relaxation, relax_joint
from pipeplan.solver.relaxation_nested import relax_levelwise
from pipeplan.solver.result import SolveResult

SHAPES = ((4,), (3, 2), (4, 2), (2, 2, 2))
RATES = (3e8, 2e7, 5e6)


def problem(
    seed: int,
    shape: tuple[int, ...] = (4,),
    *,
    scope: Scope = "joint",
    schedule: Schedule = "pipedream",
    recompute: bool = False,
) -> Problem:
    graph = random_dag(5 + seed % 8, seed=seed, sources=1 + seed % 3)
    return Problem(
        graph,
        Cluster.of(shape, RATES[: len(shape)]),
        scope=scope,
        cost_model="topology" if scope == "joint" else "levelwise",
        schedule=schedule,
        micro_batches=None if schedule == "pipedream" else 5,
        recompute=recompute,
    )


@pytest.mark.parametrize("most", [4, 2000])
@pytest.mark.parametrize("seed", range(12))
def test_no_cut_crosses_less_than_its_cell_says(seed: int, most: int) -> None:
    reduced = reduce_graph(problem(seed))
    crossing = Crossing(reduced, most)
    cells = cells_of(reduced, 2000, finest=sum(reduced.compute_ms) / 50)
    least = crossing.of(cells)
    table = enumerate_ideals(reduced)
    for compute, crosses in zip(table.compute_ms, table.cut_bytes, strict=True):
        inside = (cells.least - 1e-9 <= compute) & (compute <= cells.most + 1e-9)
        assert inside.any()
        assert (least[inside] <= crosses).any()
        interior = inside[1:-1]
        if interior.any():
            assert least[1:-1][interior].min() <= crosses


@pytest.mark.parametrize("seed", range(12))
def test_more_minimum_cuts_bound_what_crosses_an_interval_better(seed: int) -> None:
    reduced = reduce_graph(problem(seed))
    table = enumerate_ideals(reduced)
    total = float(table.compute_ms[-1])
    exact = 0
    for low in range(1, 20):
        least, most = total * low / 20, total * (low + 1) / 20
        crosses = table.cut_bytes[(table.compute_ms >= least) & (table.compute_ms <= most)]
        bounds = [
            CellCuts(reduced, nodes, unhurried).least(least, most, 0, 0)[0] for nodes in (1, 5, 500)
        ]
        assert bounds == sorted(bounds)
        if len(crosses):
            assert bounds[-1] <= crosses.min()
            # The empty cut and the whole graph cross nothing, so one cut alone says nothing here.
            assert bounds[0] == 0
            exact += bounds[-1] == crosses.min() > 0
    assert exact


@pytest.mark.parametrize("seed", range(12))
def test_every_bound_on_what_crosses_is_attained_by_a_listed_ideal(seed: int) -> None:
    reduced = reduce_graph(problem(seed))
    crossing = Crossing(reduced, 2000)
    table = enumerate_ideals(reduced)
    crosses = {table.mask(i): int(table.cut_bytes[i]) for i in range(len(table))}
    assert set(crossing.ideals) <= set(crosses)
    attained = {0, *(crosses[mask] for mask in crossing.ideals)}
    bounds = {int(x) for x in crossing.of(cells_of(reduced, 2000))}
    assert bounds <= attained
    if seed % 3 == 0:
        # With one source every cut of a cell behind it crosses something.
        assert max(bounds) > 0


def relaxed(asked: Problem, objective_ms: float) -> dict[Layout, Relaxation]:
    """Of every layout, for plans within an objective."""
    reduced = reduce_graph(asked)
    crossing, sums = Crossing(reduced, 2000), cell_sums(reduced, 260)
    if asked.scope == "nested":
        return {x: relax_levelwise(asked, sums, x, objective_ms) for x in layouts_of(asked)}
    upper = objective_ms
    if asked.micro_batches is not None:
        upper = (objective_ms - asked.graph.total_compute_ms) / (asked.micro_batches - 1)
    return {x: relax_joint(asked, reduced, crossing, x, upper) for x in layouts_of(asked)}


def holds(asked: Problem, best: SolveResult, found: dict[Layout, Relaxation]) -> None:
    """The bound is none above the optimum, and the best plan's arcs and cuts stay."""
    assert best.objective_ms is not None
    assert best.plan is not None
    bound = min(x.bound_ms for x in found.values())
    if asked.scope == "joint" and asked.micro_batches is not None:
        bound = asked.graph.total_compute_ms + (asked.micro_batches - 1) * bound
    assert bound <= best.objective_ms * (1 + 1e-9)
    layout = next(x for x in found if x.copies == best.plan.copies or asked.scope == "nested")
    arcs = layout.arcs_of_plan(best.plan)
    assert arcs is not None
    assert set(arcs) <= found[layout].arcs
    for a, number in arcs.items():
        if a.span.level == 1:
            least, most = found[layout].before_ms[a.start]
            placed = sum(asked.graph.compute_ms(x.layers) for x in best.plan.stages[:number])
            assert least * (1 - 1e-6) - 1e-6 <= placed <= most * (1 + 1e-6) + 1e-6


@pytest.mark.parametrize("factor", [1.0, 1.5])
@pytest.mark.parametrize("scope", ["joint", "nested"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_bound_and_arcs_hold_for_the_best_plan(
    seed: int, shape: tuple[int, ...], scope: Scope, factor: float
) -> None:
    asked = problem(seed, shape, scope=scope)
    best = solve(asked, "dp")
    assert best.objective_ms is not None
    holds(asked, best, relaxed(asked, best.objective_ms * factor))


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("schedule", ["pipedream", "1f1b", "gpipe"])
@pytest.mark.parametrize("scope", ["joint", "nested"])
def test_they_hold_where_memory_binds(scope: Scope, schedule: Schedule, recompute: bool) -> None:
    ruled_out = 0
    # Nested plans are sooner judged.
    for seed, shape in enumerate(SHAPES * (1 if scope == "joint" else 4)):
        free = problem(seed, shape, scope=scope, schedule=schedule, recompute=recompute)
        roomy = solve(free, "dp").plan
        assert roomy is not None
        needed = max(x.peak_bytes for x in stage_memory(free, roomy))
        for share in (1.0, 0.7):
            cluster = replace(free.cluster, memory_bytes=int(needed * share))
            asked = replace(free, cluster=cluster)
            best = solve(asked, "dp")
            if best.objective_ms is None:
                continue
            found, without = (relaxed(x, best.objective_ms) for x in (asked, free))
            holds(asked, best, found)
            ruled_out += sum(len(without[x].arcs - found[x].arcs) for x in found)
    assert ruled_out


def test_a_chain_is_bounded_by_its_optimum_where_no_port_is_shared() -> None:
    graph = transformer(3)
    asked = Problem(graph, Cluster.of((4,), (3e8,)))
    best = solve(asked, "dp")
    assert best.objective_ms is not None
    reduced = reduce_graph(asked)
    crossing = Crossing(reduced, 2000)
    bound = min(
        relax_joint(asked, reduced, crossing, x, best.objective_ms).bound_ms
        for x in layouts_of(asked)
    )
    assert bound == pytest.approx(best.objective_ms, rel=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_neighbours_are_the_ideals_within_reach(seed: int) -> None:
    reduced = reduce_graph(problem(seed))
    table = enumerate_ideals(reduced)
    masks = {table.mask(i): float(table.compute_ms[i]) for i in range(len(table))}
    centre = sorted(masks)[len(masks) // 2]
    neighbours = Neighbours(reduced)
    everything = neighbours.near(centre, 10**6, float("inf"))
    assert len(everything) == len(set(everything))
    # The lattice of ideals is connected by single blocks.
    assert set(everything) == set(masks)
    reach = max(masks.values()) / 4
    some = neighbours.near(centre, 10**6, reach)
    assert set(some) <= {m for m, ms in masks.items() if abs(ms - masks[centre]) <= reach + 1e-9}
    assert neighbours.near(centre, 3, float("inf")) == everything[:3]
    assert everything[0] == centre
