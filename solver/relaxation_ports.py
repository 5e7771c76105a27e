"""The relaxation of joint plans with the load of a port that several stages share.

A port belongs to a group of neighbouring ranks, and all stages there add to its load. For a given
period T, the least load so far of the port still open at a position and cell, and the most with
which the rest of the pipeline can still be laid, are two dynamic programs over one number: together
they say whether any plan is left, and which arcs those use. The loads are those of
`backends.dp.joint`, on lower bounds of what crosses and of weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeplan.solver.arcs import Arc
from pipeplan.solver.clock import Pause
from pipeplan.solver.geometry import Layout as Geometry

__all__ = ["ArcCosts", "SharedLoad"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_NONE: Final = -np.inf


@dataclass(frozen=True)
class ArcCosts:
    """An arc between every cell of the window before it (rows) and behind it (columns): the busiest
    resource of its stage alone (ms), least weights, and least bytes that enter and leave."""

    busy_ms: Floats
    weights: Floats
    entering: Floats
    leaving: Floats


@dataclass(frozen=True)
class _Step:
    """What an arc does to the load of the open port, in ms. `added` goes to the port that is open
    before it (`carried`: on top of what that has, else it is a fresh one). Where the arc `closes`
    it, `closing` comes on top, ports that lie within the stage have `within`, and `opened` is the
    load of the port then open (0 where the arc ends with a port)."""

    added: Floats
    carried: bool
    closes: bool
    closing: Floats
    within: Floats
    opened: Floats


class SharedLoad:
    """One level of ports, or (`port` None) the ports above the block, which carry the all-reduce of
    every stage."""

    def __init__(
        self,
        geometry: Geometry,
        costs: Mapping[Arc, ArcCosts],
        whole: Sequence[int],
        port: int | None,
        pause: Pause,
    ) -> None:
        self.geometry = geometry
        self.pause = pause
        self.costs = costs
        self.whole = whole
        """For each position the row of its window that is the whole graph, -1 if there is none."""
        self.port = port
        self.size = geometry.block if port is None else geometry.ports[port].size
        self.sizes = {0: 1}
        self.arcs: dict[int, list[Arc]] = {}
        for a, cost in costs.items():
            if cost.busy_ms.size:
                self.arcs.setdefault(a.start, []).append(a)
                self.sizes[a.start], self.sizes[a.start + a.machines] = cost.busy_ms.shape
        self.lasts: dict[int, list[int]] = {p: [0] for p in self.sizes}
        for a in costs:
            end, last = self._state(a)
            if last and end in self.lasts and last not in self.lasts[end]:
                self.lasts[end].append(last)

    def _state(self, a: Arc) -> tuple[int, int]:
        """Position behind an arc, and its width where a port's border cuts it: the pairing of its
        replicas with those of the next stage then depends on it."""
        end = a.start + a.machines
        return end, a.machines if a.machines > end % self.size > 0 else 0

    def _step(self, a: Arc, last: int) -> _Step:
        cost, p, k = self.costs[a], a.start, a.machines
        stage = self.geometry.stage(p, k)
        nothing = np.zeros((1, 1))
        if self.port is None:
            added = cost.weights * stage.shared_ms_per_byte
            return _Step(added, p > 0, False, nothing, nothing, nothing)
        level = self.geometry.ports[self.port]
        moved = level.ms_per_byte / self.geometry.copies
        sync = cost.weights * stage.port_ms_per_byte[self.port]
        entering, leaving = cost.entering[:, None], cost.leaving[None, :]
        inside, tail = p % self.size, (p + k) % self.size
        here = min(k, self.size - inside) / k
        # Pairing is local first: only the difference of the two shares passes the port.
        before = min(1.0, inside / last) if last else 1.0
        added = entering * (moved * (abs(before - here) if inside else here)) + sync
        first_end = p - inside + self.size
        if p + k < first_end:
            return _Step(added, inside > 0, False, nothing, nothing, nothing)
        within = opened = nothing
        if p + k - first_end - tail > 0:
            within = (entering + leaving) * (moved * self.size / k) + sync
        if tail:
            opened = entering * (moved * tail / k) + sync
        return _Step(added, inside > 0, True, leaving * (moved * here), within, opened)

    def room_ms(self, period_ms: float) -> dict[tuple[int, int], Floats]:
        """For each state and cell the most load of the open port with which the rest can be laid
        within a period; -inf where it cannot be."""
        out: dict[tuple[int, int], Floats] = {}
        for p in sorted(self.sizes, reverse=True):
            for last in self.lasts[p]:
                room = np.full(self.sizes[p], _NONE)
                if self.whole[p] >= 0:
                    room[self.whole[p]] = period_ms
                for a in self.arcs.get(p, ()):
                    self.pause()
                    step, behind = self._step(a, last), out[self._state(a)][None, :]
                    left = behind - step.added
                    if step.closes:
                        left = period_ms - step.added - step.closing
                        left = np.where(step.opened <= behind, left, _NONE)
                        left = np.where(step.within <= period_ms, left, _NONE)
                    left = np.where(self.costs[a].busy_ms <= period_ms, left, _NONE)
                    if not step.carried:
                        left = np.where(left >= 0, period_ms, _NONE)
                    np.maximum(room, left.max(axis=1), out=room)
                out[p, last] = room
        return out

    def feasible(self, period_ms: float) -> bool:
        """Whether the relaxation has a plan within a period."""
        return bool(self.room_ms(period_ms)[0, 0][0] >= 0)

    def used(self, period_ms: float) -> tuple[set[Arc], dict[int, Bools]]:
        """The arcs that plans within a period use, and for each position where one starts the cells
        of its window in which the cut before it may lie."""
        room = self.room_ms(period_ms)
        least = {state: np.full(len(rows), np.inf) for state, rows in room.items()}
        least[0, 0][0] = 0.0
        kept: set[Arc] = set()
        starts: dict[int, Bools] = {}
        for p in sorted(self.arcs):
            for last in self.lasts[p]:
                load = least[p, last]
                possible = load <= room[p, last]
                if not possible.any():
                    continue
                seen = starts.get(p)
                starts[p] = possible if seen is None else seen | possible
                for a in self.arcs[p]:
                    self.pause()
                    step, behind = self._step(a, last), self._state(a)
                    held = step.added + (load[:, None] if step.carried else 0.0)
                    held = np.where(load[:, None] < np.inf, held, np.inf)
                    good = self.costs[a].busy_ms <= period_ms
                    if step.closes:
                        good &= (held + step.closing <= period_ms) & (step.within <= period_ms)
                        held = np.broadcast_to(step.opened, held.shape)
                    held = np.where(good, held, np.inf)
                    np.minimum(least[behind], held.min(axis=0), out=least[behind])
                    if (held <= room[behind][None, :]).any():
                        kept.add(a)
        return kept, starts
