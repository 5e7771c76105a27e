"""What a stage of a joint plan costs, as arrays over pairs of cuts (cost model `topology`)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeplan.core.problem import Problem
from pipeplan.solver.geometry import Layout as Geometry

__all__ = ["JointStages"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class JointStages:
    """Busy times of stages between cuts i and j of one block size.

    `compute_ms[i,j]` and `weights[i,j]` (bytes) are a stage's own, `entering[i]` and `leaving[j]`
    what crosses the cuts on either side of it in bytes. `relaxed`: what depends on how far the
    neighbouring stages reach is left out, so that the times are lower bounds; else they are assumed
    to lie in the child that they touch.
    """

    problem: Problem
    geometry: Geometry
    compute_ms: Floats
    weights: Floats
    entering: Floats
    leaving: Floats
    relaxed: bool = False

    def busy_ms(self, p: int, k: int) -> Floats:
        """The busiest resource of a stage on ranks p..p+k-1 of its block, for every pair of cuts.
        Ports that several stages share are counted for each stage alone."""
        geometry = self.geometry
        stage = geometry.stage(p, k)
        n = stage.replicas
        entering, leaving = self.entering[:, None], self.leaving[None, :]
        cost: Floats = self.compute_ms / n
        if stage.device_sync_ms_per_byte or stage.latency_ms:
            cost += self.weights * stage.device_sync_ms_per_byte + stage.latency_ms
        port = (entering + leaving) * (geometry.device_moved_ms_per_byte / n)
        if stage.device_port_ms_per_byte:
            port += self.weights * stage.device_port_ms_per_byte
        np.maximum(cost, port, out=cost)
        for level, rate in zip(geometry.ports, stage.port_ms_per_byte, strict=True):
            for coming, going in sorted(self._outer_shares(p, k, level.size)):
                if not (coming or going or rate):
                    continue
                per_byte = level.ms_per_byte / geometry.copies
                load = entering * (coming * per_byte) + leaving * (going * per_byte)
                np.maximum(cost, load + self.weights * rate, out=cost)
        if geometry.shares_ports:
            np.maximum(cost, self.weights * stage.shared_ms_per_byte, out=cost)
        return cost

    def _outer_shares(self, p: int, k: int, size: int) -> set[tuple[float, float]]:
        """Shares of what enters and leaves that pass the port of each child the stage is in."""
        end = p + k
        out: set[tuple[float, float]] = set()
        for child in range(p // size, (end - 1) // size + 1):
            share = (min(end, (child + 1) * size) - max(p, child * size)) / k
            # A neighbour that touches the same child lies in it whole, unless it reaches into the
            # next child as well; there is none before the first and behind the last.
            first, last = child == 0, (child + 1) * size == self.geometry.block
            coming = going = share
            if p % size and child == p // size:
                coming = 0.0 if self.relaxed and not first else 1.0 - share
            if end % size and child == end // size:
                going = 0.0 if self.relaxed and not last else 1.0 - share
            out.add((coming, going))
        return out
