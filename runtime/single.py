"""The same training in one process: what a pipeline's losses are compared with."""

import torch
from torch import Tensor

from pipeplan.runtime.package import LoadedPackage
from pipeplan.runtime.recipe import Recipe, Settings
from pipeplan.runtime.runner import StageRunner
from pipeplan.runtime.stage import StageModule

__all__ = ["build_stages", "train_alone"]


def build_stages(
    package: LoadedPackage, settings: Settings, device: torch.device
) -> list[StageModule]:
    """All stages with their initial weights, parameters tied across stages being one."""
    stages = [
        package.build_stage(s, settings.seed).to(device=device, dtype=settings.dtype)
        for s in range(package.stages)
    ]
    for names in package.tied:
        first: torch.nn.Parameter | None = None
        for stage in stages:
            for own, parameter in list(stage.named_parameters(remove_duplicate=False)):
                if stage.original_name(own) in names:
                    first = parameter if first is None else first
                    owner, _, attribute = own.rpartition(".")
                    setattr(stage.get_submodule(owner), attribute, first)
    return stages


def train_alone(
    package: LoadedPackage,
    recipe: Recipe,
    settings: Settings,
    device: torch.device | None = None,
) -> tuple[list[float], list[StageModule]]:
    """Loss of each step, and the stages as they are afterwards.

    Micro-batch by micro-batch, gradients summed, one optimizer step a batch.
    """
    where = torch.device("cpu") if device is None else device
    stages = build_stages(package, settings, where)
    runners = [
        StageRunner(stage, recipe, settings, is_last=s == len(stages) - 1, device=where)
        for s, stage in enumerate(stages)
    ]
    parameters = list(dict.fromkeys(p for stage in stages for p in stage.parameters()))
    optimizer = recipe.optimizer(parameters)
    losses: list[float] = []
    for step in range(settings.steps):
        optimizer.zero_grad()
        total = torch.zeros((), dtype=settings.dtype, device=where)
        for m in range(settings.micro_batches):
            values: tuple[Tensor, ...] = ()
            for runner in runners:
                grads = tuple(x.requires_grad for x in values)
                cut = tuple(x.detach() for x in values)
                values = runner.forward(step, m, cut, grads)
            total += runners[-1].loss_of(m)
            gradients: tuple[Tensor, ...] = ()
            for runner in reversed(runners):
                gradients = runner.backward(m, gradients)
        optimizer.step()
        losses.append(total.item())
    return losses, stages
