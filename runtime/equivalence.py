"""Whether the stages together compute what the original does: results, loss, gradients, buffers."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from pipeplan.codegen.package import build_package, write_package
from pipeplan.core.codec import PlanFile, Provenance
from pipeplan.core.cost import evaluate
from pipeplan.core.errors import PipeplanError
from pipeplan.core.plan import Plan, Stage
from pipeplan.core.units import plural
from pipeplan.models.capture import split_inputs
from pipeplan.models.capture.values import leaves, map_leaves
from pipeplan.runtime.original import original_and_inputs
from pipeplan.runtime.package import LoadedPackage, load_package, load_recipe
from pipeplan.runtime.recipe import Recipe
from pipeplan.runtime.seeds import INITIAL, seeded
from pipeplan.runtime.stage import StageModule

__all__ = ["TOLERANCES", "Difference", "Verdict", "verify"]

Mode = Literal["train", "eval"]

TOLERANCES: Final = {"float64": 1e-10, "float32": 1e-4}
"""Largest accepted difference, relative to the largest element of what is compared."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One tensor of both: `kind` is output, loss, gradient or buffer; `stage` None for results."""

    mode: Mode
    kind: Literal["output", "loss", "gradient", "buffer"]
    name: str
    stage: int | None
    max_abs: float
    max_rel: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """All differences, and the tolerance that they are held against."""

    differences: tuple[Difference, ...]
    tolerance: float
    original: str

    @property
    def failures(self) -> tuple[Difference, ...]:
        """Differences beyond the tolerance; one that is no number is beyond it."""
        return tuple(x for x in self.differences if not x.max_rel <= self.tolerance)

    @property
    def holds(self) -> bool:
        """Whether there are none."""
        return not self.failures


class _SameDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Every random operation draws what its kind and shape alone determine.

    Stages may run branches in another order than the original: then a common seed gives them other
    dropout masks, and this gives them the same.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            shape = next((tuple(x.shape) for x in leaves(args) if isinstance(x, Tensor)), ())
            seeded(0, 0, 0, 0, sum((i + 1) * n for i, n in enumerate(shape)))
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class _Original:
    """The whole model, as a function of the network's inputs by name."""

    module: nn.Module
    inputs: Mapping[str, Tensor]
    run: Callable[[Mapping[str, Tensor]], tuple[Tensor, ...]]
    name: str


def verify(package: LoadedPackage, *, dtype: str = "float64", seed: int = 0) -> Verdict:
    """Run stages and original on the same inputs and weights, in training and in evaluation mode.

    Where the original returns fewer results in evaluation mode, the first ones are compared. The
    original is what the factory makes; a package of layer texts has none, and is compared with
    the whole graph as one stage. Gradients are those of the loss of train.py. Raises PipeplanError
    for unknown dtypes and where either fails to run.
    """
    if dtype not in TOLERANCES:
        raise PipeplanError(f"dtype is {dtype!r}; choose from {', '.join(TOLERANCES)}")
    precision: torch.dtype = getattr(torch, dtype)
    recipe = load_recipe(package)
    with torch.random.fork_rng(devices=[]), _original(package, recipe, precision, seed) as original:
        differences: list[Difference] = []
        stages = [package.build_stage(s, seed).to(precision) for s in range(package.stages)]
        modes: tuple[Mode, ...] = ("train", "eval")
        for mode in modes:
            state = {k: v.clone() for k, v in original.module.state_dict().items()}
            for stage in stages:
                stage.load_state_dict(state)
            try:
                differences += _compare(original, stages, recipe, mode)
            except PipeplanError:
                raise
            except Exception as error:
                reason = str(error).strip().split("\n", 1)[0][:300]
                raise PipeplanError(f"in {mode} mode: {type(error).__name__}: {reason}") from error
    return Verdict(tuple(differences), TOLERANCES[dtype], original.name)


@contextmanager
def _original(
    package: LoadedPackage, recipe: Recipe, precision: torch.dtype, seed: int
) -> Iterator[_Original]:
    if package.factory:
        seeded(seed, INITIAL, 0, 0)
        module, given = original_and_inputs(package.factory, package.sizes)
        whole: Any = map_leaves(
            lambda x: _cast(x, precision) if isinstance(x, Tensor) else x, split_inputs(given)
        )
        inputs = {name: _at(whole, path) for name, path in package.inputs.items()}
        module = module.to(precision)

        def run(values: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
            by_id = {id(tensor): values[name] for name, tensor in inputs.items()}
            args, kwargs = map_leaves(lambda x: by_id.get(id(x), x), whole)
            return tuple(
                x for x in leaves(_plain(module(*args, **kwargs))) if isinstance(x, Tensor)
            )

        yield _Original(module, inputs, run, package.factory)
        return
    with tempfile.TemporaryDirectory(prefix="pipeplan-") as folder:
        one = load_package(_as_one_stage(package, Path(folder)))
        stage = one.build_stage(0, seed).to(precision)
        drawn = {name: _cast(x, precision) for name, x in recipe.inputs(0, 0).items()}

        def run_stage(values: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
            return stage(*(values[name] for name in stage.INPUTS))  # type: ignore[no-any-return]

        yield _Original(stage, drawn, run_stage, "the whole graph as one stage")


def _as_one_stage(package: LoadedPackage, folder: Path) -> Path:
    """The same profile, generated uncut."""
    problem = package.plan_file.problem
    plan = Plan((Stage(tuple(range(len(problem.graph))), (0,)),))
    whole = PlanFile(problem, plan, evaluate(problem, plan), Provenance("GIVEN"))
    target = folder / "whole"
    write_package(build_package(whole), target)
    return target


def _cast(tensor: Tensor, precision: torch.dtype) -> Tensor:
    return tensor.detach().to(precision) if tensor.is_floating_point() else tensor.detach()


def _at(value: Any, path: tuple[int | str, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def _plain(value: Any) -> Any:
    """Results of classes that are mappings (as some libraries return) as dicts."""
    return dict(value) if isinstance(value, Mapping) else value


def _compare(
    original: _Original, stages: list[StageModule], recipe: Recipe, mode: Mode
) -> list[Difference]:
    for module in (original.module, *stages):
        module.train(mode == "train")
        module.zero_grad()
    with _SameDraws():  # type: ignore[no-untyped-call]
        expected = original.run({k: v.clone() for k, v in original.inputs.items()})
        found = _chain(stages, {k: v.clone() for k, v in original.inputs.items()})
    if mode == "eval" and len(expected) < len(found):
        # A branch on `self.training`, as of an auxiliary head: stages are as captured.
        found = found[: len(expected)]
    if len(expected) != len(found):
        raise PipeplanError(
            f"the original returns {plural(len(expected), 'tensor')}, the stages {len(found)}"
        )
    out = [
        _difference(mode, "output", str(i), None, a, b)
        for i, (a, b) in enumerate(zip(found, expected, strict=True))
    ]
    losses = [recipe.loss(x, recipe.labels(0, 0, x)) for x in (found, expected)]
    out.append(_difference(mode, "loss", "loss", None, losses[0].detach(), losses[1].detach()))
    for loss in losses:
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
    return out + _gradients(original, stages, mode) + _buffers(original, stages, mode)


def _chain(stages: list[StageModule], inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """All stages in order, each given what the one before sends and nothing else."""
    values: tuple[Tensor, ...] = ()
    for stage in stages:
        if len(values) != len(stage.RECEIVES):
            raise PipeplanError(
                f"stage {stage.INDEX} receives {plural(len(stage.RECEIVES), 'tensor')}, but "
                f"{len(values)} are sent"
            )
        values = stage(*values, *(inputs[name] for name in stage.INPUTS))
    return values


def _gradients(original: _Original, stages: list[StageModule], mode: Mode) -> list[Difference]:
    """Each parameter's gradient; one that several stages hold has the sum of theirs."""
    expected: dict[str, nn.Parameter] = dict(
        original.module.named_parameters(remove_duplicate=False)
    )
    first: dict[int, str] = {}
    for name, parameter in expected.items():
        first.setdefault(id(parameter), name)
    sums: dict[str, tuple[Tensor, int]] = {}
    for stage in stages:
        for own, parameter in stage.named_parameters():
            name = stage.original_name(own)
            if name not in expected:
                raise PipeplanError(f"stage {stage.INDEX} has {name}, which the original has not")
            key = first[id(expected[name])]
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            sums[key] = (sums[key][0] + grad if key in sums else grad, stage.INDEX)
    out: list[Difference] = []
    for name in dict.fromkeys(first.values()):
        parameter = expected[name]
        wanted = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        # A parameter that no stage holds is not used by the forward: its gradient has to be none.
        got, index = sums.get(name, (torch.zeros_like(parameter), None))
        out.append(_difference(mode, "gradient", name, index, got, wanted))
    return out


def _buffers(original: _Original, stages: list[StageModule], mode: Mode) -> list[Difference]:
    expected = dict(original.module.named_buffers(remove_duplicate=False))
    return [
        _difference(mode, "buffer", stage.original_name(own), stage.INDEX, buffer, expected[name])
        for stage in stages
        for own, buffer in stage.named_buffers()
        if own.partition(".")[0] in stage.ORIGINAL
        and (name := stage.original_name(own)) in expected
    ]


def _difference(
    mode: Mode, kind: Any, name: str, stage: int | None, found: Tensor, expected: Tensor
) -> Difference:
    if found.shape != expected.shape:
        raise PipeplanError(
            f"{kind} {name} has shape {list(found.shape)}, in the original {list(expected.shape)}"
        )
    a, b = found.detach().to(torch.float64), expected.detach().to(torch.float64)
    if not a.numel() or torch.equal(a, b):
        return Difference(mode, kind, name, stage, 0.0, 0.0)
    # Equal infinities (masks) are no difference.
    gap = torch.where(a == b, torch.zeros_like(a), (a - b).abs())
    max_abs = gap.max().item()
    scale = b[b.isfinite()].abs().max().item() if bool(b.isfinite().any()) else 0.0
    return Difference(mode, kind, name, stage, max_abs, max_abs / scale if scale else max_abs)
