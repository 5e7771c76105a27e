"""A generated package as the runtime reads it: manifest, plan, and the stages' modules."""

import hashlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from pipeplan.codegen.folder import MANIFEST
from pipeplan.codegen.package import PACKAGE_SCHEMA
from pipeplan.core.codec import PlanFile, plan_from_dict
from pipeplan.core.errors import PipeplanError, SourceError
from pipeplan.core.jsontext import parse_json
from pipeplan.core.reader import Reader
from pipeplan.core.textfile import read_text
from pipeplan.runtime.original import original_and_inputs
from pipeplan.runtime.recipe import Recipe
from pipeplan.runtime.seeds import INITIAL, seeded
from pipeplan.runtime.stage import StageModule

__all__ = ["LoadedPackage", "load_package", "load_recipe"]


@dataclass(frozen=True)
class LoadedPackage:
    """A package's folder, and what package.json says.

    `factory` and `sizes` make the original again ('' for a package of layer texts); `inputs` are
    the names of the network's inputs with their paths in the original's (args, kwargs).
    """

    directory: Path
    name: str
    stages: int
    micro_batches: int
    factory: str
    sizes: Mapping[str, Any]
    inputs: Mapping[str, tuple[int | str, ...]]
    tied: tuple[tuple[str, ...], ...]
    state_names: tuple[Mapping[str, str], ...]
    """For each stage, its own names of modules and tensors with those of the original."""

    @cached_property
    def plan_file(self) -> PlanFile:
        """The plan with its question and price, read and checked."""
        path = self.directory / "plan.json"
        return plan_from_dict(parse_json(read_text(path, SourceError), SourceError, path))

    def stage_class(self, index: int) -> type[StageModule]:
        """The class `Stage` of stage_N.py."""
        found: type[StageModule] = _imported(self.directory, f"stage_{index}").Stage
        return found

    def build_stage(self, index: int, seed: int) -> StageModule:
        """A stage with initial weights: the original's, where a factory makes it, else torch's own.

        The same seed gives the same weights on every rank. The random state is left as it was.
        """
        with torch.random.fork_rng(devices=[]):
            # The factory's random numbers are the same whichever stage calls it.
            number = 0 if self.factory else index
            seeded(seed, INITIAL, 0, number)
            stage = self.stage_class(index)()
            if self.factory:
                seeded(seed, INITIAL, 0, number)
                original, _ = original_and_inputs(self.factory, self.sizes)
                stage.load_state_dict(original.state_dict())
        return stage


def load_recipe(package: LoadedPackage) -> Recipe:
    """The data, loss and optimizer of a package's train.py; raises PipeplanError."""
    module = _imported(package.directory, "train")
    functions = [getattr(module, name, None) for name in ("inputs", "labels", "loss", "optimizer")]
    if not all(map(callable, functions)):
        raise PipeplanError(
            f"{package.directory / 'train.py'} must define inputs, labels, loss and optimizer"
        )
    return Recipe(*functions)  # type: ignore[arg-type]  # just checked


def _imported(directory: Path, stem: str) -> ModuleType:
    """A file of a package as a module of its own name, so that two packages do not meet."""
    path = directory / f"{stem}.py"
    folder = hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:16]
    name = f"_pipeplan_{folder}_{stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise PipeplanError(f"{path} is missing: the package is incomplete")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise PipeplanError(
            f"{path} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    return module


def load_package(directory: Path) -> LoadedPackage:
    """Read package.json; raises PipeplanError where the folder is no generated package."""
    path = directory / MANIFEST
    if not path.is_file():
        raise PipeplanError(f"{directory} is no generated package: it has no {MANIFEST}")
    top = Reader(parse_json(read_text(path, SourceError), SourceError, path), MANIFEST, SourceError)
    if top.text("schema") != PACKAGE_SCHEMA:
        top.fail(f"this version reads schema {PACKAGE_SCHEMA}", top.data["schema"])
    stages = top.integer("stages")
    if not 1 <= stages <= 10_000:
        top.fail("stages is out of range", stages)
    return LoadedPackage(
        directory=directory,
        name=top.text("name"),
        stages=stages,
        micro_batches=top.integer("micro_batches"),
        factory=top.text("factory"),
        sizes=top.mapping("sizes"),
        inputs={x.text("name"): tuple(x.items("path")) for x in top.objects("inputs")},
        tied=tuple(tuple(x) for x in top.items("tied") if isinstance(x, list)),
        state_names=tuple(top.object("state_names").mapping(f"stage_{s}") for s in range(stages)),
    )
