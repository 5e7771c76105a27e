"""Cost model `topology`: what the hardware does for any plan (DESIGN 4.1)."""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from pipeplan.core.cluster import Cluster
from pipeplan.core.cuts import crossing_bytes
from pipeplan.core.plan import Plan
from pipeplan.core.problem import Problem

__all__ = [
    "PortLoad",
    "StageTimes",
    "TopologyCost",
    "evaluate_topology",
    "full_sync_ms",
    "path_level",
    "path_ms",
    "shares",
    "sync_widths",
]


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Times of one stage, per micro-batch of the whole pipeline, in ms."""

    compute_ms: float
    """Busy time of each of its devices with compute: forward plus backward over the replicas."""
    sync_ms: float
    """All-reduce time of its weights on a device, divided by the replicas; 0 under synchronous
    schedules."""
    transfer_ms: float
    """The most that its own activations and gradients occupy any one port, in one direction
    (half duplex: both)."""
    full_sync_ms: float
    """One whole all-reduce of its weights."""


@dataclass(frozen=True, slots=True)
class PortLoad:
    """Busy time of a port per micro-batch and direction (half duplex: both), in ms, by cause."""

    level: int
    child: int
    sync_ms: float
    transfer_ms: float

    @property
    def busy_ms(self) -> float:
        """Both causes together."""
        return self.sync_ms + self.transfer_ms


@dataclass(frozen=True, slots=True)
class TopologyCost:
    """Period and where it comes from, in ms; `batch_ms` under synchronous schedules alone."""

    period_ms: float
    batch_ms: float | None
    stages: tuple[StageTimes, ...]
    ports: tuple[PortLoad, ...]
    """Every port that carries anything, by level and child; device ports as level 1."""
    bottleneck_stage: int | None
    """The stage whose devices are busiest, where a device is the bottleneck."""
    bottleneck_port: tuple[int, int] | None
    """(level, child) of the busiest port, where a port is the bottleneck."""
    cut_bytes: tuple[int, ...]
    """What crosses after each stage but the last, one way, before compression."""


def sync_widths(cluster: Cluster, ranks: Iterable[int]) -> tuple[int, ...]:
    """q_l for each level l: the most children of one level-l group that hold some of the ranks."""
    held = sorted(ranks)
    out: list[int] = []
    for level in range(1, len(cluster.levels) + 1):
        children = {rank // cluster.group_sizes[level - 1] for rank in held}
        groups: dict[int, int] = defaultdict(int)
        for child in children:
            groups[child // cluster.levels[level - 1].children] += 1
        out.append(max(groups.values()))
    return tuple(out)


def _ring_ms(cluster: Cluster, level: int, width: int, parameter_bytes: int) -> float:
    """Time of one port of a level in the hierarchical ring over `width` children.

    2(q-1)/q of the bytes per direction, twice that at half duplex (Patarasuk and Yuan, 2009).
    """
    factor = 2 * (width - 1) / width * (2 if cluster.duplex == "half" else 1)
    return factor * parameter_bytes / cluster.levels[level - 1].bandwidth_bytes_per_s * 1e3


def full_sync_ms(cluster: Cluster, widths: tuple[int, ...], parameter_bytes: int) -> float:
    """One all-reduce: every level's ring in turn, with 2(q-1) steps of latency each."""
    return math.fsum(
        _ring_ms(cluster, level, q, parameter_bytes)
        + 2 * (q - 1) * cluster.levels[level - 1].latency_ms
        for level, q in enumerate(widths, 1)
    )


def shares(cluster: Cluster, level: int, ranks: tuple[int, ...]) -> dict[int, Fraction]:
    """Share of a stage's replicas in each child of a level, exactly."""
    counts: dict[int, int] = defaultdict(int)
    for rank in ranks:
        counts[rank // cluster.group_sizes[level - 1]] += 1
    return {child: Fraction(count, len(ranks)) for child, count in counts.items()}


def path_level(cluster: Cluster, source: tuple[int, ...], target: tuple[int, ...]) -> int:
    """The outermost level whose ports some of the traffic between two stages crosses."""
    for level in range(len(cluster.levels), 1, -1):
        if shares(cluster, level, source) != shares(cluster, level, target):
            return level
    return 1


def path_ms(problem: Problem, level: int, cut_bytes: int) -> float:
    """One micro-batch's activation and gradient over a cut, through the ports of levels 1..level.

    The slowest port on the way sets the pace; every level adds its latency, once a direction.
    """
    inner = problem.cluster.levels[:level]
    slowest = min(x.bandwidth_bytes_per_s for x in inner)
    return 2 * (
        cut_bytes / problem.compression / slowest * 1e3 + math.fsum(x.latency_ms for x in inner)
    )


def evaluate_topology(problem: Problem, plan: Plan) -> TopologyCost:
    """Price any plan; see DESIGN 4.1 for each term. Sums are exactly rounded, so that no order of
    layers, stages or ports shows in the result."""
    graph, cluster = problem.graph, problem.cluster
    levels = range(1, len(cluster.levels) + 1)
    half = 2 if cluster.duplex == "half" else 1
    sync: dict[tuple[int, int], list[float]] = defaultdict(list)
    moved: dict[tuple[int, int], list[float]] = defaultdict(list)
    largest = [0.0] * len(plan.stages)
    computes, syncs, full_syncs = [], [], []
    for stage in plan.stages:
        r = stage.replicas
        weights = graph.parameter_bytes(stage.layers)
        widths = sync_widths(cluster, stage.ranks)
        whole = full_sync_ms(cluster, widths, weights)
        computes.append(graph.compute_ms(stage.layers) / r)
        syncs.append(0.0 if problem.synchronous else whole / r)
        full_syncs.append(whole)
        if problem.synchronous or not weights:
            continue
        for level, q in zip(levels, widths, strict=True):
            if q > 1:
                busy = _ring_ms(cluster, level, q, weights) / r
                for child in shares(cluster, level, stage.ranks):
                    sync[level, child].append(busy)
    cuts = crossing_bytes(graph, [stage.layers for stage in plan.stages])
    for s, cut in enumerate(cuts):
        ranks, following = plan.stages[s].ranks, plan.stages[s + 1].ranks
        for level in levels:
            rate = cluster.levels[level - 1].bandwidth_bytes_per_s * problem.compression
            here = shares(cluster, level, ranks)
            there = shares(cluster, level, following)
            for child in here.keys() | there.keys():
                # Activations leave and gradients enter, or the other way round: the same bytes in
                # each direction, namely the part that is not paired inside the child.
                unpaired = abs(here.get(child, Fraction(0)) - there.get(child, Fraction(0)))
                if unpaired and cut:
                    busy = half * float(unpaired) * cut / rate * 1e3
                    moved[level, child].append(busy)
                    for t, own in ((s, here), (s + 1, there)):
                        if child in own:
                            largest[t] = max(largest[t], busy)
    ports = tuple(
        PortLoad(level, child, math.fsum(sync[level, child]), math.fsum(moved[level, child]))
        for level, child in sorted(sync.keys() | moved.keys())
    )
    stages = tuple(
        StageTimes(*times) for times in zip(computes, syncs, largest, full_syncs, strict=True)
    )
    devices = [x.compute_ms + (0.0 if problem.overlap_sync else x.sync_ms) for x in stages]
    slowest = max(range(len(stages)), key=lambda s: (devices[s], -s))
    busiest = max(ports, key=lambda p: (p.busy_ms, p.level, -p.child), default=None)
    by_port = busiest is not None and busiest.busy_ms > devices[slowest]
    period = busiest.busy_ms if busiest is not None and by_port else devices[slowest]
    return TopologyCost(
        period_ms=period,
        batch_ms=_batch_ms(problem, plan, period, cuts, full_syncs)
        if problem.synchronous
        else None,
        stages=stages,
        ports=ports,
        bottleneck_stage=None if by_port else slowest,
        bottleneck_port=(busiest.level, busiest.child) if busiest is not None and by_port else None,
        cut_bytes=cuts,
    )


def _batch_ms(
    problem: Problem,
    plan: Plan,
    period_ms: float,
    cuts: tuple[int, ...],
    full_syncs: list[float],
) -> float:
    """Batch time of a synchronous schedule (DESIGN 4.3): the first micro-batch passes every stage
    and cut, each further one costs a period, and the longest all-reduce ends the batch."""
    assert problem.micro_batches is not None
    cluster = problem.cluster
    paths = [
        path_ms(problem, path_level(cluster, a.ranks, b.ranks), cut)
        for a, b, cut in zip(plan.stages, plan.stages[1:], cuts, strict=False)
    ]
    return math.fsum(
        [
            problem.graph.total_compute_ms,
            *paths,
            (problem.micro_batches - 1) * period_ms,
            max(full_syncs),
        ]
    )
