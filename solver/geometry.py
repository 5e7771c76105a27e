"""Constants of a joint plan's geometry: what ranks p..p+k-1 of a block of a given size imply.

A joint plan is `copies` identical pipelines in blocks of `block` devices. Port loads depend on
where a stage lies inside its block, and of the other stages on their neighbours' shares alone.
"""

from dataclasses import dataclass
from functools import cache

from pipeplan.core.problem import Problem
from pipeplan.core.topology import sync_widths

__all__ = ["Layout", "PortLevel", "StageGeometry"]


@dataclass(frozen=True, slots=True)
class PortLevel:
    """A level whose ports join parts of one block: each child holds `size` ranks of it."""

    size: int
    ms_per_byte: float
    """Port time of one transferred byte in one direction (half duplex: both)."""


@dataclass(frozen=True, slots=True)
class StageGeometry:
    """What a stage on ranks p..p+k-1 of a block costs per byte of its weights.

    `device_sync_ms_per_byte` and `latency_ms` are all-reduce time on a device per micro-batch of
    the whole pipeline; `device_port_ms_per_byte` occupies the device's own port, `port_ms_per_byte`
    the ports of each spanned level, `shared_ms_per_byte` the ports of levels above the block. The
    whole all-reduce of a batch takes `full_ms_per_byte` and `full_latency_ms`.
    """

    replicas: int
    device_sync_ms_per_byte: float
    latency_ms: float
    device_port_ms_per_byte: float
    port_ms_per_byte: tuple[float, ...]
    shared_ms_per_byte: float
    full_ms_per_byte: float
    full_latency_ms: float


class Layout:
    """Geometry of one block size; `copies` of it make up the cluster."""

    def __init__(self, problem: Problem, block: int) -> None:
        self.problem = problem
        self.block = block
        cluster = problem.cluster
        self.copies = cluster.devices // block
        half = 2 if cluster.duplex == "half" else 1
        rates = [level.bandwidth_bytes_per_s for level in cluster.levels]
        self._ring = [half * 1e3 / rate for rate in rates]
        self._moved = [half * 1e3 / rate / problem.compression for rate in rates]
        sizes = cluster.group_sizes
        self._spanned = [level for level in range(2, len(rates) + 1) if sizes[level - 1] < block]
        self._above = [
            level
            for level in range(2, len(rates) + 1)
            if sizes[level - 1] >= block and cluster.levels[level - 1].children > 1
        ]
        self.ports = tuple(
            PortLevel(sizes[level - 1], self._moved[level - 1]) for level in self._spanned
        )
        self.device_moved_ms_per_byte = self._moved[0]
        self.shares_ports = bool(self._above) and not problem.synchronous
        """Whether ports above the block carry the all-reduce of every stage of a copy."""
        self.stage = cache(self._stage)

    def _stage(self, start: int, replicas: int) -> StageGeometry:
        problem, cluster = self.problem, self.problem.cluster
        total = replicas * self.copies
        ranks = [c * self.block + start + i for c in range(self.copies) for i in range(replicas)]
        widths = sync_widths(cluster, ranks)
        ring = [2 * (q - 1) / q * self._ring[level] for level, q in enumerate(widths)]
        latency = sum(
            2 * (q - 1) * x.latency_ms for q, x in zip(widths, cluster.levels, strict=True)
        )
        counted = 0.0 if problem.synchronous else 1.0 / total
        on_device = 0.0 if problem.overlap_sync else counted
        return StageGeometry(
            replicas=total,
            device_sync_ms_per_byte=sum(ring) * on_device,
            latency_ms=latency * on_device,
            device_port_ms_per_byte=ring[0] * counted,
            port_ms_per_byte=tuple(ring[level - 1] * counted for level in self._spanned),
            shared_ms_per_byte=max(
                (ring[level - 1] * counted for level in self._above), default=0.0
            ),
            full_ms_per_byte=sum(ring),
            full_latency_ms=latency,
        )

    def path_ms_per_byte(self, level: int) -> tuple[float, float]:
        """Activation plus gradient through levels 1..level: ms per byte of the cut, and fixed."""
        inner = self.problem.cluster.levels[:level]
        slowest = min(x.bandwidth_bytes_per_s for x in inner)
        return (
            2e3 / slowest / self.problem.compression,
            2 * sum(x.latency_ms for x in inner),
        )

    def crossing_level(self, start: int, last: int, replicas: int) -> int:
        """Outermost level whose ports carry the cut between a stage of `last` ranks that ends at
        rank `start` of the block and the next one, of `replicas` ranks."""
        for level, port in zip(reversed(self._spanned), reversed(self.ports), strict=True):
            if (start - last) // port.size != (start + replicas - 1) // port.size:
                return level
        return 1
