"""Peak memory of a rank of each stage, from weights, stashed versions and in-flight activations."""

from dataclasses import dataclass

from pipeplan.core.cuts import crossing_bytes, first_read_inputs
from pipeplan.core.plan import Plan
from pipeplan.core.problem import Problem
from pipeplan.core.schedule import in_flight

__all__ = ["StageMemory", "peak_bytes", "stage_memory"]


@dataclass(frozen=True, slots=True)
class StageMemory:
    """What one rank of a stage holds at its fullest, in bytes."""

    in_flight: int
    """Micro-batches held at once."""
    weight_bytes: int
    """Weights with their gradients and optimizer state."""
    version_bytes: int
    """Older weight versions kept for micro-batches in flight (schedule pipedream alone)."""
    activation_bytes: int
    """Activations (or, with recompute, stage inputs) of all micro-batches in flight."""

    @property
    def peak_bytes(self) -> int:
        """All of it together."""
        return self.weight_bytes + self.version_bytes + self.activation_bytes


def peak_bytes(
    problem: Problem, *, parameter_bytes: int, kept_bytes: int, input_bytes: int, held: int
) -> StageMemory:
    """DESIGN 4.3, for a stage of given sums that holds `held` micro-batches.

    weights * weight_copies + held * kept activations; with recompute held * the stage's inputs +
    one full set; schedule pipedream adds held - 1 weight versions. `input_bytes` is what the stage
    receives from the stage before (what it relays included) plus the network inputs that it is the
    first to read.
    """
    activations = held * input_bytes + kept_bytes if problem.recompute else held * kept_bytes
    versions = 0 if problem.synchronous else (held - 1) * parameter_bytes
    return StageMemory(held, problem.weight_copies * parameter_bytes, versions, activations)


def stage_memory(problem: Problem, plan: Plan) -> tuple[StageMemory, ...]:
    """Peak memory of a rank, for each stage of a plan."""
    graph = problem.graph
    layers = [stage.layers for stage in plan.stages]
    entering = (0, *crossing_bytes(graph, layers))
    out: list[StageMemory] = []
    remaining = plan.devices
    for stage, received, fresh in zip(
        plan.stages, entering, first_read_inputs(graph, layers), strict=True
    ):
        out.append(
            peak_bytes(
                problem,
                parameter_bytes=graph.parameter_bytes(stage.layers),
                kept_bytes=sum(graph.layers[v].kept_bytes for v in stage.layers),
                input_bytes=received + sum(x.output_bytes for x in fresh),
                held=in_flight(problem.schedule, remaining, stage.replicas, problem.micro_batches),
            )
        )
        remaining -= stage.replicas
    return tuple(out)
