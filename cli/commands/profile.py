"""`pipeplan profile`: from a PyTorch model to a profile, measured here or estimated."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pipeplan.core.graph import LayerGraph

__all__ = ["command"]


def command(
    factory: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FACTORY",
            help="An importable function that returns (module, example inputs), such as "
            "pipeplan.models.zoo.vgg:vgg16. Importing it runs its code.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The profile to write.")
    ],
    estimate: Annotated[
        str | None,
        typer.Option(
            "--estimate",
            metavar="DEVICE",
            help="Compute the times for a v100, a100, h100 or h200 instead of measuring them; the "
            "model may be larger than this machine.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device", help="Measure on cpu or cuda; default: where the factory puts it."
        ),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(
            "--size",
            metavar="NAME=VALUE",
            help="A keyword argument of the factory; may be repeated.",
        ),
    ] = None,
    keep_whole: Annotated[
        list[str] | None,
        typer.Option(
            "--keep-whole",
            metavar="PATH",
            help="A submodule to keep as one layer; may be repeated.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Default: the factory's.")] = None,
    evaluation: Annotated[
        bool, typer.Option("--eval", help="Profile in evaluation mode, without dropout.")
    ] = False,
    warm_up: Annotated[int, typer.Option("--warm-up", help="Runs before any is timed.")] = 2,
    repeats: Annotated[int, typer.Option("--repeats", help="Timed runs; the median counts.")] = 5,
    graph_txt: Annotated[
        Path | None,
        typer.Option("--graph-txt", metavar="FILE", help="Also write PipeDream's graph.txt."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files.")] = False,
) -> None:
    """Profile a PyTorch model, or estimate it for a device.

    Forward and backward time of every layer, its outputs, what is kept for the backward pass and
    its parameters, for one micro-batch: the example inputs.
    """
    import shlex

    from pipeplan.cli.errors import complain
    from pipeplan.cli.inputs import writable
    from pipeplan.cli.progress import counting
    from pipeplan.core.errors import ProblemError
    from pipeplan.core.units import format_bytes, format_ms, plural

    if estimate is not None and device is not None:
        raise ProblemError("--estimate measures nothing, so --device has no meaning with it")
    for value, option, least in ((warm_up, "--warm-up", 0), (repeats, "--repeats", 1)):
        if not least <= value <= 10_000:
            raise ProblemError(f"{option} is {value}; {least} to 10000 make sense")
    for path in (output, graph_txt):
        if path is not None:
            writable(path, force=force)
    sizes = _sizes(size or [])

    from pipeplan.models.formats import write_graph_txt, write_profile
    from pipeplan.models.formats.suspicions import suspicions
    from pipeplan.models.profiler import profile_model
    from pipeplan.models.profiler.factory import build_model, load_factory, moved

    module, inputs = build_model(
        load_factory(factory), without_memory=estimate is not None, sizes=sizes
    )
    if device is not None:
        module, inputs = moved(module, inputs, device)
    module.train(not evaluation)
    with counting(f"profiling {factory}") as progress:
        graph = profile_model(
            module,
            inputs,
            name=name or factory.rpartition(":")[2],
            estimate=estimate,
            factory=factory,
            sizes=sizes,
            keep_whole=tuple(keep_whole or ()),
            warm_up=warm_up,
            repeats=repeats,
            progress=progress,
        )
    write_profile(graph, output, force=force)
    if graph_txt is not None:
        write_graph_txt(graph, graph_txt, force=force)
    for message in graph.metadata.get("messages", ()):
        typer.echo(f"note: {message}")
    for warning in suspicions(graph):
        complain(f"warning: {output}: {warning}")
    how = f"estimated for {estimate}" if estimate else _measured(graph)
    typer.echo(
        f"{output}: {plural(len(graph), 'layer')}, {format_ms(graph.total_compute_ms)} of compute "
        f"a micro-batch of {graph.metadata['batch']}, "
        f"{format_bytes(graph.total_parameter_bytes)} of parameters; {how}."
    )
    typer.echo("Next, with your own cluster in place of this one:")
    typer.echo(f"  pipeplan solve {shlex.quote(str(output))} {_example(len(graph))}")


def _measured(graph: "LayerGraph") -> str:
    """Where, how often, and how far the repeats lie apart."""
    from pipeplan.core.units import plural
    from pipeplan.models.formats.suspicions import scatter

    found = scatter(graph)
    apart = "" if found is None else f", which scatter by {100 * found:.1f} %"
    times = plural(graph.metadata["repeats"], "repeat")
    return f"measured on {graph.metadata['device']}, {times}{apart}"


def _example(layers: int) -> str:
    """A cluster that a network of so many layers could use."""
    if layers < 8:
        return "-n 2 -b 10GB/s"
    return "-n 4 -b 10GB/s" if layers < 32 else "-n 8 2 -b 10GB/s 1.25GB/s"


def _sizes(pairs: list[str]) -> dict[str, Any]:
    """NAME=VALUE to keyword arguments: numbers, true and false are those, the rest is text."""
    import json
    import math

    from pipeplan.core.errors import ProblemError

    out: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier():
            raise ProblemError(f"--size {pair[:80]!r} is not NAME=VALUE")
        if key in out:
            raise ProblemError(f"--size gives {key} twice")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        number = isinstance(value, int | float) and math.isfinite(value)
        out[key] = value if number else text
    return out
