"""The files of a generated package: stages, rank maps, the plan, what starts it, and how."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import lcm
from pathlib import Path
from typing import Any, Final

from pipeplan.codegen.folder import MANIFEST, write_folder
from pipeplan.codegen.names import value_names
from pipeplan.codegen.program import Program, ProgramInput, TensorSpec
from pipeplan.codegen.rank_map import RankMap, rank_map_of, warm_up
from pipeplan.codegen.rank_table import ranges, rank_table
from pipeplan.codegen.readme import readme
from pipeplan.codegen.shapes import InputShape, input_shape
from pipeplan.codegen.source import program_of
from pipeplan.codegen.stage_source import describe, stage_source, stage_state
from pipeplan.codegen.stages import StageProgram, split
from pipeplan.codegen.train_script import train_script
from pipeplan.core.codec import PlanFile, plan_to_dict
from pipeplan.core.errors import PlanError
from pipeplan.core.graph import LayerGraph
from pipeplan.core.jsontext import dump_json
from pipeplan.core.plan import Plan

__all__ = ["PACKAGE_SCHEMA", "Package", "build_package", "default_micro_batches", "write_package"]

PACKAGE_SCHEMA: Final = "pipeplan.package/1"


@dataclass(frozen=True)
class Package:
    """Texts by file name, and what is worth telling about them."""

    files: Mapping[str, str]
    notes: tuple[str, ...]


def default_micro_batches(plan: Plan) -> int:
    """Micro-batches of a batch where the plan's schedule states none.

    The fewest that fill the pipeline (one a rank) and that every stage can deal out evenly.
    """
    cycle = lcm(*(stage.replicas for stage in plan.stages))
    filled = -(-plan.devices // cycle) * cycle
    return filled if filled <= 8 * plan.devices else plan.devices


def build_package(file: PlanFile, graph: LayerGraph | None = None) -> Package:
    """Everything that `pipeplan generate` writes.

    `graph` is the profile, where it is at hand apart from the plan, and must be the one planned.
    Raises ProfileError for layers that cannot be turned into code, PlanError for plans that part
    what cannot be parted or belong to another profile.
    """
    planned = file.problem.graph
    if graph is not None and graph.digest != planned.digest:
        raise PlanError(
            f"the plan is of profile {planned.digest[:19]}..., and this one is "
            f"{graph.digest[:19]}...: solve again, or give the profile that was planned"
        )
    graph = planned if graph is None else graph
    plan = file.plan
    program = program_of(graph)
    stages = split(program, graph, plan)
    notes: list[str] = []
    files: dict[str, str] = {}
    described = _descriptions(program)
    for stage in stages:
        files[f"stage_{stage.index}.py"] = stage_source(
            program,
            stage,
            stages=len(stages),
            ranks=ranges(plan.stages[stage.index].ranks),
            tensors=described,
        )
    ranks = rank_map_of(plan)
    files["rank_map.json"] = dump_json(rank_table(file))
    for name, other in _pipedream(ranks).items():
        if other.is_permutation:
            files[name] = dump_json(other.to_pipedream())
        else:
            notes.append(f"{name} is left out: PipeDream's runtime needs ranks without gaps")
    shapes = tuple(input_shape(x, graph) for x in program.inputs)
    files["plan.json"] = dump_json(plan_to_dict(file))
    files["train.py"] = train_script(program, shapes)
    micro_batches = file.problem.micro_batches or default_micro_batches(plan)
    files["README.md"] = readme(file, program, stages, micro_batches, notes)
    names = sorted([*files, MANIFEST])
    files[MANIFEST] = dump_json(_manifest(file, program, stages, shapes, micro_batches, names))
    return Package(files, tuple(notes))


def write_package(package: Package, directory: Path, *, force: bool = False) -> None:
    """Write the files (see `write_folder`)."""
    write_folder(directory, package.files, force=force)


def _descriptions(program: Program) -> dict[str, str]:
    """What is known of each value, for comments."""
    out = {x.id: describe(x.spec) for x in program.inputs}
    for op in program.operations:
        spec: TensorSpec | None = op.tensors[0] if len(op.tensors) == 1 else None
        out[op.id] = describe(spec)
    return out


def _pipedream(ranks: RankMap) -> dict[str, RankMap]:
    """The three maps that PipeDream ships for a model: hybrid, one rank a stage, one stage.

    Modules are the package's stages, so the same code runs under each.
    """
    count = len(ranks.stages)
    modules = (*range(count), count - 1)
    straight = tuple((s,) for s in range(count))
    world = (tuple(range(len(ranks.ranks))),)
    return {
        "hybrid_conf.json": RankMap(ranks.stages, modules, warm_up(ranks.stages)),
        "mp_conf.json": RankMap(straight, modules, warm_up(straight)),
        "dp_conf.json": RankMap(world, (0,) * (count + 1), (0,)),
    }


def _input(item: ProgramInput, shape: InputShape, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "id": item.id,
        "path": list(item.path),
        "dtype": shape.dtype,
        "shape": list(shape.shape),
        "low": shape.low,
        "high": shape.high,
    }


def _manifest(
    file: PlanFile,
    program: Program,
    stages: tuple[StageProgram, ...],
    shapes: tuple[InputShape, ...],
    micro_batches: int,
    files: list[str],
) -> dict[str, Any]:
    """What the runtime needs to know beyond the stages and the plan."""
    names = value_names([x.id for x in program.inputs] + [x.id for x in program.operations])
    return {
        "schema": PACKAGE_SCHEMA,
        "name": program.name,
        "version": file.provenance.version,
        "profile_digest": file.problem.graph.digest,
        "source": "capture" if program.factory else "layer texts",
        "factory": program.factory,
        "sizes": dict(program.sizes),
        "micro_batches": micro_batches,
        "stages": len(stages),
        "inputs": [
            _input(item, shape, names[item.id])
            for item, shape in zip(program.inputs, shapes, strict=True)
        ],
        "state_names": {f"stage_{x.index}": stage_state(program, x) for x in stages},
        "tied": [list(x) for x in program.tied.values()],
        "files": files,
    }
