"""`simulate`: a plan as discrete events over its ranks, routing and schedule."""

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeplan.core.errors import PipeplanError
from pipeplan.core.plan import Plan
from pipeplan.core.problem import Problem
from pipeplan.core.routing import micro_batch_paths, routes, routing_cycle
from pipeplan.core.units import plural
from pipeplan.validation.simulation.engine import BACKWARD, FORWARD, SYNC, Run, execute
from pipeplan.validation.simulation.memory import memory_peaks
from pipeplan.validation.simulation.options import SimulationOptions
from pipeplan.validation.simulation.pipeline import Pipeline
from pipeplan.validation.simulation.result import PortShare, Simulation, StageShare
from pipeplan.validation.simulation.steady import steady

__all__ = ["enough_in_flight", "floor_ms", "simulate"]

_AUTOMATIC_PASSES: Final = 24_000
"""Micro-batches times stages that a run of automatic length may have: seconds, not minutes."""
MAX_PASSES: Final = 5_000_000
"""The same for a run of a given length: bounded memory."""


def simulate(problem: Problem, plan: Plan, options: SimulationOptions | None = None) -> Simulation:
    """Simulate a plan: its steady state, and for a synchronous schedule one whole batch.

    Raises PipeplanError for stragglers that are no ranks of the plan, and where the run would be
    larger than memory allows.
    """
    chosen = options or SimulationOptions()
    for rank, _ in chosen.stragglers:
        if rank not in plan.stage_of_rank:
            raise PipeplanError(f"rank {rank} holds no stage, so it cannot be a straggler")
    pipeline = Pipeline(problem, plan)
    run, found = _steady_run(pipeline, chosen)
    shown, batch = run, None
    window = (0.0, run.end_ms) if found is None else found.window_ms
    if problem.synchronous:
        assert problem.micro_batches is not None
        _check_size(problem.micro_batches, plan)
        batch = execute(
            pipeline,
            micro_batch_paths(problem.cluster, plan, problem.micro_batches),
            tuple(k + chosen.extra_in_flight for k in pipeline.limits),
            chosen,
            gpipe=problem.schedule == "gpipe",
            sync="end",
            record_ports=True,
        )
        # Peaks and shares of a synchronous schedule are those of the batch that will be run.
        shown, window = batch, (0.0, batch.end_ms)
    return Simulation(
        pipeline=pipeline,
        options=chosen,
        predicted_ms=pipeline.price.period_ms,
        floor_ms=floor_ms(pipeline),
        period_ms=None if found is None else found.period_ms,
        exact=found is not None and found.exact,
        micro_batches=run.micro_batches,
        run=shown,
        window_ms=window,
        stages=_stage_shares(pipeline, shown, window),
        ports=_port_shares(pipeline, shown, window),
        predicted_batch_ms=pipeline.price.batch_ms,
        batch_ms=None if batch is None else batch.end_ms,
    )


def enough_in_flight(
    problem: Problem, plan: Plan, options: SimulationOptions, *, within: float = 0.01
) -> Simulation | None:
    """The first of 1, 2, 4, ... 64 more micro-batches in flight that meets the floor `within` it.

    None where none does, or where twice the room twice in a row gains nothing: then it is
    contention, not room, that slows the pipeline.
    """
    periods: list[float] = []
    for extra in (1, 2, 4, 8, 16, 32, 64):
        tried = simulate(
            problem, plan, replace(options, extra_in_flight=options.extra_in_flight + extra)
        )
        if tried.period_ms is None:
            return None
        if tried.period_ms <= tried.floor_ms * (1 + within):
            return tried
        periods.append(tried.period_ms)
        if len(periods) > 2 and periods[-1] > periods[-3] * (1 - within / 10):
            return None
    return None


def floor_ms(pipeline: Pipeline) -> float:
    """The least period that the schedule allows: what the busiest device or port needs.

    Under gpipe no backward pass overlaps a forward pass of the same rank, so that the busiest of
    each phase count: max over resources of forward work plus max of backward work.
    """
    problem, plan = pipeline.problem, pipeline.plan
    if problem.schedule != "gpipe":
        return pipeline.price.period_ms
    loads: list[dict[tuple[str, int], list[float]]] = []
    for backward in (False, True):
        load: dict[tuple[str, int], list[float]] = defaultdict(list)
        times = pipeline.backward_ms if backward else pipeline.forward_ms
        for s, stage in enumerate(plan.stages):
            load["device", s].append(times[s] / stage.replicas)
        for s, (a, b) in enumerate(zip(plan.stages, plan.stages[1:], strict=False)):
            for route in routes(problem.cluster, a.ranks, b.ranks):
                ends = (route.target, route.source) if backward else (route.source, route.target)
                for port, busy in pipeline.link(*ends, pipeline.moved_bytes[s]).hops:
                    load["port", port].append(busy * float(route.share))
        loads.append(load)
    return sum(max(math.fsum(x) for x in load.values()) for load in loads)


@dataclass(frozen=True, slots=True)
class _Found:
    period_ms: float
    exact: bool
    window_ms: tuple[float, float]


def _check_size(micro_batches: int, plan: Plan) -> None:
    if micro_batches * len(plan.stages) > MAX_PASSES:
        raise PipeplanError(
            f"{plural(micro_batches, 'micro-batch')} through "
            f"{plural(len(plan.stages), 'stage')} are more than the "
            f"{MAX_PASSES} passes that are simulated"
        )


def _steady_run(pipeline: Pipeline, options: SimulationOptions) -> tuple[Run, _Found | None]:
    """Run long enough that completions repeat themselves, or as long as was asked for."""
    problem, plan = pipeline.problem, pipeline.plan
    cycle = routing_cycle(problem.cluster, plan)
    limits = tuple(k + options.extra_in_flight for k in pipeline.endless_limits)
    most = max(8, _AUTOMATIC_PASSES // len(plan.stages))
    unit = cycle if cycle <= most else 1
    wanted = max(32, 3 * limits[0] * plan.stages[0].replicas + 4 * unit)
    count = options.micro_batches or min(most // unit, -(-wanted // unit)) * unit

    def run(count: int) -> Run:
        _check_size(count, plan)
        return execute(
            pipeline,
            micro_batch_paths(problem.cluster, plan, count),
            limits,
            options,
            gpipe=problem.schedule == "gpipe",
            sync="never" if problem.synchronous else "round",
            record_ports=not problem.synchronous,
        )

    current, previous = run(count), None
    if problem.schedule == "gpipe" and count > 1:
        previous = run(count // 2)
    slope = math.inf
    while True:
        if previous is not None:
            # Phases have no steady part inside: what counts is how much longer a longer one takes.
            more = current.micro_batches - previous.micro_batches
            last, slope = slope, (current.end_ms - previous.end_ms) / more
            found: _Found | None = _Found(
                slope, math.isclose(slope, last, rel_tol=1e-6), (0.0, current.end_ms)
            )
            previous = current
        else:
            found = _measure(pipeline, current, cycle)
        settled = (found is not None and found.exact) or options.jitter > 0
        if settled or options.micro_batches is not None or 2 * count > most:
            return current, found
        count *= 2
        current = run(count)


def _measure(pipeline: Pipeline, run: Run, cycle: int) -> _Found | None:
    """Completions at the first stage, as long as it is still being fed."""
    log = run.operations
    kind = np.asarray(log.kind)
    first = np.isin(np.asarray(log.rank), pipeline.plan.stages[0].ranks)
    fed_until = float(np.asarray(log.start_ms)[first & (kind == FORWARD)].max())
    back = np.sort(np.asarray(log.end_ms)[first & (kind == BACKWARD)])
    back = back[back <= fed_until]
    synced: dict[int, list[float]] = {s: [] for s, x in enumerate(pipeline.sync_steps) if x}
    for rank, time_ms in run.updates:
        stage = pipeline.plan.stage_of_rank[rank]
        if stage in synced and time_ms <= fed_until:
            synced[stage].append(time_ms)
    all_reduced = [] if pipeline.problem.synchronous else [np.array(x) for x in synced.values()]
    one = steady(back, cycle, all_reduced)
    if one is None:
        return None
    return _Found(one.period_ms, one.exact, (float(back[one.first]), float(back[one.last])))


def _clipped(
    start: NDArray[np.float64], end: NDArray[np.float64], window: tuple[float, float]
) -> NDArray[np.float64]:
    length: NDArray[np.float64] = np.minimum(end, window[1]) - np.maximum(start, window[0])
    return np.maximum(length, 0.0)


def _stage_shares(
    pipeline: Pipeline, run: Run, window: tuple[float, float]
) -> tuple[StageShare, ...]:
    log = run.operations
    plan = pipeline.plan
    count = len(plan.stages)
    stage_of = np.zeros(max(plan.stage_of_rank) + 1, dtype=np.int64)
    for rank, s in plan.stage_of_rank.items():
        stage_of[rank] = s
    busy = _clipped(np.asarray(log.start_ms), np.asarray(log.end_ms), window)
    where = stage_of[np.asarray(log.rank)] * 3 + np.asarray(log.kind)
    spent = np.bincount(where, weights=busy, minlength=3 * count).reshape(count, 3)
    span = window[1] - window[0]
    peaks = memory_peaks(pipeline, run)
    out: list[StageShare] = []
    for s, stage in enumerate(plan.stages):
        shares = (spent[s] / (span * stage.replicas) if span else spent[s] * 0).tolist()
        own = [peaks[r] for r in stage.ranks if r in peaks]  # a rank may be dealt nothing
        top = max(own, key=lambda x: (x.total_bytes, -x.rank), default=None)
        out.append(
            StageShare(
                forward=shares[FORWARD],
                backward=shares[BACKWARD],
                sync=shares[SYNC],
                bubble=max(0.0, 1.0 - math.fsum(shares)),
                peak_in_flight=max((x.in_flight for x in own), default=0),
                peak_versions=max((x.versions for x in own), default=0),
                peak_bytes=0 if top is None else top.total_bytes,
                peak_waiting=run.waiting_peak[s],
                peak_rank=stage.ranks[0] if top is None else top.rank,
            )
        )
    return tuple(out)


def _port_shares(
    pipeline: Pipeline, run: Run, window: tuple[float, float]
) -> tuple[PortShare, ...]:
    log = run.ports
    span = window[1] - window[0]
    if not log.port or not span:
        return ()
    busy = _clipped(np.asarray(log.start_ms), np.asarray(log.end_ms), window) / span
    port, is_sync = np.asarray(log.port), np.asarray(log.tag) < 0
    count = len(pipeline.ports)
    moved = np.bincount(port[~is_sync], weights=busy[~is_sync], minlength=count)
    synced = np.bincount(port[is_sync], weights=busy[is_sync], minlength=count)
    return tuple(
        PortShare(x, float(moved[i]), float(synced[i]))
        for i, x in enumerate(pipeline.ports)
        if moved[i] or synced[i]
    )
