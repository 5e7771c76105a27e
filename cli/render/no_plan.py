"""When there is no plan: why, and what would do."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from pipeplan.cli.render.commands import Command
from pipeplan.cli.render.terminal import plain
from pipeplan.cli.render.verdict import cluster_line, question_line
from pipeplan.core.graph import Layer
from pipeplan.core.memory import StageMemory, peak_bytes
from pipeplan.core.problem import Problem
from pipeplan.core.units import format_bytes, format_ms
from pipeplan.solver.result import SolveResult, Status

__all__ = ["no_plan_page"]


def no_plan_page(
    problem: Problem, result: SolveResult, advice: Sequence[str], next_steps: Sequence[str]
) -> Iterator[RenderableType]:
    """Infeasible, or not found within the limit; `advice` are sentences on what would help."""
    name = plain(problem.graph.name or "the network", 60)
    yield Text.assemble((name.plain, "bold"), " on ", plain(cluster_line(problem.cluster)))
    yield plain(question_line(problem))
    yield Text()
    backend = result.stats.backend
    if result.status is Status.INFEASIBLE:
        yield Text(f"Infeasible, proven ({backend}): no plan satisfies this.", style="bold")
    else:
        stopped = "a limit" if result.limit is None else f"the {result.limit.value} limit"
        yield Text(
            f"No plan was found before {stopped} ended the search ({backend}).", style="bold"
        )
        if result.bound_ms is not None:
            yield Text(f"Whatever there is, it is not below {format_ms(result.bound_ms)}.")
    if result.explanation:
        said = result.explanation
        yield plain(f"{said[0].upper()}{said[1:]}.")
    needed = result.smallest_memory_bytes
    if needed is not None:
        if str(needed) not in result.explanation:
            yield Text(
                f"The smallest memory that would do: {format_bytes(needed)} ({needed} bytes)."
            )
        if problem.cost_model != "pipedream":  # Its memory rule is the original's, not this one.
            yield _largest_layer(problem)
    for line in advice:
        yield Text(line)
    if next_steps:
        yield Text()
        yield Text("Next", style="bold")
        yield from map(Command, next_steps)


def _largest_layer(problem: Problem) -> Text:
    """The layer that needs most, alone in a stage: no partition can give a GPU less than that."""

    def alone(layer: Layer) -> StageMemory:
        return peak_bytes(
            problem,
            parameter_bytes=layer.parameter_bytes,
            kept_bytes=layer.kept_bytes,
            input_bytes=0,
            held=1,
        )

    largest = max(problem.graph.layers, key=lambda layer: alone(layer).peak_bytes)
    memory = alone(largest)
    text = Text("The largest layer, ")
    text.append_text(plain(largest.id, 60))
    text.append(
        f", needs {format_bytes(memory.peak_bytes)} in a stage of its own: "
        f"{format_bytes(memory.weight_bytes)} for weights, gradients and optimizer state, "
        f"{format_bytes(memory.activation_bytes)} for the activations of one micro-batch."
    )
    return text
