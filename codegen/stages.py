"""A program cut into stages: what each runs, reads, receives and sends.

Tensors alone cross a cut. An item is taken where its tuple is made; constants and sizes are made
anew where they are read. A tensor used k stages later is relayed by every stage between, as DESIGN
4.1 prices it. Values that the network returns are relayed to the last stage, which has the loss.
"""

from dataclasses import dataclass

from pipeplan.codegen.program import Operation, Program, ValueRef, leaves_in, values_in
from pipeplan.core.errors import PlanError
from pipeplan.core.graph import LayerGraph
from pipeplan.core.plan import Plan

__all__ = ["StageProgram", "split"]


@dataclass(frozen=True)
class StageProgram:
    """One stage, in ids of values.

    `inputs` are inputs of the network, loaded here; `receives` come from the stage before; `sends`
    go to the next; `returns` (of the last stage) are the results of the network, in order. `copied`
    are inputs and received values that an operation would overwrite; `guarded` are operations that
    overwrite a value which is sent as it was, so that they work on a copy.
    """

    index: int
    layers: tuple[str, ...]
    inputs: tuple[str, ...]
    receives: tuple[str, ...]
    operations: tuple[Operation, ...]
    sends: tuple[str, ...]
    returns: tuple[str, ...]
    copied: frozenset[str]
    guarded: frozenset[str]


def split(program: Program, graph: LayerGraph, plan: Plan) -> tuple[StageProgram, ...]:
    """Cut a program along a plan's stages.

    Raises PlanError where something other than a tensor would have to cross a cut.
    """
    count = len(plan.stages)
    stage_of_layer = {graph.layers[v].id: s for v, s in plan.stage_of_layer.items()}
    by_id = program.by_id
    inputs = {x.id for x in program.inputs}
    home = _homes(program, stage_of_layer)
    for op_id in _unread_items(program):
        del home[op_id]
    runs: list[set[str]] = [set() for _ in range(count)]
    for op_id, stage in home.items():
        runs[stage].add(op_id)
    results = [leaf.id for leaf in leaves_in(program.output) if isinstance(leaf, ValueRef)]
    needs: list[set[str]] = []
    for stage in range(count):
        wanted = set(results) if stage == count - 1 else set()
        for op in reversed(program.operations):
            if op.is_portable and op.id in wanted:
                runs[stage].add(op.id)
            if op.id in runs[stage]:
                wanted.update(x.id for x in values_in((op.args, dict(op.kwargs))))
        needs.append(wanted)
    order = {op.id: i for i, op in enumerate(program.operations)}
    last_use: dict[str, int] = {}
    for stage, wanted in enumerate(needs):
        for value in wanted - inputs - runs[stage]:
            if by_id[value].is_portable:
                continue
            if home[value] > stage:
                raise PlanError(
                    f"stage {stage} reads {value}, which the later stage {home[value]} makes"
                )
            if not by_id[value].yields_tensor:
                reader = _reader(program, runs[stage], value)
                raise PlanError(
                    f"layer {reader} of stage {stage} reads {value} of stage {home[value]}, which "
                    "is no tensor and cannot cross a cut"
                )
            last_use[value] = stage

    def crossing(stage: int) -> tuple[str, ...]:
        """Values made in `stage` or before and read later."""
        found = [x for x, last in last_use.items() if home[x] <= stage < last]
        return tuple(sorted(found, key=order.__getitem__))

    out = []
    for stage in range(count):
        receives = crossing(stage - 1) if stage else ()
        sends = crossing(stage) if stage < count - 1 else ()
        operations = tuple(op for op in program.operations if op.id in runs[stage])
        own_inputs = tuple(x.id for x in program.inputs if x.id in needs[stage])
        copied, guarded = _overwritten(operations, {*receives, *own_inputs}, sends)
        out.append(
            StageProgram(
                index=stage,
                layers=tuple(graph.layers[v].id for v in plan.stages[stage].layers),
                inputs=own_inputs,
                receives=receives,
                operations=operations,
                sends=sends,
                returns=tuple(results) if stage == count - 1 else (),
                copied=copied,
                guarded=guarded,
            )
        )
    return tuple(out)


def _homes(program: Program, stage_of_layer: dict[str, int]) -> dict[str, int]:
    """Where each operation runs; portable ones run wherever they are read and have no home."""
    home: dict[str, int] = {}
    for op in program.operations:
        if op.is_portable:
            continue
        if op.layer not in stage_of_layer:
            raise PlanError(f"the plan places no layer {op.layer}")
        home[op.id] = stage_of_layer[op.layer]
        if op.is_item:
            source = next(values_in(op.args)).id
            home[op.id] = home.get(source, home[op.id])
    return home


def _unread_items(program: Program) -> set[str]:
    """Items of tuples that nothing reads: there is no code for them."""
    read = {leaf.id for leaf in leaves_in(program.output) if isinstance(leaf, ValueRef)}
    unread: set[str] = set()
    for op in reversed(program.operations):
        if op.is_item and not op.is_portable and op.id not in read:
            unread.add(op.id)
        else:
            read.update(x.id for x in values_in((op.args, dict(op.kwargs))))
    return unread


def _reader(program: Program, runs: set[str], value: str) -> str:
    return next(
        op.layer
        for op in program.operations
        if op.id in runs and any(x.id == value for x in values_in((op.args, dict(op.kwargs))))
    )


def _overwritten(
    operations: tuple[Operation, ...], given: set[str], sends: tuple[str, ...]
) -> tuple[frozenset[str], frozenset[str]]:
    """Given values that some operation overwrites, and operations that overwrite what is sent."""
    root: dict[str, str] = {x: x for x in given}
    copied: set[str] = set()
    guarded: set[str] = set()
    seen: set[str] = set(given)
    for op in operations:
        for value in op.mutates:
            origin = root.get(value, value)
            if origin in given:
                copied.add(origin)
            elif any(x in seen for x in sends if root.get(x, x) == origin):
                guarded.add(op.id)
        source = op.alias_of
        alias = source is not None and op.id not in guarded
        root[op.id] = root.get(source, source) if alias and source is not None else op.id
        seen.add(op.id)
    return frozenset(copied), frozenset(guarded)
