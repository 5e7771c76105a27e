"""Decision variables of the CP-SAT model: docs/formulation.md section 3 names each symbol."""

from collections.abc import Sequence

from ortools.sat.python import cp_model

from pipeplan.core.plan import NestedStage, Plan, joint_plan, nested_plan
from pipeplan.solver.arcs import Arc, Layout, Span
from pipeplan.solver.clock import Pause
from pipeplan.solver.reduce import ReducedGraph

__all__ = ["Linear", "Literal", "Value", "Variables"]

Literal = cp_model.IntVar
Linear = cp_model.LinearExpr | int


class Value:
    """What a solver says of a literal; lets one reader serve callbacks and final answers."""

    def __init__(self, solver: cp_model.CpSolver) -> None:
        self._solver = solver

    def true(self, literal: Literal) -> bool:
        """Whether the literal holds in the solution."""
        return bool(self._solver.boolean_value(literal))


class Variables:
    """z (`placed`), y (`arc`), e (`end`), x (`crossing`), and a start literal a position.

    `placed[v][p]`: block v is in a stage that starts at position p or before. `arc[a]`: a stage is
    laid on arc a. `end[span, p]`: the pipeline of a span ends before position p. `start[p]`: a
    level-1 stage starts at p. `crossing[p][i]`: tensor i crosses the cut behind position p.
    """

    def __init__(
        self, model: cp_model.CpModel, reduced: ReducedGraph, layout: Layout, pause: Pause
    ) -> None:
        self.model = model
        self.pause = pause
        """Called now and then by all who build the model; it may raise."""
        self.reduced = reduced
        self.layout = layout
        positions = range(layout.size)
        yes = model.new_constant(1)
        self.placed: list[list[Literal]] = []
        for v in range(len(reduced)):
            pause()
            self.placed.append([*(model.new_bool_var(f"z_{v}_{p}") for p in positions[:-1]), yes])
        self.arc: dict[Arc, Literal] = {
            a: model.new_bool_var(f"y_{a.span.level}_{a.start}_{'x'.join(map(str, a.widths))}")
            for a in layout.arcs
        }
        self.end: dict[tuple[Span, int], Literal] = {
            (span, p): model.new_bool_var(f"e_{span.level}_{span.start}_{p}")
            for span in layout.spans
            for p in (*list(layout.slots(span))[1:], layout.stop(span))
        }
        self.leaves_at: list[list[Arc]] = [[] for _ in positions]
        for leaf in layout.leaves:
            self.leaves_at[leaf.start].append(leaf)
        self.start: list[Literal] = [model.new_bool_var(f"start_{p}") for p in positions]
        self.crossing: list[list[Literal]] = []
        for p in positions[:-1]:
            pause()
            self.crossing.append(
                [model.new_bool_var(f"x_{p}_{i}") for i in range(len(reduced.tensors))]
            )

    def between(self, before: int, last: int, coefficients: Sequence[int]) -> Linear:
        """Sum of coefficients over the blocks placed after position `before` (-1: from the first)
        and up to position `last`: a stage's or span's own blocks."""
        self.pause()
        own = [(v, c) for v, c in enumerate(coefficients) if c]
        if not own:
            return 0
        literals = [self.placed[v][last] for v, _ in own]
        weights = [c for _, c in own]
        if before >= 0:
            literals += [self.placed[v][before] for v, _ in own]
            weights += [-c for _, c in own]
        return cp_model.LinearExpr.weighted_sum(literals, weights)

    def cut(self, position: int, coefficients: Sequence[int]) -> Linear:
        """Sum of coefficients over the tensors that cross behind a position (-1, last: none)."""
        self.pause()
        if not 0 <= position < self.layout.size - 1:
            return 0
        own = [(i, c) for i, c in enumerate(coefficients) if c]
        return cp_model.LinearExpr.weighted_sum(
            [self.crossing[position][i] for i, _ in own], [c for _, c in own]
        )

    def surely_placed(self, placed: Sequence[int]) -> None:
        """z[v,p] = 1 from the position p = placed[v] on."""
        for row, first in zip(self.placed, placed, strict=True):
            for literal in row[first:-1]:
                self.model.add(literal == 1)

    def plan(self, value: Value) -> Plan:
        """The plan that a solution describes."""
        layout, cluster = self.layout, self.reduced.problem.cluster
        chosen = {a for a, literal in self.arc.items() if value.true(literal)}

        def blocks(before: int, last: int) -> tuple[int, ...]:
            inside = [
                v
                for v, row in enumerate(self.placed)
                if value.true(row[last]) and not (before >= 0 and value.true(row[before]))
            ]
            return self.reduced.layers(inside)

        def stages(span: Span) -> tuple[NestedStage, ...]:
            out = []
            for a in sorted(a for a in chosen if a.span == span):
                inner = layout.inner(a)
                layers = blocks(a.start - 1, layout.last(a))
                out.append(NestedStage(layers, a.machines, stages(inner) if inner else ()))
            return tuple(out)

        found = stages(layout.top)
        if self.reduced.problem.scope == "nested":
            return nested_plan(cluster, found)
        return joint_plan(cluster, tuple((x.layers, x.replicas) for x in found), layout.copies)

    def hint(self, plan: Plan) -> bool:
        """Suggest a plan to the search; False if it has another layout."""
        arcs = self.layout.arcs_of_plan(plan)
        if arcs is None or not all(a in self.arc for a in arcs):
            return False
        at = {stage: a.start for a, stage in arcs.items() if a.span.level == 1}
        stage_of = plan.stage_of_layer
        for a, literal in self.arc.items():
            self.model.add_hint(literal, a in arcs)
        for v, row in enumerate(self.placed):
            first = at[stage_of[self.reduced.members[v][0]]]
            for p, literal in enumerate(row[:-1]):
                self.model.add_hint(literal, first <= p)
        return True
