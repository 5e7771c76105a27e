"""What profiling finds out about one node."""

from dataclasses import dataclass

__all__ = ["NodeFigures"]


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """Milliseconds for one micro-batch, and bytes kept for backward until it has run.

    `scatter_ms` is the range that the middle half of the repeats of a measurement covers, of
    forward and backward together: from the lower to the upper quartile. None of fewer than three.
    """

    forward_ms: float = 0.0
    backward_ms: float = 0.0
    saved_bytes: int = 0
    scatter_ms: float | None = None

    @property
    def compute_ms(self) -> float:
        """Forward plus backward."""
        return self.forward_ms + self.backward_ms
