"""Pipelines over processes: the losses of one process, and what happens when a rank dies.

Most of it starts ranks from a server process that has imported torch already; torchrun itself,
which imports it anew for every rank, starts once here, and for all plans with `pytest -m slow`.
"""

import importlib
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeplan.models.zoo import FACTORIES
from pipeplan.runtime.local import RunOptions, largest_gap, losses_alone
from pipeplan.runtime.measured import read_run
from pipeplan.runtime.package import load_package, load_recipe
from pipeplan.runtime.recipe import Recipe, Settings
from pipeplan.runtime.single import train_alone

STEPS = 10
RTOL = 1e-6
NET = "pipeplan_small_nets:net"


@dataclass
class Ranks:
    processes: list[Any]
    logs: list[Path]

    def wait(self, seconds: float) -> list[int | None]:
        """Exit codes; None for a rank that is still there."""
        deadline = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
        return [process.exitcode for process in self.processes]

    def said(self, rank: int) -> str:
        log = self.logs[rank]
        return log.read_text() if log.exists() else ""

    def end(self) -> None:
        for process in self.processes:
            if process.is_alive():
                process.kill()
                process.join()


@pytest.fixture
def start(tmp_path: Path, factories: Path) -> Any:
    """Start all ranks of a package; they are ended with the test."""
    one_rank = importlib.import_module("pipeplan_one_rank").run
    context = multiprocessing.get_context("forkserver")
    # The optimizers of torch import its compiler, which takes longer than all these tests.
    context.set_forkserver_preload(["torch._dynamo", "pipeplan.runtime.launch"])
    started: list[Ranks] = []

    def begin(directory: Path, *arguments: str) -> Ranks:
        world = load_package(directory).plan_file.problem.cluster.devices
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        processes, logs = [], []
        for rank in range(world):
            environment = {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
                "PYTHONPATH": str(factories),
            }  # fmt: skip
            log = tmp_path / f"log_{len(started)}_{rank}"
            given = ["--device=cpu", "--dtype=float64", "--timeout=20", *arguments]
            process = context.Process(
                target=one_rank, args=(str(directory), given, environment, str(log)), daemon=True
            )
            process.start()
            processes.append(process)
            logs.append(log)
        ranks = Ranks(processes, logs)
        started.append(ranks)
        return ranks

    yield begin
    for ranks in started:
        ranks.end()


def alone(directory: Path, steps: int, **changes: Any) -> list[float]:
    package = load_package(directory)
    settings: dict[str, Any] = {
        "steps": steps, "micro_batches": package.micro_batches, "schedule": "1f1b",
        "dtype": "float64", **changes,
    }  # fmt: skip
    return losses_alone(package, RunOptions(**settings))


def losses(folder: Path, directory: Path) -> list[float]:
    package = load_package(directory)
    return list(read_run(folder, package.plan_file).losses)


@pytest.mark.parametrize(
    ("replicas", "schedule", "micro_batches", "engine"),
    [
        ([2, 1, 1], "1f1b", 6, "auto"),
        ([3, 1], "1f1b", 6, "auto"),
        ([1, 2, 1], "1f1b", 5, "auto"),
        ([1, 2, 1], "gpipe", 4, "auto"),
        ([2, 2], "1f1b", 4, "own"),
        ([2, 2], "1f1b", 4, "torch"),
        ([1, 1, 1], "gpipe", 2, "torch"),
        ([4], "1f1b", 4, "auto"),
    ],
)
def test_ten_steps_equal_one_process(
    replicas: list[int],
    schedule: str,
    micro_batches: int,
    engine: str,
    start: Callable[..., Ranks],
    make_package: Callable[..., Path],
    tmp_path: Path,
) -> None:
    directory = make_package(NET, replicas)
    metrics = tmp_path / "metrics"
    ranks = start(
        directory,
        f"--steps={STEPS}",
        f"--schedule={schedule}",
        f"--micro-batches={micro_batches}",
        f"--engine={engine}",
        f"--metrics={metrics}",
    )
    assert ranks.wait(120) == [0] * sum(replicas), [ranks.said(r) for r in range(sum(replicas))]
    expected = alone(directory, STEPS, micro_batches=micro_batches)
    found = losses(metrics, directory)
    assert largest_gap(found, expected) <= RTOL
    # Ten different numbers: the comparison is of a training that moves.
    assert len(set(expected)) == STEPS


def test_one_process_is_plain_training_of_the_original(make_package: Callable[..., Path]) -> None:
    """What the pipelines are compared with is itself compared: with the model, uncut."""
    package = load_package(make_package(NET, [1, 1, 1], {"dropout": 0.0}))
    recipe = load_recipe(package)
    settings = Settings(steps=5, micro_batches=3, dtype=torch.float64)
    found, _ = train_alone(package, recipe, settings)
    from pipeplan.runtime.original import original_model
    from pipeplan.runtime.seeds import INITIAL, seeded

    seeded(0, INITIAL, 0, 0)
    model = original_model(package.factory, package.sizes).double()
    optimizer = recipe.optimizer(list(model.parameters()))
    expected = []
    for step in range(5):
        optimizer.zero_grad()
        total = 0.0
        for m in range(3):
            outputs = (model(recipe.inputs(step, m)["x"].double()),)
            loss = recipe.loss(outputs, recipe.labels(step, m, outputs)) / 3
            loss.backward()
            total += loss.item()
        optimizer.step()
        expected.append(total)
    assert largest_gap(found, expected) <= 1e-12


def test_several_tensors_and_whole_numbers_travel(
    start: Callable[..., Ranks], make_package: Callable[..., Path], tmp_path: Path
) -> None:
    """A network of attention: an encoder's result relayed beside the decoder's stream."""
    sizes = {"batch": 2, "length": 5, "vocabulary": 19, "width": 8, "heads": 2, "layers": 1}
    directory = make_package(FACTORIES["encoder_decoder"], [1, 2, 1], sizes)
    ranks = start(directory, "--steps=3", "--micro-batches=3", f"--metrics={tmp_path / 'm'}")
    assert ranks.wait(120) == [0] * 4, [ranks.said(r) for r in range(4)]
    expected = alone(directory, 3, micro_batches=3)
    assert largest_gap(losses(tmp_path / "m", directory), expected) <= RTOL


def test_tied_weights_parted_by_a_plan_stay_equal(
    start: Callable[..., Ranks], make_package: Callable[..., Path], tmp_path: Path
) -> None:
    """A plan may part them (cost model pipedream knows no groups): gradients are summed then."""
    sizes = {"batch": 2, "length": 4, "vocabulary": 11, "width": 8, "heads": 2, "layers": 1}
    directory = make_package(FACTORIES["gpt"], [2, 1], {**sizes, "dropout": 0.0}, parted=True)
    package = load_package(directory)
    held = [
        {stage.original_name(x) for x in stage.state_dict()}
        for stage in (package.build_stage(s, 0) for s in range(2))
    ]
    assert "tokens.weight" in held[0]
    assert {"tokens.weight", "head.weight"} & held[1]
    ranks = start(
        directory, "--steps=4", "--micro-batches=3", f"--metrics={tmp_path / 'm'}",
        f"--checkpoint={tmp_path / 'c'}", "--checkpoint-every=4",
    )  # fmt: skip
    assert ranks.wait(120) == [0] * 3, [ranks.said(r) for r in range(3)]
    expected = alone(directory, 4, micro_batches=3)
    assert largest_gap(losses(tmp_path / "m", directory), expected) <= RTOL
    saved = [torch.load(tmp_path / "c" / "step_4" / f"stage_{s}.pt")["stage"] for s in range(2)]
    a = next(v for k, v in saved[0].items() if k.startswith("tokens"))
    b = next(v for k, v in saved[1].items() if k.startswith("head"))
    assert torch.equal(a, b)


KILLER = """
import os, signal
from pathlib import Path
_loss = loss
def loss(outputs, labels):
    if os.environ.get("RANK") == "{rank}" and Path({flag!r}).exists():
        global _count
        _count = globals().get("_count", 0) + 1
        if _count == {count}:
            os.kill(os.getpid(), signal.SIGKILL)
    return _loss(outputs, labels)
"""


def with_a_killer(directory: Path, rank: int, count: int, flag: Path) -> None:
    """Let train.py end its own rank hard at its `count`-th loss, as long as the flag is there."""
    path = directory / "train.py"
    text = path.read_text()
    head, main_part, tail = text.partition('if __name__ == "__main__":')
    killer = KILLER.format(rank=rank, flag=str(flag), count=count)
    path.write_text(head + killer + "\n\n" + main_part + tail)
    flag.write_text("")


def test_when_a_rank_dies_the_others_say_so_and_a_checkpoint_goes_on(
    start: Callable[..., Ranks], make_package: Callable[..., Path], tmp_path: Path
) -> None:
    directory = make_package(NET, [2, 1, 1])
    flag = tmp_path / "kill"
    # Six micro-batches a step: the 27th loss is in step 4.
    with_a_killer(directory, rank=3, count=27, flag=flag)
    common = [
        f"--steps={STEPS}", "--micro-batches=6", f"--checkpoint={tmp_path / 'c'}",
        "--checkpoint-every=2", f"--metrics={tmp_path / 'm'}",
    ]  # fmt: skip
    ranks = start(directory, *common)
    ranks.processes[3].join(60)
    assert ranks.processes[3].exitcode == -signal.SIGKILL
    began = time.monotonic()
    codes = ranks.wait(30)
    assert time.monotonic() - began < 30
    assert codes[:3] == [1, 1, 1]
    said = ranks.said(2)
    assert re.search(r"rank 2 \(stage 1, replica 0\).*micro-batch \d+ .*rank 3", said), said
    flag.unlink()
    ranks = start(directory, *common, "--resume")
    assert ranks.wait(120) == [0] * 4, [ranks.said(r) for r in range(4)]
    record = json.loads((tmp_path / "m" / "rank_3.json").read_text())["steps"]
    assert [x["step"] for x in record] == list(range(4, STEPS))
    expected = alone(directory, STEPS, micro_batches=6)
    assert largest_gap([x["loss"] for x in record], expected[4:]) <= RTOL


def test_torchs_schedule_ends_too_when_a_rank_dies(
    start: Callable[..., Ranks], make_package: Callable[..., Path], tmp_path: Path
) -> None:
    directory = make_package(NET, [1, 1, 1])
    # Four micro-batches a step: the 10th loss is in step 2.
    with_a_killer(directory, rank=2, count=10, flag=tmp_path / "kill")
    ranks = start(directory, f"--steps={STEPS}", "--micro-batches=4", "--engine=torch")
    ranks.processes[2].join(60)
    assert ranks.processes[2].exitcode == -signal.SIGKILL
    assert ranks.wait(30)[:2] == [1, 1]
    assert re.search(r"rank 1 \(stage 1, replica 0\): failed while .*micro-batch", ranks.said(1))


SLOW = """
import time
_inputs = inputs
def inputs(step, micro_batch):
    if step == {step}:
        time.sleep(60)
    return _inputs(step, micro_batch)


"""


def made_slow(directory: Path, step: int) -> None:
    """Let stage 0 sleep before its first micro-batch of a step."""
    path = directory / "train.py"
    head, main_part, tail = path.read_text().partition('if __name__ == "__main__":')
    path.write_text(head + SLOW.format(step=step) + main_part + tail)


def test_a_silent_peer_is_named_after_the_timeout(
    start: Callable[..., Ranks], make_package: Callable[..., Path]
) -> None:
    directory = make_package(NET, [1, 1])
    made_slow(directory, 1)
    ranks = start(directory, "--steps=3", "--timeout=2", "--engine=own")
    ranks.processes[1].join(60)
    assert ranks.processes[1].exitcode == 1
    assert re.search(r"rank 1 \(stage 1, replica 0\).*micro-batch 0 from rank 0", ranks.said(1))


def test_sigterm_says_where_the_rank_was(
    start: Callable[..., Ranks], make_package: Callable[..., Path]
) -> None:
    directory = make_package(NET, [1, 1])
    made_slow(directory, 1)
    ranks = start(directory, "--steps=2", "--timeout=60", "--engine=own")
    deadline = time.monotonic() + 60
    while "step 0: loss" not in ranks.said(1) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    os.kill(ranks.processes[1].pid, signal.SIGTERM)
    ranks.processes[1].join(20)
    assert ranks.processes[1].exitcode == 143
    assert (
        "rank 1 (stage 1, replica 0): stopped by SIGTERM while waiting for micro-batch 0 from "
        "rank 0" in ranks.said(1)
    )


def run_torchrun(
    directory: Path, processes: int, *arguments: str
) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        f"--nproc-per-node={processes}", str(directory / "train.py"), "--device=cpu",
        "--dtype=float64", "--timeout=25", *arguments,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, env=environment, check=False
    )


def test_torchrun(make_package: Callable[..., Path], tmp_path: Path) -> None:
    directory = make_package(NET, [2, 1, 1])
    done = run_torchrun(directory, 4, f"--steps={STEPS}", f"--metrics={tmp_path / 'm'}")
    assert done.returncode == 0, done.stderr[-3000:]
    expected = alone(directory, STEPS)
    assert largest_gap(losses(tmp_path / "m", directory), expected) <= RTOL
    assert f"step {STEPS - 1}: loss" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [[2, 1, 1], [3, 1], [1, 2, 1]])
def test_torchrun_for_every_plan(
    replicas: list[int], make_package: Callable[..., Path], tmp_path: Path
) -> None:
    directory = make_package(NET, replicas)
    done = run_torchrun(directory, 4, f"--steps={STEPS}", f"--metrics={tmp_path / 'm'}")
    assert done.returncode == 0, done.stderr[-3000:]
    assert largest_gap(losses(tmp_path / "m", directory), alone(directory, STEPS)) <= RTOL


@pytest.mark.slow
def test_torchrun_ends_all_ranks_when_one_is_killed(
    make_package: Callable[..., Path], tmp_path: Path
) -> None:
    directory = make_package(NET, [2, 1, 1])
    flag = tmp_path / "kill"
    with_a_killer(directory, rank=3, count=27, flag=flag)
    common = [
        f"--steps={STEPS}", "--micro-batches=6", f"--checkpoint={tmp_path / 'c'}",
        "--checkpoint-every=2", f"--metrics={tmp_path / 'm'}",
    ]  # fmt: skip
    done = run_torchrun(directory, 4, *common)
    assert done.returncode != 0
    assert re.search(r"rank [012] \(stage \d, replica \d\)", done.stderr), done.stderr[-3000:]
    flag.unlink()
    done = run_torchrun(directory, 4, *common, "--resume")
    assert done.returncode == 0, done.stderr[-3000:]
    record = json.loads((tmp_path / "m" / "rank_3.json").read_text())["steps"]
    expected = alone(directory, STEPS, micro_batches=6)
    assert largest_gap([x["loss"] for x in record], expected[4:]) <= RTOL


def test_too_few_ranks_are_told_how_many(
    make_package: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    from pipeplan.runtime import launch

    directory = make_package(NET, [2, 1, 1])
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    ended: list[int] = []

    def end(code: int) -> None:
        ended.append(code)
        raise SystemExit(code)

    monkeypatch.setattr(launch.os, "_exit", end)
    package = load_package(directory)
    recipe: Recipe = load_recipe(package)
    with pytest.raises(SystemExit):
        launch.main(directory, recipe, ["--device=cpu"])
    assert ended == [1]
    assert "2 ranks were started, but the plan uses ranks up to 3" in capfd.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--steps=0"], ["--timeout=-1"], ["--micro-batches=0"], ["--schedule=zigzag"], []]
)
def test_a_wrong_command_line_ends_with_2(
    arguments: list[str], make_package: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeplan.runtime import launch

    monkeypatch.delenv("RANK", raising=False)
    directory = make_package(NET, [1, 1])
    with pytest.raises(SystemExit) as caught:
        launch.main(directory, load_recipe(load_package(directory)), arguments)
    assert caught.value.code == 2
