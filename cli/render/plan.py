"""A plan on the terminal: everything that a reader of it asks, in the order of asking."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from pipeplan.cli.render.commands import Command
from pipeplan.cli.render.flow import flow_lines
from pipeplan.cli.render.limits import limits
from pipeplan.cli.render.servers import Servers
from pipeplan.cli.render.stages import StageTable, stage_rows
from pipeplan.cli.render.terminal import plain
from pipeplan.cli.render.verdict import (
    baseline_lines,
    cluster_line,
    headline,
    proof_line,
    question_line,
    two_figures,
)
from pipeplan.core.codec import PlanFile

__all__ = ["plan_page"]


def plan_page(
    file: PlanFile, next_steps: Sequence[str], notes: Sequence[str] = ()
) -> Iterator[RenderableType]:
    """The whole page; `next_steps` are commands to type, `notes` further verdicts on the plan."""
    problem, plan = file.problem, file.plan
    name = plain(problem.graph.name or "the network", 60)
    yield Text.assemble(
        (name.plain, "bold"), " on ", plain(cluster_line(problem.cluster)), no_wrap=False
    )
    yield plain(question_line(problem))
    yield Text()
    yield Text(headline(file), style="bold")
    yield Text(proof_line(file))
    for note in notes:
        yield Text(note)
    both = two_figures(file)
    if both is not None:
        yield Text(both)
    yield Text()
    yield StageTable(stage_rows(file))
    yield Text(_legend(file))
    yield from _section("Which rank runs which stage", Servers(problem.cluster, plan))
    flow = flow_lines(file)
    if flow:
        yield from _section("What feeds what", *(Text(line) for line in flow))
    yield from _section("What limits it", limits(file))
    yield from _section("Compared with", *(Text(line) for line in baseline_lines(file)))
    if next_steps:
        yield from _section("Next")
        yield from map(Command, next_steps)


def _legend(file: PlanFile) -> str:
    """What the columns of the table mean."""
    sync = (
        "Sync: the all-reduce that ends a batch. "
        if file.problem.synchronous
        else "Sync: all-reduce, shared over the micro-batches between two of them. "
    )
    return (
        "Layers by topological index. Compute: busy time of each GPU of the stage per micro-batch "
        f"of the pipeline. {sync}Transfer: of the busiest port that its tensors cross. In flight: "
        "micro-batches held at once by a GPU, whose memory it is."
    )


def _section(title: str, *parts: RenderableType) -> Iterator[RenderableType]:
    yield Text()
    yield Text(title, style="bold")
    for part in parts:
        yield Padding(part, (0, 0, 0, 2))
