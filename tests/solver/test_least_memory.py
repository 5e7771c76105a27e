"""The least memory that plans take: bounds below it, plans above it, and what the dp says of it."""

from dataclasses import replace

import numpy as np
import pytest

from pipeplan.core.check import violations
from pipeplan.core.cluster import Cluster
from pipeplan.core.memory import stage_memory
from pipeplan.core.problem import Problem, Scope
from pipeplan.core.schedule import Schedule
from pipeplan.models.synthetic import random_dag, transformer
from pipeplan.solver.api import solve
from pipeplan.solver.cells import cell_peaks, cells_of
from pipeplan.solver.ideals import enumerate_ideals
from pipeplan.solver.layout_search import layouts_of
from pipeplan.solver.least_memory import least_peak_bytes, plans_below, roomiest_plans
from pipeplan.solver.reduce import reduce_graph

SHAPES = ((4,), (3, 2), (2, 2, 2))


def problem(
    seed: int, shape: tuple[int, ...], scope: Scope, schedule: Schedule, recompute: bool
) -> Problem:
    graph = random_dag(5 + seed % 8, seed=seed, sources=1 + seed % 3)
    return Problem(
        graph,
        Cluster.of(shape, (3e8, 2e7, 5e6)[: len(shape)]),
        scope=scope,
        cost_model="topology" if scope == "joint" else "levelwise",
        schedule=schedule,
        micro_batches=None if schedule == "pipedream" else 5,
        recompute=recompute,
    )


def floor_of(asked: Problem) -> float:
    """The bound over all block sizes."""
    reduced = reduce_graph(asked)
    return min(least_peak_bytes(asked, reduced, layout) for layout in layouts_of(asked))


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("schedule", ["pipedream", "1f1b", "gpipe"])
@pytest.mark.parametrize("scope", ["joint", "nested"])
def test_the_smallest_memory_lies_between(
    scope: Scope, schedule: Schedule, recompute: bool
) -> None:
    for seed, shape in enumerate(SHAPES * 4):
        asked = problem(seed, shape, scope, schedule, recompute)
        tight = replace(asked, cluster=replace(asked.cluster, memory_bytes=1))
        smallest = solve(tight, "dp").smallest_memory_bytes
        assert smallest is not None
        floor = floor_of(asked)
        assert 0 < floor <= smallest
        found = []
        for plan in roomiest_plans(asked, reduce_graph(asked)):
            assert not violations(asked, plan)
            found.append(max(x.peak_bytes for x in stage_memory(asked, plan)))
        assert min(found) >= smallest


@pytest.mark.parametrize("scope", ["joint", "nested"])
def test_on_a_chain_bound_and_plan_meet(scope: Scope) -> None:
    asked = Problem(
        transformer(6),
        Cluster.of((2, 2), (3e8, 2e7)),
        scope=scope,
        cost_model="topology" if scope == "joint" else "levelwise",
    )
    plans = roomiest_plans(asked, reduce_graph(asked))
    peaks = [max(x.peak_bytes for x in stage_memory(asked, plan)) for plan in plans]
    assert floor_of(asked) == min(peaks)


@pytest.mark.parametrize("schedule", ["pipedream", "1f1b"])
@pytest.mark.parametrize("most", [3, 400])
@pytest.mark.parametrize("seed", range(6))
def test_no_stage_peaks_below_its_cells(seed: int, most: int, schedule: Schedule) -> None:
    asked = problem(seed, (4,), "joint", schedule, recompute=False)
    reduced = reduce_graph(asked)
    each = np.array(reduced.kept_bytes, dtype=np.float64)
    if schedule == "pipedream":
        each += np.array(reduced.parameter_bytes)
    cells = cells_of(reduced, most, values=each)
    table = enumerate_ideals(reduced)
    measure = table.kept_bytes + (table.parameter_bytes if schedule == "pipedream" else 0)
    inside = [np.flatnonzero((cells.least <= x) & (x <= cells.most)) for x in measure.tolist()]
    assert all(len(rows) for rows in inside)
    held = 3
    least = cell_peaks(reduced, most)[1](held)
    sets = asked.weight_copies + (held - 1 if schedule == "pipedream" else 0)
    for i in range(len(table)):
        for j in range(len(table)):
            if i != j and table.mask(i) & ~table.mask(j) == 0:
                weights = int(table.parameter_bytes[j] - table.parameter_bytes[i])
                kept = int(table.kept_bytes[j] - table.kept_bytes[i])
                assert least[np.ix_(inside[i], inside[j])].min() <= sets * weights + held * kept


@pytest.mark.parametrize("seed", range(8))
def test_what_is_ruled_out_below_a_memory_is_in_no_plan_of_the_smallest(seed: int) -> None:
    shape = SHAPES[seed % len(SHAPES)]
    asked = problem(seed, shape, "joint", "pipedream", recompute=False)
    tight = replace(asked, cluster=replace(asked.cluster, memory_bytes=1))
    smallest = solve(tight, "dp").smallest_memory_bytes
    assert smallest is not None
    fitting = replace(asked, cluster=replace(asked.cluster, memory_bytes=smallest))
    plan = solve(fitting, "dp").plan
    assert plan is not None
    reduced = reduce_graph(asked)
    layout = next(x for x in layouts_of(asked) if x.copies == plan.copies)
    arcs = layout.arcs_of_plan(plan)
    assert arcs is not None
    seen = plans_below(asked, reduced, layout, smallest + 1)
    assert set(arcs) <= seen.arcs
    at = {stage: a.start for a, stage in arcs.items()}
    for block, first in enumerate(seen.placed):
        assert at[plan.stage_of_layer[reduced.members[block][0]]] <= first
    # No plan does with nothing, and the bound alone says so.
    assert not plans_below(asked, reduced, layout, 1).arcs
