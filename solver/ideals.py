"""All ideals (down-closed layer sets) of a graph, with the sums that every cost needs, as arrays.

The graph comes contracted (`solver.reduce`): layers that must share a stage form one block, so that
no ideal separates them. Times are integer ticks, so that sums do not depend on their order; bytes
are exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeplan.core.errors import TooLargeError
from pipeplan.solver.clock import Pause, unhurried
from pipeplan.solver.reduce import ReducedGraph

__all__ = ["MAX_IDEALS", "TICKS", "IdealTable", "enumerate_ideals", "table_of"]

MAX_IDEALS: Final = 300_000
"""Stated limit of the dp backend; Inception-v3 has 221,564, NASNet-mobile 1.6e11."""

TICKS: Final = 2**50
"""Ticks that the whole graph's compute is divided into: rounding errs by 2**-51 per layer, and sums
stay exact in int64 and in float64."""

_PAUSE_EVERY: Final = 1000

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class IdealTable:
    """Ideals in an order in which subsets come first; index 0 is empty, the last is everything.

    `compute_ms`, `parameter_bytes`, `cut_bytes` (what crosses to the complement), `kept_bytes` and
    `input_bytes` (network inputs read by the ideal) are sums over each ideal; differences of two
    are the sums of the stage between them, but for `cut_bytes`.
    """

    reduced: ReducedGraph
    masks: npt.NDArray[np.uint64]
    """One bit a block, 64 to a word: shape (ideals, words)."""
    compute_ms: Floats
    parameter_bytes: Ints
    cut_bytes: Ints
    kept_bytes: Ints
    input_bytes: Ints

    def __len__(self) -> int:
        return len(self.masks)

    def layers_of(self, index: int) -> frozenset[int]:
        """The layers of an ideal."""
        words = self.masks[index]
        return frozenset(
            v
            for b, members in enumerate(self.reduced.members)
            if int(words[b // 64]) >> (b % 64) & 1
            for v in members
        )

    def index_of(self, layers: frozenset[int]) -> int | None:
        """The ideal with exactly these layers, None where a block is split or it is no ideal."""
        mask = 0
        for b, members in enumerate(self.reduced.members):
            held = sum(v in layers for v in members)
            if held == len(members):
                mask |= 1 << b
            elif held:
                return None
        return self._position.get(mask)

    @cached_property
    def _position(self) -> dict[int, int]:
        return {self.mask(i): i for i in range(len(self))}

    def mask(self, index: int) -> int:
        """The ideal's blocks as one integer."""
        return int.from_bytes(self.masks[index].astype("<u8").tobytes(), "little")

    def subset_of(self, index: int) -> npt.NDArray[np.bool_]:
        """Which ideals contain ideal `index`."""
        missing = self.masks[index] & ~self.masks
        return np.asarray(~missing.any(axis=1))

    def take(self, keep: npt.NDArray[np.bool_]) -> "IdealTable":
        """The table without some ideals (never the empty and the whole one)."""
        return IdealTable(
            self.reduced,
            self.masks[keep],
            self.compute_ms[keep],
            self.parameter_bytes[keep],
            self.cut_bytes[keep],
            self.kept_bytes[keep],
            self.input_bytes[keep],
        )


def enumerate_ideals(
    reduced: ReducedGraph, *, limit: int = MAX_IDEALS, pause: Pause = unhurried
) -> IdealTable:
    """Every ideal of the contracted graph; `pause` is called now and then and may raise.

    Raises TooLargeError with the count reached where there are more than `limit`.
    """
    needs = [0] * len(reduced)
    readers: list[list[int]] = [[] for _ in needs]
    for a, b in reduced.edges:
        needs[b] |= 1 << a
        readers[a].append(b)
    sources = tuple(b for b, need in enumerate(needs) if not need)
    # Grow by one block at a time: each ideal of the frontier with the blocks that may come next.
    found: list[int] = [0]
    frontier: dict[int, tuple[int, ...]] = {0: sources}
    while frontier:
        grown: dict[int, tuple[int, ...]] = {}
        for done, (mask, ready) in enumerate(frontier.items()):
            if not done % _PAUSE_EVERY:
                pause()
            for b in ready:
                bigger = mask | 1 << b
                if bigger not in grown:
                    fresh = [w for w in readers[b] if needs[w] & ~bigger == 0]
                    grown[bigger] = (*(x for x in ready if x != b), *fresh)
            if len(found) + len(grown) > limit:
                raise TooLargeError(
                    f"the graph has more than {limit} ideals (possible cuts): counted "
                    f"{len(found) + len(grown)} before stopping; backend cpsat states the problem "
                    "over layers, not over cuts, and can go on (--backend cpsat)"
                )
        found.extend(grown)
        frontier = grown
    return table_of(reduced, found, pause=pause)


def table_of(
    reduced: ReducedGraph, found: Sequence[int], *, pause: Pause = unhurried
) -> IdealTable:
    """The table of some ideals, each given by its blocks as bits; the empty one and the whole graph
    must be among them. `pause` is called now and then and may raise."""
    count, words = len(found), max(1, -(-len(reduced) // 64))
    raw = b"".join(mask.to_bytes(words * 8, "little") for mask in found)
    masks = np.frombuffer(raw, dtype="<u8").reshape(count, words).astype(np.uint64)
    bits = np.unpackbits(masks.view(np.uint8), axis=1, bitorder="little")
    inside = np.asfortranarray(bits[:, : len(reduced)]).astype(np.bool_)

    def total(values: Sequence[int]) -> Ints:
        out = np.zeros(count, dtype=np.int64)
        pause()
        for b, value in enumerate(values):
            if value:
                out[inside[:, b]] += value
        return out

    whole = sum(reduced.compute_ms)
    scale = TICKS / whole if whole > 0 else 0.0
    ticks = total([round(x * scale) for x in reduced.compute_ms])
    cut = np.zeros(count, dtype=np.int64)
    for tensor in reduced.tensors:
        pause()
        crosses = inside[:, tensor.producer] & ~inside[:, tensor.consumers].all(axis=1)
        cut[crosses] += tensor.bytes_
    fed = np.zeros(count, dtype=np.int64)
    for feed in reduced.feeds:
        fed[inside[:, feed.consumers].any(axis=1)] += feed.bytes_
    size = inside.sum(axis=1)
    # Subsets before supersets: less compute, then fewer blocks; then by content, for determinism.
    order = np.lexsort([*(masks[:, w] for w in range(words)), size, ticks])
    return IdealTable(
        reduced,
        masks[order],
        (ticks[order] / scale) if scale else np.zeros(count),
        total(reduced.parameter_bytes)[order],
        cut[order],
        total(reduced.kept_bytes)[order],
        fed[order],
    )
