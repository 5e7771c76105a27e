"""The cluster as a hierarchy of levels, innermost first."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import mul
from typing import Final, Literal

from pipeplan.core.errors import ClusterError, shown
from pipeplan.core.units import plural

__all__ = ["MAX_BYTES_PER_S", "MAX_DEVICES", "MAX_LEVELS", "Cluster", "Duplex", "Level"]

Duplex = Literal["full", "half"]
MAX_DEVICES: Final = 65_536
MAX_LEVELS: Final = 8

# Wide bounds that keep every sum and quotient of a cost finite.
_MIN_RATE: Final = 1e-6
MAX_BYTES_PER_S: Final = 1e18
_MAX_LATENCY_MS: Final = 1e12


@dataclass(frozen=True, slots=True)
class Level:
    """One tier: `children` per group, each child's port with its bandwidth and latency.

    Raises ClusterError for figures that are out of range or no numbers.
    """

    children: int
    bandwidth_bytes_per_s: float
    latency_ms: float = 0.0
    name: str = ""

    def __post_init__(self) -> None:
        count = self.children
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_DEVICES:
            raise ClusterError(
                f"a level has {shown(count)} children; it must be a whole number, 1 to "
                f"{MAX_DEVICES}"
            )
        rate = _figure(
            self.bandwidth_bytes_per_s, "a bandwidth", "bytes/s", _MIN_RATE, MAX_BYTES_PER_S
        )
        object.__setattr__(self, "bandwidth_bytes_per_s", rate)
        latency = _figure(self.latency_ms, "a latency", "ms", 0, _MAX_LATENCY_MS)
        object.__setattr__(self, "latency_ms", latency)
        if not isinstance(self.name, str) or len(self.name) > 200:
            raise ClusterError(f"a level's name is {shown(self.name)}; it must be short text")
        if not self.name.isprintable():
            raise ClusterError("a level's name must be printable", text=self.name)


def _figure(value: float, what: str, unit: str, low: float, high: float) -> float:
    """The figure as a float, so that 1 and 1.0 are the same cluster, and so are 0 and -0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ClusterError(
            f"{what} is {shown(value)} {unit}; it must be a number from {low:g} to {high:g}"
        )
    return float(value) + 0.0


@dataclass(frozen=True)
class Cluster:
    """Levels l = 1..L, innermost first; devices are numbered depth first.

    Level 1's children are devices; a level-l group has `levels[l-1].children` children, each a
    whole group of level l-1. `memory_bytes` is a device's memory, None where there is no limit.
    Raises ClusterError for no or too many levels or devices, and figures out of range.
    """

    levels: tuple[Level, ...]
    memory_bytes: int | None = None
    duplex: Duplex = "full"

    def __post_init__(self) -> None:
        if not self.levels:
            raise ClusterError("a cluster needs at least one level")
        if len(self.levels) > MAX_LEVELS:
            raise ClusterError(f"a cluster has {len(self.levels)} levels; at most {MAX_LEVELS}")
        if math.prod(level.children for level in self.levels) > MAX_DEVICES:
            raise ClusterError(f"the cluster has more than {MAX_DEVICES} devices")
        memory = self.memory_bytes
        if memory is not None and (
            not isinstance(memory, int) or isinstance(memory, bool) or not 0 < memory <= 2**62
        ):
            raise ClusterError(
                f"the device memory is {shown(memory)} bytes; it must be a whole number above 0 "
                "and at most 2**62"
            )
        if self.duplex not in ("full", "half"):
            raise ClusterError(f"duplex is {shown(self.duplex)}; it is full or half")

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
                f"{plural(len(children), 'level')} ({' '.join(map(str, children))}) but "
                f"{len(bandwidths_bytes_per_s)} bandwidths: give one bandwidth a level, innermost "
                "first"
            )
        levels = tuple(Level(n, b) for n, b in zip(children, bandwidths_bytes_per_s, strict=True))
        return Cluster(levels, memory_bytes, duplex)

    @cached_property
    def devices(self) -> int:
        """Devices of the whole cluster."""
        return self.group_sizes[-1]

    @cached_property
    def group_sizes(self) -> tuple[int, ...]:
        """Devices of one group of level l at index l: (1, n_1, n_1*n_2, ...), 1 being a device."""
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
