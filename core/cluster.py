"""The cluster as a hierarchy of levels, innermost first."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import mul
from typing import Final, Literal

from pipeplan.core.errors import ClusterError

__all__ = ["MAX_DEVICES", "Cluster", "Duplex", "Level"]

Duplex = Literal["full", "half"]
MAX_DEVICES: Final = 65_536


@dataclass(frozen=True, slots=True)
class Level:
    """One tier: `children` per group, each child's port with its bandwidth and latency."""

    children: int
    bandwidth_bytes_per_s: float
    latency_ms: float = 0.0
    name: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.children, int) or isinstance(self.children, bool):
            raise ClusterError(f"a level has {self.children!r} children; it must be a whole number")
        if not 1 <= self.children <= MAX_DEVICES:
            raise ClusterError(
                f"a level has {self.children} children; 1 to {MAX_DEVICES} make sense"
            )
        rate = self.bandwidth_bytes_per_s
        if not math.isfinite(rate) or rate <= 0:
            raise ClusterError(f"a bandwidth is {rate!r} bytes/s; it must be finite and above 0")
        if not math.isfinite(self.latency_ms) or self.latency_ms < 0:
            raise ClusterError(
                f"a latency is {self.latency_ms!r} ms; it must be finite and at least 0"
            )


@dataclass(frozen=True)
class Cluster:
    """Levels l = 1..L, innermost first; devices are numbered depth first.

    Level 1's children are devices; a level-l group has `levels[l-1].children` children, each a whole
    group of level l-1. `memory_bytes` is a device's memory, None where there is no limit.
    """

    levels: tuple[Level, ...]
    memory_bytes: int | None = None
    duplex: Duplex = "full"

    def __post_init__(self) -> None:
        if not self.levels:
            raise ClusterError("a cluster needs at least one level")
        if len(self.levels) > 8:
            raise ClusterError(f"a cluster has {len(self.levels)} levels; at most 8 are read")
        if math.prod(level.children for level in self.levels) > MAX_DEVICES:
            raise ClusterError(f"the cluster has more than {MAX_DEVICES} devices")
        if self.memory_bytes is not None and self.memory_bytes <= 0:
            raise ClusterError(
                f"the device memory is {self.memory_bytes} bytes; it must be above 0"
            )
        if self.duplex not in ("full", "half"):
            raise ClusterError(f"duplex is {self.duplex!r}; it is full or half")

    @staticmethod
    def of(
        children: Sequence[int],
        bandwidths_bytes_per_s: Sequence[float],
        *,
        memory_bytes: int | None = None,
        duplex: Duplex = "full",
    ) -> "Cluster":
        """A cluster from two lists, innermost level first; raises ClusterError if they differ."""
        if len(children) != len(bandwidths_bytes_per_s):
            raise ClusterError(
                f"{len(children)} levels ({' '.join(map(str, children))}) but "
                f"{len(bandwidths_bytes_per_s)} bandwidths: give one bandwidth a level, innermost first"
            )
        levels = tuple(
            Level(n, float(b)) for n, b in zip(children, bandwidths_bytes_per_s, strict=True)
        )
        return Cluster(levels, memory_bytes, duplex)

    @cached_property
    def devices(self) -> int:
        """Devices of the whole cluster."""
        return self.group_sizes[-1]

    @cached_property
    def group_sizes(self) -> tuple[int, ...]:
        """Devices of one group of level l at index l; index 0 is a single device: (1, n_1, n_1*n_2, ...)."""
        return tuple(accumulate((level.children for level in self.levels), mul, initial=1))

    @property
    def devices_per_server(self) -> int:
        """Devices of one level-1 group: a server."""
        return self.levels[0].children

    @property
    def servers(self) -> int:
        """Number of level-1 groups."""
        return self.devices // self.devices_per_server

    def server_of(self, rank: int) -> int:
        """The server (level-1 group) that holds a rank."""
        return rank // self.devices_per_server

    def port_name(self, level: int, child: int) -> str:
        """What to call a port of level 1..L in a message."""
        if level == 1:
            return f"port of GPU {child}"
        if level == 2:
            return f"network port of server {child}"
        return f"level-{level} port of group {child}"
