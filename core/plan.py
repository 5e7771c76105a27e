"""A plan: stages of layers on ranks. A decision only; `core.cost` says what it costs."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from pipeplan.core.cluster import Cluster
from pipeplan.core.errors import PlanError, shown
from pipeplan.core.graph import LayerGraph
from pipeplan.core.units import plural

__all__ = [
    "NestedStage",
    "Plan",
    "Stage",
    "innermost",
    "joint_plan",
    "nested_plan",
    "one_stage_nested",
    "stage_layers",
]


@dataclass(frozen=True, slots=True)
class Stage:
    """Layers placed together, and the ranks that each hold a replica; both ascending.

    Raises PlanError where one is empty or out of order.
    """

    layers: tuple[int, ...]
    ranks: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.layers:
            raise PlanError("a stage has no layers")
        if not self.ranks:
            raise PlanError("a stage has no ranks")
        for name, items in (("layers", self.layers), ("ranks", self.ranks)):
            if any(a >= b for a, b in pairwise(items)):
                raise PlanError(f"a stage's {name} must be ascending and without repeats")

    @property
    def replicas(self) -> int:
        """Number of copies of the stage."""
        return len(self.ranks)


@dataclass(frozen=True, slots=True)
class NestedStage:
    """A stage of one level: `replicas` groups of that level's children, each running `inner`.

    At level 1 a child is a device and `inner` is empty. `layers` are indices, ascending. Raises
    PlanError for layers out of order, or less than one replica.
    """

    layers: tuple[int, ...]
    replicas: int
    inner: tuple["NestedStage", ...] = ()

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise PlanError(f"a stage has {shown(self.replicas)} replicas; it must be at least 1")
        if any(a >= b for a, b in pairwise(self.layers)):
            raise PlanError("a stage's layers must be ascending and without repeats")


@dataclass(frozen=True)
class Plan:
    """Stages in pipeline order.

    `copies` is the number of identical copies of the pipeline that a joint plan is made of (1 for
    plans of other origin). `nested` is the level-wise structure of a nested plan, outermost level
    first, None for others; it says what the ranks alone do not, namely which inner pipelines are
    copies of each other.
    """

    stages: tuple[Stage, ...]
    copies: int = 1
    nested: tuple[NestedStage, ...] | None = None

    def __post_init__(self) -> None:
        if not self.stages:
            raise PlanError("a plan has no stages")
        if self.copies < 1:
            raise PlanError(f"a plan has {shown(self.copies)} copies; it must be at least 1")

    @cached_property
    def devices(self) -> int:
        """Number of ranks that hold a stage."""
        return sum(stage.replicas for stage in self.stages)

    @cached_property
    def stage_of_rank(self) -> dict[int, int]:
        """Stage number by rank; idle ranks are absent."""
        return {rank: s for s, stage in enumerate(self.stages) for rank in stage.ranks}

    @cached_property
    def stage_of_layer(self) -> dict[int, int]:
        """Stage number by layer index."""
        return {v: s for s, stage in enumerate(self.stages) for v in stage.layers}

    @cached_property
    def prefixes(self) -> tuple[frozenset[int], ...]:
        """The layers of stages 0..s, for each s: nested ideals whose differences are the stages.

        The time is that of all of them together; what crosses them is in `core.cuts`, at once.
        """
        out: list[frozenset[int]] = []
        so_far: frozenset[int] = frozenset()
        for stage in self.stages:
            so_far = so_far | frozenset(stage.layers)
            out.append(so_far)
        return tuple(out)

    def key(self) -> tuple[object, ...]:
        """Order of preference among plans of equal cost: fewest stages, then fewest devices, then
        smallest layer indices."""
        return (len(self.stages), self.devices, [(s.layers, s.ranks) for s in self.stages])


def joint_plan(
    cluster: Cluster, stages: tuple[tuple[tuple[int, ...], int], ...], copies: int = 1
) -> Plan:
    """A plan of `copies` identical pipelines, one a block of devices, stages on consecutive ranks.

    `stages` are pairs (layers, replicas inside one copy). Raises PlanError where the blocks are too
    small or do not divide the devices.
    """
    block, rest = divmod(cluster.devices, copies)
    used = sum(replicas for _, replicas in stages)
    if rest or used > block:
        raise PlanError(
            f"{plural(copies, 'copy', 'copies')} of {plural(used, 'rank')} do not fit "
            f"{plural(cluster.devices, 'device')} in equal blocks"
        )
    out: list[Stage] = []
    start = 0
    for layers, replicas in stages:
        ranks = tuple(copy * block + start + i for copy in range(copies) for i in range(replicas))
        out.append(Stage(tuple(sorted(layers)), ranks))
        start += replicas
    return Plan(tuple(out), copies)


def innermost(nested: tuple[NestedStage, ...]) -> Iterator[NestedStage]:
    """The level-1 stages of a level-wise structure, in pipeline order."""
    for stage in nested:
        if stage.inner:
            yield from innermost(stage.inner)
        else:
            yield stage


def nested_plan(cluster: Cluster, nested: tuple[NestedStage, ...]) -> Plan:
    """A plan from its level-wise structure (outermost level first), ranks numbered depth first.

    Raises PlanError where a level has fewer children than its stages want, or the structure's
    depth is not the cluster's.
    """
    found: list[tuple[tuple[int, ...], list[int]]] = []

    def place(stages: tuple[NestedStage, ...], level: int, starts: list[int]) -> None:
        """Put the stages of one span on its copies, which are groups from the given ranks on."""
        if sum(stage.replicas for stage in stages) > cluster.levels[level - 1].children:
            raise PlanError(
                f"a nested plan wants more than the {cluster.levels[level - 1].children} children "
                f"of level {level}"
            )
        size = cluster.group_sizes[level - 1]
        offset = 0
        for stage in stages:
            if bool(stage.inner) != (level > 1):
                raise PlanError("a nested plan's depth does not match the cluster's levels")
            firsts = [x + offset + i * size for x in starts for i in range(stage.replicas)]
            if level > 1:
                place(stage.inner, level - 1, firsts)
            else:
                found.append((stage.layers, firsts))
            offset += stage.replicas * size

    place(nested, len(cluster.levels), [0])
    stages = tuple(Stage(layers, tuple(ranks)) for layers, ranks in found)
    return Plan(stages, 1, nested)


def one_stage_nested(cluster: Cluster, layers: tuple[int, ...], replicas: tuple[int, ...]) -> Plan:
    """The nested plan of a single stage at every level, with so many replicas there, innermost
    level first. Raises PlanError where a level has fewer children."""
    stages: tuple[NestedStage, ...] = ()
    for count in replicas:
        stages = (NestedStage(layers, count, stages),)
    return nested_plan(cluster, stages)


def stage_layers(graph: LayerGraph, stages: tuple[tuple[str, ...], ...]) -> list[tuple[int, ...]]:
    """Indices of stages given by layer ids; raises PlanError for unknown ids."""
    out: list[tuple[int, ...]] = []
    for ids in stages:
        missing = [x for x in ids if x not in graph.index]
        if missing:
            raise PlanError(f"the profile has no layer {missing[0]}")
        out.append(tuple(sorted(graph.index[x] for x in ids)))
    return out
