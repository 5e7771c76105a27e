"""What a simulation found: periods, shares of time, peaks, and the log behind them."""

from dataclasses import dataclass

from pipeplan.validation.simulation.engine import Run
from pipeplan.validation.simulation.options import SimulationOptions
from pipeplan.validation.simulation.pipeline import Pipeline, Port

__all__ = ["PortShare", "Simulation", "StageShare"]


@dataclass(frozen=True, slots=True)
class StageShare:
    """How the ranks of a stage spend the window, as shares of it, and what they held at most."""

    forward: float
    backward: float
    sync: float
    bubble: float
    """What is left: waiting for an input, a gradient or room."""
    peak_in_flight: int
    """The most micro-batches that one rank held, over the whole run."""
    peak_versions: int
    """The most older weight versions that one rank had to keep for them."""
    peak_bytes: int
    """The most that one rank held (weights, gradients, optimizer, versions, activations)."""
    peak_waiting: int
    """The most inputs that one rank had received and not begun; not part of `peak_bytes`."""
    peak_rank: int
    """The rank of `peak_bytes`."""


@dataclass(frozen=True, slots=True)
class PortShare:
    """How long a port was occupied in the steady window, as shares of it."""

    port: Port
    transfer: float
    sync: float

    @property
    def busy(self) -> float:
        """Both together."""
        return self.transfer + self.sync


@dataclass(frozen=True, slots=True)
class Simulation:
    """One simulated plan; times in ms.

    `period_ms` is None where the run was too short to have a steady part; `exact` says that it
    repeats itself to rounding. It was measured over `micro_batches` micro-batches. `predicted_ms`
    is core.cost's period under `topology`, and `floor_ms` what the schedule cannot beat: the same,
    except under gpipe, whose forward and backward phases have a bottleneck each.

    `run`, `stages` and `ports` show one batch of a synchronous schedule, flush and all-reduce
    included; of schedule pipedream, the run that the period was measured in. Shares are of
    `window_ms`: the whole batch, or the steady part.
    """

    pipeline: Pipeline
    options: SimulationOptions
    predicted_ms: float
    floor_ms: float
    period_ms: float | None
    exact: bool
    micro_batches: int
    run: Run
    window_ms: tuple[float, float]
    stages: tuple[StageShare, ...]
    ports: tuple[PortShare, ...]
    predicted_batch_ms: float | None
    batch_ms: float | None

    @property
    def ratio(self) -> float | None:
        """Simulated over predicted period."""
        if self.period_ms is None or not self.predicted_ms:
            return None
        return self.period_ms / self.predicted_ms
