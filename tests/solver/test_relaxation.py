"""What the relaxation claims of cuts and plans, against all cuts and the best plans."""

import pytest

from pipeplan.core.cluster import Cluster
from pipeplan.core.problem import Problem
from pipeplan.models.synthetic import random_dag, transformer
from pipeplan.solver.api import solve
from pipeplan.solver.cells import Crossing, cells_of
from pipeplan.solver.ideals import enumerate_ideals
from pipeplan.solver.layout_search import layouts_of
from pipeplan.solver.neighbours import Neighbours
from pipeplan.solver.reduce import reduce_graph
from pipeplan.solver.relaxation import relax_joint

SHAPES = ((4,), (3, 2), (4, 2), (2, 2, 2))
RATES = (3e8, 2e7, 5e6)


def problem(seed: int, shape: tuple[int, ...] = (4,)) -> Problem:
    graph = random_dag(5 + seed % 8, seed=seed, sources=1 + seed % 3)
    return Problem(graph, Cluster.of(shape, RATES[: len(shape)]))


@pytest.mark.parametrize("most", [4, 2000])
@pytest.mark.parametrize("seed", range(12))
def test_no_cut_crosses_less_than_its_cell_says(seed: int, most: int) -> None:
    reduced = reduce_graph(problem(seed))
    crossing = Crossing(reduced, most)
    cells = cells_of(reduced, 2000, finest_ms=sum(reduced.compute_ms) / 50)
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


@pytest.mark.parametrize("factor", [1.0, 1.5])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_bound_and_arcs_hold_for_the_best_plan(
    seed: int, shape: tuple[int, ...], factor: float
) -> None:
    asked = problem(seed, shape)
    best = solve(asked, "dp")
    assert best.objective_ms is not None
    assert best.plan is not None
    reduced = reduce_graph(asked)
    crossing = Crossing(reduced, 2000)
    bounds = []
    for layout in layouts_of(asked):
        said = relax_joint(asked, reduced, crossing, layout, best.objective_ms * factor)
        bounds.append(said.bound_ms)
        if layout.copies != best.plan.copies:
            continue
        kept = {(a.start, a.machines) for a in said.arcs}
        position = 0
        placed = 0.0
        for stage in best.plan.stages:
            width = stage.replicas // layout.copies
            assert (position, width) in kept
            least, most = said.before_ms[position]
            assert least * (1 - 1e-6) - 1e-6 <= placed <= most * (1 + 1e-6) + 1e-6
            placed += asked.graph.compute_ms(stage.layers)
            position += width
    assert min(bounds) <= best.objective_ms * (1 + 1e-9)


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
