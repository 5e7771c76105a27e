"""One case run under torchrun, beside the prediction and the simulation."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pipeplan.codegen.package import build_package, write_package
from pipeplan.core.codec import PlanFile, Provenance
from pipeplan.core.cost import evaluate
from pipeplan.core.errors import PipeplanError
from pipeplan.runtime.local import RunOptions, run_here
from pipeplan.runtime.measured import MeasuredRun
from pipeplan.runtime.package import load_package
from pipeplan.validation.measured.cases import Case
from pipeplan.validation.simulation import simulate

__all__ = ["Row", "measure"]


@dataclass(frozen=True, slots=True)
class Row:
    """A case and its run. `floor_ms` is the least period that the schedule allows, which is the
    predicted one except under gpipe; `simulated_ms` what discrete events make of it."""

    case: Case
    floor_ms: float
    simulated_ms: float | None
    run: MeasuredRun

    @property
    def period_ms(self) -> float:
        """Steady period, median over the steps."""
        return median(self.run.periods_ms)

    @property
    def error(self) -> float:
        """Of the prediction: how much longer the measured period is, relative to it."""
        return self.period_ms / self.floor_ms - 1


def measure(case: Case, steps: int, *, tries: int = 1, within: float = 0.05) -> Row:
    """Generate the package, and run it with one thread a rank for this many steps and a warm-up.

    Other work on the machine can only add to what is known to take a certain time. So a case of
    known times that is not `within` the prediction is run again, up to so many `tries`, and the run
    nearest to it counts. Raises PipeplanError where the package does not run, and where the batches
    are too short to have a steady part.
    """
    simulation = simulate(case.problem, case.plan)
    runs: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="pipeplan-") as folder:
        target = Path(folder) / "package"
        evaluation = evaluate(case.problem, case.plan)
        file = PlanFile(case.problem, case.plan, evaluation, Provenance("GIVEN"))
        write_package(build_package(file), target)
        package = load_package(target)
        options = RunOptions(
            steps=steps + 1,
            micro_batches=package.micro_batches,
            schedule="gpipe" if case.problem.schedule == "gpipe" else "1f1b",
            device="cpu",
            threads=1,
        )
        for _ in range(tries if case.known else 1):
            run = run_here(package, options)
            if not run.periods_ms:
                raise PipeplanError(
                    f"{case.name}: {options.micro_batches} micro-batches a batch are too few"
                )
            runs.append(Row(case, simulation.floor_ms, simulation.period_ms, run))
            if abs(runs[-1].error) <= within:
                break
    return min(runs, key=lambda row: abs(row.error))
