"""Is there a joint plan with period at most T? A label-setting search over (ideal, ranks used).

A state is (layers placed, ranks of the block used, ranks of the last stage where it straddles a
port's border). What else decides the future is the load that ports still open have collected, so a
label holds those loads and only Pareto-minimal labels are kept. At a given T every other rule is a
plain inequality per transition, which prunes far more than a search for the least period would:
a prefix is dead once the work left exceeds what the ranks left can do in T.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeplan.core.plan import Plan, joint_plan
from pipeplan.core.problem import Problem
from pipeplan.core.schedule import in_flight
from pipeplan.solver.backends.dp.pairs import Pairs
from pipeplan.solver.backends.dp.pareto import minimal
from pipeplan.solver.clock import Clock
from pipeplan.solver.geometry import Layout, StageGeometry
from pipeplan.solver.ideals import IdealTable

__all__ = ["MOST_BYTES", "JointSearch", "Target", "peak_of"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_CHUNK = 2_000_000
MOST_BYTES: Final = 2.0**62
"""Peaks from here on may not fit int64; no device has as much (`core.cluster`)."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a plan must meet: period at most `period_ms`, and, under synchronous schedules, first
    micro-batch's transfers plus longest all-reduce at most `overhead_ms`."""

    period_ms: float
    overhead_ms: float = np.inf
    fewest_stages: bool = False
    """Among plans that meet it, give one of fewest stages, then of fewest devices."""


@dataclass(slots=True)
class _Labels:
    """Labels at one number of used ranks: parallel arrays, one row a label."""

    ideal: Ints
    last: Ints
    """Ranks of the last stage."""
    used: Ints
    """Ranks of the whole plan's block in use, where memory is limited; else the block's size."""
    loads: Floats
    """Shape (labels, dimensions), each to be small."""
    stages: Ints
    parent: Ints
    """Row among the labels before the last stage."""


@dataclass(slots=True)
class JointSearch:
    """Feasibility search in one block size."""

    problem: Problem
    table: IdealTable
    pairs: Pairs
    layout: Layout
    clock: Clock
    _kept: list[_Labels] = field(default_factory=list)

    def find(self, target: Target) -> Plan | None:
        """A plan that meets the target, None if this block size has none."""
        track = target.fewest_stages or self._counts
        whole = len(self.table) - 1
        width = self.layout.block
        self._kept = [self._start(target)]
        waiting: list[list[_Labels]] = [[] for _ in range(width + 1)]
        answer: tuple[tuple[float, ...], int, int] | None = None
        dead = np.zeros(len(self.table), dtype=np.bool_)
        for at in range(width + 1):
            if at:
                labels = self._merge(waiting[at], at, track)
                waiting[at] = []
                self._kept.append(labels)
                complete = labels.ideal == whole
                if self._limited:
                    complete &= labels.used == at
                for row in np.flatnonzero(complete).tolist():
                    key = self._preference(labels, row, at)
                    if answer is None or key < answer[0]:
                        answer = (key, at, row)
                if answer is not None and not (target.fewest_stages or self.problem.synchronous):
                    break
                if self._position_free and not track:
                    # Where ranks differ in nothing but their number, fewer for the same layers win.
                    fresh = ~dead[labels.ideal]
                    dead[labels.ideal] = True
                    labels = _rows(labels, np.flatnonzero(fresh))
                    self._kept[at] = labels
            front = self._front(self._kept[at], at, track)
            for k in self._widths(width - at):
                self.clock.check()
                for grown in self._expand(self._kept[at], front, at, k, target):
                    waiting[at + k].append(grown)
        return None if answer is None else self._plan(answer[1], answer[2])

    def _start(self, target: Target) -> _Labels:
        """Nothing placed. Where memory is limited the in-flight micro-batches of a stage depend on
        the ranks behind it, so that each number of ranks in use has a label of its own."""
        least = self.layout.block
        if self._limited:
            busiest = float(self.table.compute_ms[-1]) / self.layout.copies
            # A period of 0 is asked for where nothing takes any time: one rank can do that.
            share = busiest / target.period_ms if target.period_ms > 0 else 0.0
            least = max(1, math.ceil(min(share, self.layout.block) * (1 - 1e-12)))
        used = np.arange(min(least, self.layout.block), self.layout.block + 1, dtype=np.int64)
        none = np.zeros(len(used), dtype=np.int64)
        loads = np.zeros((len(used), self._dimensions))
        return _Labels(none, none.copy(), used, loads, none.copy(), none - 1)

    @property
    def _limited(self) -> bool:
        return self.problem.cluster.memory_bytes is not None

    @property
    def _counts(self) -> bool:
        asked = self.problem.constraints
        return asked.max_stages is not None or bool(asked.pinned)

    @property
    def _position_free(self) -> bool:
        return not (self.layout.ports or self.problem.synchronous or self._limited)

    @property
    def _dimensions(self) -> int:
        return (
            len(self.layout.ports)
            + int(self.layout.shares_ports)
            + (2 if self.problem.synchronous else 0)
        )

    def _widths(self, free: int) -> range:
        return range(1, min(free, 1 if self.problem.constraints.straight else free) + 1)

    def _preference(self, labels: _Labels, row: int, at: int) -> tuple[float, ...]:
        over = float(labels.loads[row, -2:].sum()) if self.problem.synchronous else 0.0
        return (over, float(labels.stages[row]), float(at), float(labels.ideal[row]))

    def _merge(self, parts: list[_Labels], at: int, track: bool) -> _Labels:
        """Keep the Pareto-minimal labels of each state."""
        if not parts:
            none = np.zeros(0, dtype=np.int64)
            return _Labels(none, none, none, np.zeros((0, self._dimensions)), none, none)
        joined = _Labels(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("ideal", "last", "used", "loads", "stages", "parent")
            )
        )
        return _rows(joined, self._survivors(joined, at, track))

    def _key(self, labels: _Labels, at: int, track: bool) -> tuple[list[Ints], list[Floats]]:
        """What tells states apart, and what is to be small within one."""
        # The last stage's width matters only where a port's border cuts it.
        straddles = np.zeros(len(labels.ideal), dtype=np.bool_)
        for port in self.layout.ports:
            if at % port.size:
                straddles |= labels.last > at % port.size
        state = [labels.ideal, np.where(straddles, labels.last, 0), labels.used]
        loads = [labels.loads[:, d] for d in range(labels.loads.shape[1])]
        if self.problem.constraints.pinned:
            state.append(labels.stages)
        elif track:
            loads.append(labels.stages.astype(np.float64))
        return state, loads

    def _survivors(self, labels: _Labels, at: int, track: bool) -> Ints:
        state, loads = self._key(labels, at, track)
        return minimal(state, loads, ties=[labels.stages, labels.last, labels.parent])

    def _expand(
        self, labels: _Labels, front: Ints, at: int, k: int, target: Target
    ) -> Iterator[_Labels]:
        """All labels of one more stage of k ranks, in chunks, each chunk reduced."""
        table, copies = self.table, self.layout.copies
        period = target.period_ms * (1 + 1e-13)
        geometry = self.layout.stage(at, k)
        left = labels.used - at - k
        with np.errstate(invalid="ignore"):
            needs = table.compute_ms[-1] - left * copies * period
        lows = self.pairs.lows(needs * (1 - 1e-13))
        # Without ranks left, only the whole graph may follow; with too few, nothing.
        lows = np.where(left == 0, len(table) - 1, lows)
        highs = self.pairs.highs(table.compute_ms[labels.ideal] + period * geometry.replicas)
        highs = np.where(left < 0, 0, highs)
        track = target.fewest_stages or self._counts
        for rows, nexts in chain(
            self.pairs.local(labels.ideal, lows, highs, _CHUNK, self.clock.check),
            self.pairs.across(labels.ideal, front, lows, highs, _CHUNK),
        ):
            self.clock.check()
            grown = self._filter(labels, rows, nexts, at, k, geometry, target)
            if grown is not None:
                yield _rows(grown, self._survivors(grown, at + k, track))

    def _front(self, labels: _Labels, at: int, track: bool) -> Ints:
        """Rows that no other of their segment beats in all that later segments can notice."""
        table = self.table
        ideal = labels.ideal
        state, loads = self._key(labels, at, track)
        state[0] = self.pairs.segment[ideal]
        # Of a segment that ends in a forced cut, none but that cut has successors in later ones.
        state.append(self.pairs.stop[ideal])
        loads = [
            -table.compute_ms[ideal],
            -table.parameter_bytes[ideal].astype(np.float64),
            table.cut_bytes[ideal].astype(np.float64),
            *loads,
        ]
        if self.problem.cluster.memory_bytes is not None:
            loads.append(-table.kept_bytes[ideal].astype(np.float64))
            loads.append(-table.input_bytes[ideal].astype(np.float64))
        return np.sort(minimal(state, loads, ties=[labels.stages, ideal, labels.parent]))

    def _filter(
        self,
        labels: _Labels,
        rows: Ints,
        nexts: Ints,
        at: int,
        k: int,
        geometry: StageGeometry,
        target: Target,
    ) -> _Labels | None:
        """Drop transitions that break a rule at this target; give the rest their new loads."""
        table, layout = self.table, self.layout
        period = target.period_ms * (1 + 1e-13)
        before = labels.ideal[rows]
        weights = table.parameter_bytes[nexts] - table.parameter_bytes[before]
        busy = (table.compute_ms[nexts] - table.compute_ms[before]) / geometry.replicas
        busy += weights * geometry.device_sync_ms_per_byte
        busy += geometry.latency_ms
        entering, leaving = table.cut_bytes[before], table.cut_bytes[nexts]
        port = weights * geometry.device_port_ms_per_byte
        port += (entering + leaving) * (layout.device_moved_ms_per_byte / geometry.replicas)
        good = (busy <= period) & (port <= period)
        good &= self._fits(before, nexts, weights, labels.used[rows] - at, k)
        good &= self._allowed(labels.stages[rows] + 1, nexts)
        keep = np.flatnonzero(good)
        if not keep.size:
            return None
        rows, nexts, weights = rows[keep], nexts[keep], weights[keep]
        entering, leaving = entering[keep], leaving[keep]
        old = labels.loads[rows]
        loads = np.empty_like(old)
        good = np.ones(len(rows), dtype=np.bool_)
        last = labels.last[rows]
        for d in range(len(layout.ports)):
            loads[:, d], fine = self._port(
                old[:, d], last, weights, entering, leaving, at, k, d, geometry, period
            )
            good &= fine
        d = len(layout.ports)
        if layout.shares_ports:
            loads[:, d] = old[:, d] + weights * geometry.shared_ms_per_byte
            good &= loads[:, d] <= period
            d += 1
        if self.problem.synchronous:
            loads[:, d] = old[:, d] + self._path(last, entering, at, k)
            whole = weights * geometry.full_ms_per_byte + geometry.full_latency_ms
            loads[:, d + 1] = np.maximum(old[:, d + 1], whole)
            good &= loads[:, d] + loads[:, d + 1] <= target.overhead_ms * (1 + 1e-13)
        keep = np.flatnonzero(good)
        if not keep.size:
            return None
        rows = rows[keep]
        return _Labels(
            nexts[keep],
            np.full(len(keep), k, dtype=np.int64),
            labels.used[rows],
            loads[keep],
            labels.stages[rows] + 1,
            rows,
        )

    def _port(
        self,
        load: Floats,
        last: Ints,
        weights: Ints,
        entering: Ints,
        leaving: Ints,
        at: int,
        k: int,
        d: int,
        geometry: StageGeometry,
        period: float,
    ) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Load of the port still open after the stage, and whether those it closes are within T."""
        port = self.layout.ports[d]
        moved = port.ms_per_byte / self.layout.copies
        sync = weights * geometry.port_ms_per_byte[d]
        inside = at % port.size
        here = min(k, port.size - inside) / k
        if inside:
            # Pairing is local first: only the difference of the two shares passes the port.
            share = np.minimum(1.0, inside / np.maximum(last, 1))
            load = load + entering * (moved * np.abs(share - here)) + sync
        else:
            load = entering * (moved * here) + sync
        end = at + k
        first_end = at - inside + port.size
        fine = load <= period
        if end < first_end:
            return load, fine
        fine &= load + leaving * (moved * here) <= period
        tail = end % port.size
        if end - first_end - tail > 0:
            full = port.size / k
            fine &= (entering + leaving) * (moved * full) + sync <= period
        if not tail:
            return np.zeros_like(load), fine
        load = entering * (moved * tail / k) + sync
        return load, fine & (load <= period)

    def _path(self, last: Ints, entering: Ints, at: int, k: int) -> Floats:
        """Transfer time of the first micro-batch into this stage."""
        if at == 0:
            return np.zeros(len(last))
        out = np.empty(len(last))
        for width in np.unique(last).tolist():
            level = self.layout.crossing_level(at, width, k)
            per_byte, constant = self.layout.path_ms_per_byte(level)
            chosen = last == width
            out[chosen] = entering[chosen] * per_byte + constant
        return out

    def _fits(
        self, before: Ints, nexts: Ints, weights: Ints, behind: Ints, k: int
    ) -> npt.NDArray[np.bool_]:
        """DESIGN 4.3: the peak of the stage within the device's memory; `behind` counts the ranks
        from this stage on."""
        problem, copies = self.problem, self.layout.copies
        limit = problem.cluster.memory_bytes
        if limit is None:
            return np.ones(len(before), dtype=np.bool_)
        held_by = [
            in_flight(problem.schedule, max(n, k) * copies, k * copies, problem.micro_batches)
            for n in range(self.layout.block + 1)
        ]
        held = np.array(held_by, dtype=np.int64)[behind]
        return peak_of(problem, self.table, before, nexts, weights, held) <= limit

    def _allowed(self, stages: Ints, nexts: Ints) -> npt.NDArray[np.bool_]:
        """Stage count and pinned layers; cuts are ideals that the table lacks or pairs skip."""
        asked = self.problem.constraints
        good = np.ones(len(stages), dtype=np.bool_)
        if asked.max_stages is not None:
            good &= stages <= asked.max_stages
        for layer, stage in asked.pinned:
            holds = self.pairs.holds(layer)[nexts]
            good &= holds == (stages > stage)
        return good

    def _plan(self, at: int, row: int) -> Plan:
        """Walk the parents back."""
        stages: list[tuple[tuple[int, ...], int]] = []
        while at:
            labels = self._kept[at]
            k, parent = int(labels.last[row]), int(labels.parent[row])
            after = self.table.layers_of(int(labels.ideal[row]))
            before = self.table.layers_of(int(self._kept[at - k].ideal[parent]))
            stages.append((tuple(sorted(after - before)), k))
            at, row = at - k, parent
        return joint_plan(self.problem.cluster, tuple(reversed(stages)), self.layout.copies)


def peak_of(
    problem: Problem,
    table: IdealTable,
    before: Ints,
    nexts: Ints,
    weights: Ints,
    held: Ints | int,
) -> Ints:
    """Peak bytes of stages between ideals: `core.memory.peak_bytes`, for arrays.

    What int64 cannot hold is its largest number, which is beyond any device's memory.
    """
    kept = table.kept_bytes[nexts] - table.kept_bytes[before]
    versions = 0 if problem.synchronous else held - 1
    sets = problem.weight_copies + versions
    once, each = np.zeros_like(kept), kept
    if problem.recompute:
        fed = table.cut_bytes[before] + table.input_bytes[nexts] - table.input_bytes[before]
        once, each = kept, fed
    exact = sets * weights + held * each + once
    about = np.float64(sets) * weights + np.float64(held) * each + once
    return np.where(about < MOST_BYTES, exact, np.iinfo(np.int64).max)


def _rows(labels: _Labels, rows: Ints) -> _Labels:
    return _Labels(
        labels.ideal[rows],
        labels.last[rows],
        labels.used[rows],
        labels.loads[rows],
        labels.stages[rows],
        labels.parent[rows],
    )
