"""Where stages may go: the arcs over device positions that joint and nested plans are paths of.

One copy of a joint plan is a single span over its block of ranks. A nested plan has one span for
the whole cluster at the outermost level, and inside each of its stages an inner span over the first
of the stage's machines (the others run the same). A span is covered from its start by arcs;
positions that are left over at its end are idle.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

from pipeplan.core.cluster import Cluster
from pipeplan.core.plan import NestedStage, Plan

__all__ = ["Arc", "Layout", "Span"]


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A place for a pipeline of one level: its first position, and the machines of the stages
    around it, innermost first."""

    level: int
    start: int
    around: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Arc:
    """A stage of `machines` children of a level whose first device is at position `start`."""

    span: Span
    start: int
    machines: int

    @property
    def widths(self) -> tuple[int, ...]:
        """Machines of this stage and of those around it, innermost first."""
        return (self.machines, *self.span.around)


@dataclass(frozen=True)
class Layout:
    """Positions 0..`size`-1 and the spans over them; `group_sizes[l]` devices are a level-l group.

    `copies` identical pipelines are laid out (joint plans; 1 for nested ones). With `straight`
    every arc has one machine. `barred` arcs are known to be in no plan of interest.
    """

    group_sizes: tuple[int, ...]
    copies: int = 1
    straight: bool = False
    barred: frozenset[Arc] = frozenset()

    @staticmethod
    def joint(cluster: Cluster, block: int, *, straight: bool = False) -> "Layout":
        """One copy of a joint plan over a block of ranks."""
        return Layout((1, block), cluster.devices // block, straight)

    @staticmethod
    def nested(cluster: Cluster, *, straight: bool = False) -> "Layout":
        """All levels of a nested plan."""
        return Layout(cluster.group_sizes, 1, straight)

    @property
    def size(self) -> int:
        """Number of positions."""
        return self.group_sizes[-1]

    @property
    def levels(self) -> int:
        """Number of levels."""
        return len(self.group_sizes) - 1

    @property
    def top(self) -> Span:
        """The outermost span."""
        return Span(self.levels, 0)

    def stop(self, span: Span) -> int:
        """First position behind a span."""
        return span.start + self.group_sizes[span.level]

    def slots(self, span: Span) -> range:
        """First positions of a span's machines."""
        return range(span.start, self.stop(span), self.group_sizes[span.level - 1])

    def arcs_of(self, span: Span) -> Iterator[Arc]:
        """Every arc of a span, by start and width."""
        step = self.group_sizes[span.level - 1]
        for start in self.slots(span):
            widest = 1 if self.straight else (self.stop(span) - start) // step
            for machines in range(1, widest + 1):
                arc = Arc(span, start, machines)
                if arc not in self.barred:
                    yield arc

    def inner(self, arc: Arc) -> Span | None:
        """The span inside a stage, None at level 1."""
        level = arc.span.level
        return Span(level - 1, arc.start, arc.widths) if level > 1 else None

    def end(self, arc: Arc) -> int:
        """First position behind an arc."""
        return arc.start + arc.machines * self.group_sizes[arc.span.level - 1]

    def last(self, arc: Arc) -> int:
        """The position at which an arc's layers are all placed: the last of its first machine."""
        return arc.start + self.group_sizes[arc.span.level - 1] - 1

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """Every span, outermost first."""
        out = [self.top]
        for span in out:
            if span.level > 1:
                inner = (self.inner(arc) for arc in self.arcs_of(span))
                out.extend(x for x in inner if x is not None)
        return tuple(out)

    @cached_property
    def arcs(self) -> tuple[Arc, ...]:
        """Every arc, outermost level first."""
        return tuple(arc for span in self.spans for arc in self.arcs_of(span))

    @cached_property
    def leaves(self) -> tuple[Arc, ...]:
        """The arcs of level 1: the stages of the plan."""
        return tuple(arc for arc in self.arcs if arc.span.level == 1)

    def count(self) -> int:
        """Number of arcs, without building them."""
        total = spans = 1
        found = 0
        for level in range(self.levels, 0, -1):
            n = self.group_sizes[level] // self.group_sizes[level - 1]
            total = n if self.straight else n * (n + 1) // 2
            spans *= total
            found += spans
        return found

    def replicas(self, arc: Arc) -> int:
        """Ranks of a level-1 stage over all copies; of an outer stage, its machines times those
        around it."""
        return self.copies * prod(arc.widths)

    def around(self, arc: Arc) -> Arc | None:
        """The stage whose inner pipeline an arc belongs to, None at the outermost level."""
        if not arc.span.around:
            return None
        level, start = arc.span.level + 1, arc.span.start
        span = Span(level, start - start % self.group_sizes[level], arc.span.around[1:])
        return Arc(span, start, arc.span.around[0])

    def ranks_before(self, arc: Arc) -> int:
        """The most ranks that all stages before this one can hold, over all copies."""
        outer = self.around(arc)
        inside = (arc.start - arc.span.start) * self.copies * prod(arc.span.around)
        return inside + (self.ranks_before(outer) if outer else 0)

    def arcs_of_plan(self, plan: Plan) -> dict[Arc, int] | None:
        """The arcs of a plan, each with the number of its (first) stage; None if the plan is one of
        another layout."""
        nested = plan.nested
        if nested is None:
            if plan.copies != self.copies:
                return None
            nested = tuple(NestedStage(s.layers, s.replicas // self.copies) for s in plan.stages)
        out: dict[Arc, int] = {}

        def lay(span: Span, stages: tuple[NestedStage, ...], number: int) -> int:
            at = span.start
            for stage in stages:
                a = Arc(span, at, stage.replicas)
                inner = self.inner(a)
                out[a] = number
                number = lay(inner, stage.inner, number) if inner else number + 1
                at = self.end(a)
            return number

        lay(self.top, nested, 0)
        return out
