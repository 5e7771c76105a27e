"""`pipeplan simulate`: a plan as discrete events."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pipeplan.validation.simulation import Simulation

__all__ = ["command"]


def command(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="A plan file, as `solve -o` writes it.")
    ],
    micro_batches: Annotated[
        int | None,
        typer.Option(
            "--micro-batches",
            metavar="N",
            help="Micro-batches to measure the steady state over; default: as many as it takes.",
        ),
    ] = None,
    jitter: Annotated[
        float,
        typer.Option("--jitter", metavar="CV", help="Spread of compute times: 0.1 is 10 %."),
    ] = 0.0,
    straggler: Annotated[
        list[str] | None,
        typer.Option(
            "--straggler", metavar="RANK:FACTOR", help="A slower rank, such as 3:1.5; repeatable."
        ),
    ] = None,
    in_flight: Annotated[
        int,
        typer.Option(
            "--extra-in-flight", metavar="N", help="More micro-batches in flight per GPU."
        ),
    ] = 0,
    barrier: Annotated[
        bool,
        typer.Option("--barrier", help="Replicas wait for each other at every all-reduce."),
    ] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="Of the jitter.")] = 0,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="Write a trace for ui.perfetto.dev."),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write the timeline as SVG.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ] = False,
) -> None:
    """Run a plan as discrete events: period, bubbles, memory, timeline.

    Every GPU and every port is a resource. The steady period is compared with the plan's
    prediction, and a difference is explained.
    """
    from pipeplan.cli.inputs import loaded_plan, writable
    from pipeplan.cli.output import print_json
    from pipeplan.core.textfile import write_text
    from pipeplan.validation.simulation import SimulationOptions, simulate
    from pipeplan.validation.simulation.timeline_svg import timeline_svg
    from pipeplan.validation.simulation.trace import chrome_trace
    from pipeplan.validation.simulation.verdict import verdict

    file = loaded_plan(plan)
    options = SimulationOptions(
        micro_batches=micro_batches,
        jitter=jitter,
        stragglers=tuple(_straggler(x) for x in straggler or ()),
        extra_in_flight=in_flight,
        barrier=barrier,
        seed=seed,
    )
    for path in (trace, svg):
        if path is not None:
            writable(path, force=force)
    result = simulate(file.problem, file.plan, options)
    sentences = verdict(result)
    if trace is not None:
        write_text(trace, chrome_trace(result), force=force)
    if svg is not None:
        write_text(svg, timeline_svg(result), force=force)
    if as_json:
        print_json(_document(result, sentences))
        return
    from pipeplan.cli.render.simulation import simulation_page
    from pipeplan.cli.render.terminal import show

    show(*simulation_page(result, sentences))


def _straggler(text: str) -> tuple[int, float]:
    from pipeplan.core.errors import PipeplanError

    rank, colon, factor = text.partition(":")
    try:
        if not colon:
            raise ValueError
        return int(rank), float(factor)
    except ValueError:
        raise PipeplanError(
            f"--straggler {text[:40]!r} is not RANK:FACTOR, such as 3:1.5"
        ) from None


def _document(result: "Simulation", sentences: list[str]) -> dict[str, Any]:
    return {
        "schedule": result.pipeline.problem.schedule,
        "micro_batches": result.micro_batches,
        "predicted_period_ms": result.predicted_ms,
        "floor_ms": result.floor_ms,
        "period_ms": result.period_ms,
        "exact": result.exact,
        "predicted_batch_ms": result.predicted_batch_ms,
        "batch_ms": result.batch_ms,
        "window_ms": list(result.window_ms),
        "stages": [
            {
                "forward": x.forward,
                "backward": x.backward,
                "sync": x.sync,
                "bubble": x.bubble,
                "peak_in_flight": x.peak_in_flight,
                "peak_versions": x.peak_versions,
                "peak_waiting": x.peak_waiting,
                "peak_bytes": x.peak_bytes,
                "peak_rank": x.peak_rank,
            }
            for x in result.stages
        ],
        "ports": [
            {
                "level": x.port.level,
                "child": x.port.child,
                "direction": x.port.direction,
                "transfer": x.transfer,
                "sync": x.sync,
            }
            for x in result.ports
        ],
        "verdict": sentences,
    }
