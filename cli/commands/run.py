"""`pipeplan run`: train a generated package on this machine, measured beside predicted."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pipeplan.runtime.measured import MeasuredRun

__all__ = ["command"]


def command(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A package that `generate` wrote.")
    ],
    steps: Annotated[int, typer.Option("--steps", min=1, help="Training steps.")] = 10,
    micro_batches: Annotated[
        int | None,
        typer.Option("--micro-batches", min=1, help="Of a step; default: the package's."),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option("--schedule", help="1f1b or gpipe; default: the plan's, else 1f1b."),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", help="auto, cpu or cuda; cpu runs any plan on any machine.")
    ] = "auto",
    dtype: Annotated[str, typer.Option("--dtype", help="float32 or float64.")] = "float32",
    seed: Annotated[int, typer.Option("--seed", help="Of weights and dropout.")] = 0,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds that a rank waits for another.")
    ] = 600.0,
    check: Annotated[
        bool,
        typer.Option(
            "--check/--no-check", help="Train in one process too, and compare each step's loss."
        ),
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Start torchrun here with all ranks of the plan, and train.

    Prints each step's loss beside that of single-process training, and beside the predicted ones
    the steady period, the time of a step, and where each stage's time goes: forward, backward,
    waiting, sending, all-reduce, update. Exit code 1 where the losses differ.
    """
    from pipeplan.core.errors import ProblemError
    from pipeplan.core.jsontext import dump_json
    from pipeplan.runtime.local import (
        LOSS_TOLERANCES,
        RunOptions,
        largest_gap,
        losses_alone,
        run_here,
    )
    from pipeplan.runtime.package import load_package
    from pipeplan.validation.simulation import floor_ms
    from pipeplan.validation.simulation.pipeline import Pipeline

    package = load_package(directory)
    planned = package.plan_file.problem.schedule
    chosen: Any = schedule or ("1f1b" if planned == "pipedream" else planned)
    for name, value, allowed in (
        ("schedule", chosen, ("1f1b", "gpipe")),
        ("device", device, ("auto", "cpu", "cuda")),
        ("dtype", dtype, tuple(LOSS_TOLERANCES)),
    ):
        if value not in allowed:
            raise ProblemError(f"{name} is {value!r}; choose from {', '.join(allowed)}")
    if timeout <= 0:
        raise ProblemError(f"the timeout is {timeout:g} s; it must be above 0")
    options = RunOptions(
        steps=steps,
        micro_batches=micro_batches or package.micro_batches,
        schedule=chosen,
        device=device,  # type: ignore[arg-type]  # just checked
        dtype=dtype,  # type: ignore[arg-type]
        seed=seed,
        timeout_s=timeout,
    )
    measured = run_here(package, options)
    alone = losses_alone(package, options) if check else None
    gap = None if alone is None else largest_gap(measured.losses, alone)
    equal = gap is None or gap <= LOSS_TOLERANCES[dtype]
    floor = floor_ms(Pipeline(measured.problem, package.plan_file.plan))
    if as_json:
        typer.echo(dump_json(_document(measured, floor, alone, gap)), nl=False)
    else:
        lines = [
            *_losses(measured, alone, gap, LOSS_TOLERANCES[dtype]),
            *_times(measured, floor),
        ]
        for line in lines:
            typer.echo(line)
    if not equal:
        raise typer.Exit(1)


def _document(
    run: "MeasuredRun", floor_ms: float, alone: list[float] | None, gap: float | None
) -> dict[str, Any]:
    return {
        "losses": list(run.losses),
        "single_process_losses": alone,
        "largest_relative_difference": gap,
        "period_ms": run.period_ms,
        "periods_ms": list(run.periods_ms),
        "predicted_period_ms": run.predicted_period_ms,
        "floor_period_ms": floor_ms,
        "step_ms": run.step_ms,
        "predicted_step_ms": run.predicted_step_ms,
        "stages": [
            {
                "stage": x.stage,
                "forward_ms": x.forward_ms,
                "predicted_forward_ms": x.predicted_forward_ms,
                "backward_ms": x.backward_ms,
                "predicted_backward_ms": x.predicted_backward_ms,
                "compute_ms": x.compute_ms,
                "predicted_compute_ms": x.predicted_compute_ms,
                "wait_ms": x.wait_ms,
                "predicted_wait_ms": x.predicted_wait_ms,
                "send_ms": x.send_ms,
                "sync_ms": x.sync_ms,
                "predicted_sync_ms": x.predicted_sync_ms,
                "update_ms": x.update_ms,
            }
            for x in run.stages
        ],
        "cuts": [
            {
                "after_stage": x.stage,
                "activation_ms": x.activation_ms,
                "gradient_ms": x.gradient_ms,
                "predicted_ms": x.predicted_ms,
            }
            for x in run.cuts
        ],
    }


def _losses(
    run: "MeasuredRun", alone: list[float] | None, gap: float | None, tolerance: float
) -> list[str]:
    lines = ["", f"{'step':>6}  {'loss':>14}" + ("" if alone is None else "  one process")]
    for i, loss in enumerate(run.losses):
        beside = "" if alone is None else f"  {alone[i]:.9g}"
        lines.append(f"{run.first_step + i:>6}  {loss:>14.9g}{beside}")
    if gap is not None:
        verdict = "equal" if gap <= tolerance else "NOT equal"
        lines += [
            f"{verdict} to single-process training: {gap:.1e} relative, {tolerance:g} allowed"
        ]
    return lines


def _times(run: "MeasuredRun", floor_ms: float) -> list[str]:
    lines = ["", f"{'ms':>11}  {'measured':>12}  {'predicted':>12}"]
    lines.append(f"{'period':>11}  {_ms(run.period_ms)}  {_ms(run.predicted_period_ms)}")
    lines.append(f"{'whole step':>11}  {_ms(run.step_ms)}  {_ms(run.predicted_step_ms)}")
    lines += ["", "Where the time of each stage's ranks goes, ms per micro-batch of the pipeline"]
    columns = ("forward", "backward", "waiting", "sending", "all-reduce", "update")
    lines.append(f"{'stage':>5} {'':>9}" + "".join(f"{x:>12}" for x in columns))
    for x in run.stages:
        measured = (x.forward_ms, x.backward_ms, x.wait_ms, x.send_ms, x.sync_ms, x.update_ms)
        predicted = (
            x.predicted_forward_ms,
            x.predicted_backward_ms,
            x.predicted_wait_ms,
            None,
            x.predicted_sync_ms,
            None,
        )
        lines.append(f"{x.stage:>5} {'measured':>9}" + "".join(map(_ms, measured)))
        lines.append(f"{'':>5} {'predicted':>9}" + "".join(map(_ms, predicted)))
    if run.cuts:
        lines += ["", "One message, ms from the pass that makes it to the pass that waits for it"]
        lines.append(f"{'cut':>7}{'activation':>12}{'gradient':>12}{'predicted':>12}")
    for cut in run.cuts:
        times = (cut.activation_ms, cut.gradient_ms, cut.predicted_ms)
        lines.append(f"{f'{cut.stage} -> {cut.stage + 1}':>7}" + "".join(map(_ms, times)))
    lines.append("")
    if run.step_ms is None:
        lines.append("Times need two steps or more: the first one warms up.")
    elif run.period_ms is None:
        lines.append("A step is too short to have a steady part; --micro-batches makes it longer.")
    if floor_ms > run.predicted_period_ms * (1 + 1e-9):
        lines.append(
            f"{run.problem.schedule} runs no backward pass beside a forward pass of the same rank: "
            f"it allows a period of {floor_ms:.3f} ms at best."
        )
    lines.append("Predictions are for the device of the profile and the cluster of the plan.")
    return lines


def _ms(value: float | None) -> str:
    return f"{'-':>12}" if value is None else f"{value:>12.3f}"
