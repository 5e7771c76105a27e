"""What profiling finds out about one node."""

from dataclasses import dataclass

__all__ = ["NodeFigures"]


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """Milliseconds for one micro-batch, and bytes kept for backward until it has run."""

    forward_ms: float = 0.0
    backward_ms: float = 0.0
    saved_bytes: int = 0
