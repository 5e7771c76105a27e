"""What train.py calls on every rank: reads the command line, joins the others, trains."""

import argparse
import json
import os
import sys
import traceback
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NoReturn

import torch
import torch.distributed as dist

from pipeplan.core.errors import PipeplanError
from pipeplan.core.routing import micro_batch_paths
from pipeplan.core.units import plural
from pipeplan.runtime.channel import greet
from pipeplan.runtime.failure import Whereabouts, stop_on_signals
from pipeplan.runtime.orders import orders
from pipeplan.runtime.package import LoadedPackage, load_package
from pipeplan.runtime.recipe import Recipe, Settings
from pipeplan.runtime.replicas import Replicas, tied_across
from pipeplan.runtime.runner import StageRunner
from pipeplan.runtime.saving import Checkpoints
from pipeplan.runtime.schedule import SyncSchedule, limits, ticks_of
from pipeplan.runtime.steplog import Clock, StepLog
from pipeplan.runtime.torch_pipeline import TorchWorker, chains_of, mesh_of
from pipeplan.runtime.worker import Groups, Worker, groups_of

__all__ = ["Recipe", "main"]

_DTYPES: Final = ("float32", "float64", "bfloat16", "float16")


def main(directory: Path, recipe: Recipe, arguments: Sequence[str] | None = None) -> None:
    """Train a package; started by torchrun on every rank, see the package's README.

    Ends the process with 2 for a wrong command line, and with 1 and a message that names rank,
    stage, peer and micro-batch where something fails on the way.
    """
    options = _options(arguments)
    try:
        package = load_package(directory)
        _train(package, recipe, options)
    except PipeplanError as error:
        if os.environ.get("PIPEPLAN_TRACEBACK") == "1":
            traceback.print_exc()
        known = str(error).startswith("rank ")
        _end(str(error) if known else f"rank {os.environ.get('RANK', '?')}: {error}", 1)
    except Exception as error:
        traceback.print_exc()
        _end(f"rank {os.environ.get('RANK', '?')}: {type(error).__name__}: {error}", 1)


def _end(message: str, code: int) -> NoReturn:
    print(f"pipeplan: {message}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    # Not sys.exit: communication that will never finish would hold the process back.
    os._exit(code)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train this pipeline under torchrun.")
    add = parser.add_argument
    add("--steps", type=int, default=10, help="steps in all, those before --resume included")
    add("--micro-batches", type=int, help="micro-batches of a step (default: the package's)")
    add("--schedule", choices=("1f1b", "gpipe"), help="default: the plan's, 1f1b for pipedream")
    add(
        "--engine",
        choices=("auto", "own", "torch"),
        default="auto",
        help="who runs the schedule: on GPUs torch.distributed.pipelining where it can, else "
        "pipeplan",
    )
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")
    add("--dtype", choices=_DTYPES, default="float32")
    add("--seed", type=int, default=0, help="of initial weights and dropout")
    add("--timeout", type=float, default=600.0, help="seconds that a rank waits for another")
    add("--checkpoint", type=Path, help="folder of checkpoints (default: DIR/checkpoints)")
    add("--checkpoint-every", type=int, default=0, help="steps between checkpoints; 0: none")
    add("--resume", action="store_true", help="go on from the last complete checkpoint")
    add("--metrics", type=Path, help="folder for one file of losses and times a rank")
    options = parser.parse_args(arguments)
    for name in ("steps", "timeout"):
        if not getattr(options, name) > 0:
            parser.error(f"--{name} must be above 0")
    if options.micro_batches is not None and options.micro_batches < 1:
        parser.error("--micro-batches must be above 0")
    if "RANK" not in os.environ:
        parser.error("start it with torchrun: the commands are in README.md")
    return options


def _settings(package: LoadedPackage, options: argparse.Namespace) -> Settings:
    problem = package.plan_file.problem
    planned: SyncSchedule = "gpipe" if problem.schedule == "gpipe" else "1f1b"
    return Settings(
        steps=options.steps,
        micro_batches=options.micro_batches or package.micro_batches,
        schedule=options.schedule or planned,
        seed=options.seed,
        dtype=getattr(torch, options.dtype),
        recompute=problem.recompute,
    )


def _device(options: argparse.Namespace) -> torch.device:
    kind = options.device
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cpu":
        return torch.device("cpu")
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if local >= torch.cuda.device_count():
        raise PipeplanError(
            f"local rank {local} has no GPU: this machine has {torch.cuda.device_count()} "
            "(--device cpu runs without)"
        )
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def _train(package: LoadedPackage, recipe: Recipe, options: argparse.Namespace) -> None:
    plan = package.plan_file.plan
    cluster = package.plan_file.problem.cluster
    settings = _settings(package, options)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    needed = max(plan.stage_of_rank) + 1
    if world < needed:
        raise PipeplanError(
            f"{plural(world, 'rank was', 'ranks were')} started, but the plan uses ranks up "
            f"to {needed - 1}: start {cluster.devices}, as README.md says"
        )
    device = _device(options)
    stage = plan.stage_of_rank.get(rank)
    replica = 0 if stage is None else plan.stages[stage].ranks.index(rank)
    where = Whereabouts(rank, stage, replica, options.timeout, device)
    stop_on_signals(where)
    print(f"{where.who}: process {os.getpid()} on {device}", flush=True)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        timeout=timedelta(seconds=options.timeout),
        device_id=device if device.type == "cuda" else None,
    )
    groups = groups_of(plan)
    tied = [
        (group.names, dist.new_group(list(group.ranks)), group.ranks)
        for group in tied_across(package, plan)
    ]
    paths = micro_batch_paths(cluster, plan, settings.micro_batches)
    # torch's schedule waits for what it sends, and with gloo that is until the peer has taken it.
    own = options.engine == "own" or (options.engine == "auto" and device.type == "cpu")
    chains = None if own else chains_of(plan, paths, settings.schedule)
    if options.engine == "torch" and chains is None:
        raise PipeplanError(
            "torch.distributed.pipelining needs equally many replicas of every stage, and "
            "micro-batches that divide among them, at least one for each stage"
        )
    mesh = None if chains is None else mesh_of(chains, device)
    if stage is not None:
        pairs = sorted({pair for path in paths for pair in pairwise(path)})
        greet(pairs, rank, (groups.forward, groups.backward), device, where)
        module = package.build_stage(stage, settings.seed).to(device=device, dtype=settings.dtype)
        runner = StageRunner(
            module, recipe, settings, is_last=stage == len(plan.stages) - 1, device=device
        )
        replicas = Replicas(
            module,
            groups.stages[stage],
            plan.stages[stage].ranks[0],
            [(names, group, ranks[0]) for names, group, ranks in tied if rank in ranks],
            where,
        )
        clock = Clock(device)
        worker: Worker | TorchWorker
        if mesh is not None and chains is not None:
            worker = TorchWorker(
                runner, plan, paths, chains, mesh, groups, settings, device, clock, where
            )
        else:
            held = limits(plan, settings.schedule, paths)
            ticks = ticks_of(package.plan_file.problem, plan)
            events = orders(paths, held, settings.schedule, ticks)
            worker = Worker(runner, plan, paths, events, groups, device, clock, where)
        _Loop(
            package, recipe, options, settings, worker, runner, replicas, groups, clock, where
        ).run()
        where.wait(lambda: dist.barrier(groups.active), "waiting for all to finish")
    dist.destroy_process_group()


class _Loop:
    """Steps, checkpoints and the record of one rank."""

    def __init__(
        self,
        package: LoadedPackage,
        recipe: Recipe,
        options: argparse.Namespace,
        settings: Settings,
        worker: Worker | TorchWorker,
        runner: StageRunner,
        replicas: Replicas,
        groups: Groups,
        clock: Clock,
        where: Whereabouts,
    ) -> None:
        self._clock = clock
        self._options = options
        self._settings = settings
        self._worker = worker
        self._runner = runner
        self._replicas = replicas
        self._where = where
        self._stage = runner.stage
        self._ranks = package.plan_file.plan.stages[self._stage.INDEX].ranks
        self._groups = groups
        self._group = groups.stages[self._stage.INDEX]
        self._saved = Checkpoints(options.checkpoint or package.directory / "checkpoints")
        self._parameters = [p for p in self._stage.parameters() if p.requires_grad]
        self._optimizer = recipe.optimizer(self._parameters) if self._parameters else None
        self._records: list[dict[str, Any]] = []

    def run(self) -> None:
        """All steps."""
        device = self._where.device
        first = 0
        if self._options.resume:
            first = self._saved.latest()
            self._saved.load(first, self._stage, self._optimizer, device)
        self._replicas.agree_at_start()
        self._stage.train()
        for step in range(first, self._settings.steps):
            self._where.doing = f"in step {step}"
            began_s = self._clock.now_s()
            self._replicas.begin_step()
            for parameter in self._parameters:
                parameter.grad = None
            loss, log = self._worker.run_batch(step)
            self._replicas.sum_gradients()
            summed_s = self._clock.now_s()
            if self._optimizer is not None:
                self._optimizer.step()
            updated_s = self._clock.now_s()
            self._replicas.agree_on_buffers(
                self._worker.micro_batches, self._settings.micro_batches
            )
            ended_s = self._clock.now_s()
            self._record(
                step,
                loss,
                log,
                seconds=ended_s - began_s,
                sync_s=(summed_s - log.sent_s) + (ended_s - updated_s),
                update_s=updated_s - summed_s,
            )
            every = self._options.checkpoint_every
            if every and (step + 1) % every == 0:
                self._save(step + 1)
        self._write_records()

    def _record(
        self, step: int, loss: Any, log: StepLog, *, seconds: float, sync_s: float, update_s: float
    ) -> None:
        entry: dict[str, Any] = {
            "step": step,
            "seconds": seconds,
            "sync_s": sync_s,
            "update_s": update_s,
            **log.to_json(),
        }
        if self._runner.is_last:
            if self._group is not None:
                work = dist.all_reduce(loss, group=self._group, async_op=True)
                self._where.wait_for(work, "summing the loss with the other replicas")
            entry["loss"] = loss.item()
            if self._where.rank == self._ranks[0]:
                print(f"step {step}: loss {entry['loss']:.9g}, {seconds * 1e3:.1f} ms", flush=True)
        if self._options.metrics is not None:
            self._records.append(entry)

    def _save(self, step: int) -> None:
        if self._where.rank == self._ranks[0]:
            self._saved.save(step, self._stage, self._optimizer)
        self._where.wait(
            lambda: dist.barrier(self._groups.active), f"waiting for the checkpoint of step {step}"
        )
        if self._stage.INDEX == 0 and self._where.rank == self._ranks[0]:
            self._saved.complete(step)

    def _write_records(self) -> None:
        folder = self._options.metrics
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        document = {
            "rank": self._where.rank,
            "stage": self._stage.INDEX,
            "schedule": self._settings.schedule,
            "micro_batches": self._settings.micro_batches,
            "steps": self._records,
        }
        (folder / f"rank_{self._where.rank}.json").write_text(json.dumps(document) + "\n")
