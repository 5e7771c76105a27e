"""The question: a graph, a cluster, and what counts as a plan and as its cost."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, get_args

from pipeplan.core.cluster import Cluster
from pipeplan.core.errors import ProblemError, shown
from pipeplan.core.graph import LayerGraph
from pipeplan.core.schedule import SCHEDULES, Schedule, is_synchronous

__all__ = ["COST_MODELS", "SCOPES", "Constraints", "CostModel", "Problem", "Scope"]

CostModel = Literal["topology", "levelwise", "pipedream"]
Scope = Literal["joint", "nested"]
COST_MODELS: Final[tuple[CostModel, ...]] = get_args(CostModel)
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
_MAX_TOTAL_BYTES: Final = 2**60


@dataclass(frozen=True, slots=True)
class Constraints:
    """What the asker demands of a plan beyond fitting.

    `straight`: no replication. `max_stages`: of the whole plan, each stage counted once however
    often it is replicated. A cut is the set of layers before it (an ideal): `forced_cuts` must be
    stage boundaries, `forbidden_cuts` must not. `pinned`: pairs (layer, stage number from 0).
    `together`: groups of layers that share a stage, in addition to the graph's own groups.
    """

    straight: bool = False
    max_stages: int | None = None
    forced_cuts: tuple[frozenset[int], ...] = ()
    forbidden_cuts: tuple[frozenset[int], ...] = ()
    pinned: tuple[tuple[int, int], ...] = ()
    together: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Problem:
    """Everything that decides which plan is best; immutable and validated.

    `micro_batches`: micro-batches of a batch, needed by synchronous schedules alone.
    `weight_copies`: bytes of weights, gradients and optimizer state in units of the weights
    (4: Adam in the weights' type). `activation_compression_ratio` divides transferred bytes; None
    is 1, except for cost model `pipedream`, where it means that transfers are not counted at all.
    `use_fewer_machines` belongs to cost model `pipedream` (the others may always idle devices),
    `overlap_sync` to `topology`, as do the cluster's duplex and latency. Raises ProblemError for
    combinations that have no meaning.
    """

    graph: LayerGraph
    cluster: Cluster
    scope: Scope = "joint"
    cost_model: CostModel = "topology"
    schedule: Schedule = "pipedream"
    micro_batches: int | None = None
    recompute: bool = False
    overlap_sync: bool = False
    weight_copies: int = 4
    activation_compression_ratio: float | None = None
    use_fewer_machines: bool = False
    constraints: Constraints = field(default_factory=Constraints)

    def __post_init__(self) -> None:
        _known(self.scope, SCOPES, "scope")
        _known(self.cost_model, COST_MODELS, "cost model")
        _known(self.schedule, SCHEDULES, "schedule")
        if (self.scope == "joint") != (self.cost_model == "topology"):
            raise ProblemError(
                f"scope {self.scope} does not go with cost model {self.cost_model}: joint plans "
                "are priced by topology, nested plans by levelwise or pipedream"
            )
        if is_synchronous(self.schedule):
            if self.micro_batches is None:
                raise ProblemError(
                    f"schedule {self.schedule} flushes once a batch: say how many micro-batches a "
                    "batch has (--micro-batches)"
                )
        elif self.micro_batches is not None:
            raise ProblemError(
                "schedule pipedream never flushes, so a number of micro-batches a batch has no "
                "meaning with it; it belongs to 1f1b and gpipe"
            )
        if self.micro_batches is not None:
            _whole(self.micro_batches, 1, 10**6, "the number of micro-batches a batch")
        _whole(self.weight_copies, 1, 100, "weight copies")
        ratio = self.activation_compression_ratio
        if ratio is not None:
            if isinstance(ratio, bool) or not 1e-6 <= ratio <= 1e6:
                raise ProblemError(
                    f"the activation compression ratio is {shown(ratio)}; 1e-6 to 1e6 make sense"
                )
            object.__setattr__(self, "activation_compression_ratio", float(ratio))
        if self.overlap_sync and self.cost_model != "topology":
            raise ProblemError(
                f"cost model {self.cost_model} adds the all-reduce to the compute; overlap_sync "
                "belongs to topology"
            )
        self._check_totals()
        self._check_pipedream()
        self._check_constraints()

    def _check_totals(self) -> None:
        """Sums over the whole graph stay within what 64-bit integers count exactly."""
        layers = self.graph.layers
        totals = {
            "outputs": sum(x.output_bytes for x in layers),
            "parameters": self.graph.total_parameter_bytes,
            "kept activations": sum(x.kept_bytes for x in layers),
            "inputs": sum(x.output_bytes for x in self.graph.inputs),
        }
        for what, total in totals.items():
            if total > _MAX_TOTAL_BYTES:
                raise ProblemError(
                    f"the {what} of all layers add up to {total} bytes; it must be at most 2**60 "
                    f"({_MAX_TOTAL_BYTES}): are the figures of the profile bytes?"
                )

    def _check_pipedream(self) -> None:
        if self.cost_model != "pipedream":
            if self.use_fewer_machines:
                raise ProblemError(
                    "use_fewer_machines belongs to cost model pipedream; the others may always "
                    "idle devices"
                )
            return
        wanted = {
            "schedule pipedream": self.schedule == "pipedream",
            "no recompute": not self.recompute,
            "full duplex left as it is": self.cluster.duplex == "full",
            "no stage constraints but straight": self.constraints
            == Constraints(straight=self.constraints.straight),
        }
        broken = [name for name, holds in wanted.items() if not holds]
        if broken:
            raise ProblemError(
                "cost model pipedream restates the original program, which knows "
                f"{', '.join(broken)}; use levelwise for the rest"
            )

    def _check_constraints(self) -> None:
        asked = self.constraints
        if asked.max_stages is not None:
            _whole(asked.max_stages, 1, 2**31, "max_stages")
        layers = range(len(self.graph))
        for v, stage in asked.pinned:
            if v not in layers:
                raise ProblemError(f"cannot pin layer {shown(v)}: the graph has {len(layers)}")
            _whole(stage, 0, 2**31, f"the stage that layer {self.graph.layers[v].id} is pinned to")
        stage_of = dict(asked.pinned)
        if any(stage_of[v] != stage for v, stage in asked.pinned):
            raise ProblemError("a layer is pinned to two stages")
        for cut in (*asked.forced_cuts, *asked.forbidden_cuts):
            if (
                not cut
                or len(cut) >= len(layers)
                or any(v not in layers for v in cut)
                or not self.graph.is_down_closed(cut)
            ):
                raise ProblemError(
                    "a forced or forbidden cut must be a proper, non-empty set of layers that "
                    "holds all producers of its layers"
                )
        for group in asked.together:
            if not group:
                raise ProblemError("a group of layers to keep together is empty")
            if any(v not in layers for v in group):
                raise ProblemError(
                    f"a group of layers to keep together names a missing layer: {shown(group)}"
                )

    @cached_property
    def together(self) -> tuple[tuple[int, ...], ...]:
        """All groups of layers that must share a stage, the graph's own and the asker's.

        Cost model `pipedream` knows none: the original cuts between any two layers.
        """
        if self.cost_model == "pipedream":
            return ()
        index = self.graph.index
        own = tuple(tuple(index[x] for x in group.layers) for group in self.graph.together)
        return own + self.constraints.together

    @property
    def synchronous(self) -> bool:
        """Whether the schedule flushes once a batch."""
        return is_synchronous(self.schedule)

    @property
    def compression(self) -> float:
        """What transferred bytes are divided by."""
        ratio = self.activation_compression_ratio
        return 1.0 if ratio is None else ratio


def _known(value: str, allowed: tuple[str, ...], what: str) -> None:
    if value not in allowed:
        raise ProblemError(f"there is no {what} {shown(value)}; choose from {', '.join(allowed)}")


def _whole(value: int, low: int, high: int, what: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ProblemError(f"{what} is {shown(value)}; it must be a whole number, {low} to {high}")
