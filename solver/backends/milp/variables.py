"""Decision variables of the MILP model: docs/formulation.md sections 3 and 6 name each symbol."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ortools.math_opt.python import mathopt  # type: ignore[import-untyped]

from pipeplan.core.plan import NestedStage, Plan, joint_plan, nested_plan
from pipeplan.solver.arcs import Arc, Layout, Span
from pipeplan.solver.clock import Pause
from pipeplan.solver.reduce import ReducedGraph

__all__ = ["Terms", "Variable", "Variables"]

Variable: TypeAlias = mathopt.Variable
Terms: TypeAlias = list[tuple[float, Variable]]


class Variables:
    """z (`placed`), y (`arc`), e (`end`), x (`crossing`) and start as in the CP-SAT model, and what
    linear rows need beyond: t (`share` of the period) and W (`weights`) of each arc, O (`cut`).

    `placed[v][p]`: block v is in a stage that starts at position p or before. `arc[a]`: a stage is
    laid on arc a. `end[span, p]`: the pipeline of a span ends before position p. `start[p]`: a
    level-1 stage starts at p. `crossing[p][i]`: tensor i crosses the cut behind position p.
    `share[a]` is T where a is chosen, else 0; `weights[a]` the weights of the stage on a, else 0,
    in units of all weights; `cut[p]` what crosses behind p, in units of the largest cut.
    """

    def __init__(
        self, model: mathopt.Model, reduced: ReducedGraph, layout: Layout, pause: Pause
    ) -> None:
        self.model = model
        self.pause = pause
        """Called now and then by all who build the model; it may raise."""
        self.reduced = reduced
        self.layout = layout
        positions = range(layout.size)
        self.placed: list[list[Variable]] = []
        for _ in range(len(reduced)):
            pause()
            row = [model.add_binary_variable() for _ in positions[:-1]]
            self.placed.append([*row, model.add_variable(lb=1.0, ub=1.0)])
        self.arc: dict[Arc, Variable] = {a: model.add_binary_variable() for a in layout.arcs}
        self.end: dict[tuple[Span, int], Variable] = {
            (span, p): model.add_variable(lb=0.0, ub=1.0)
            for span in layout.spans
            for p in (*list(layout.slots(span))[1:], layout.stop(span))
        }
        self.leaves_at: list[list[Arc]] = [[] for _ in positions]
        for leaf in layout.leaves:
            self.leaves_at[leaf.start].append(leaf)
        self.start: list[Variable] = [model.add_variable(lb=0.0, ub=1.0) for _ in positions]
        self.crossing: list[list[Variable]] = []
        for _ in positions[:-1]:
            pause()
            self.crossing.append([model.add_variable(lb=0.0, ub=1.0) for _ in reduced.tensors])
        self.total_weights = sum(reduced.parameter_bytes)
        self.total_cut = sum(tensor.bytes_ for tensor in reduced.tensors)
        self.share: dict[Arc, Variable] = {a: model.add_variable(lb=0.0) for a in layout.arcs}
        self.weights: dict[Arc, Variable] = {
            a: model.add_variable(lb=0.0, ub=1.0) for a in layout.arcs
        }
        self.cut: list[Variable] = [model.add_variable(lb=0.0, ub=1.0) for _ in positions[:-1]]

    def row(
        self, terms: Iterable[tuple[float, Variable]], upper: float, *, equal: bool = False
    ) -> None:
        """sum of terms <= (or =) a constant."""
        self.pause()
        lower = upper if equal else -float("inf")
        row = self.model.add_linear_constraint(lb=lower, ub=upper)
        sums: dict[Variable, float] = {}
        for factor, variable in terms:
            sums[variable] = sums.get(variable, 0.0) + factor
        for variable, factor in sums.items():
            if factor:
                row.set_coefficient(variable, factor)

    def between(self, before: int, last: int, values: Sequence[float]) -> Terms:
        """Sum of values over the blocks placed after position `before` (-1: from the first) and up
        to position `last`."""
        own = [(v, x) for v, x in enumerate(values) if x]
        out = [(x, self.placed[v][last]) for v, x in own]
        if before >= 0:
            out += [(-x, self.placed[v][before]) for v, x in own]
        return out

    def crossed(self, position: int, factor: float) -> Terms:
        """factor * O behind a position (-1, last: nothing crosses), O in bytes."""
        if not 0 <= position < self.layout.size - 1 or not self.total_cut:
            return []
        return [(factor * self.total_cut, self.cut[position])]

    def surely_placed(self, placed: Sequence[int]) -> None:
        """z[v,p] = 1 from the position p = placed[v] on."""
        for row, first in zip(self.placed, placed, strict=True):
            for variable in row[first:-1]:
                variable.lower_bound = 1.0

    def plan(self, values: dict[Variable, float]) -> Plan:
        """The plan that a solution describes."""
        layout, cluster = self.layout, self.reduced.problem.cluster
        chosen = sorted(a for a, variable in self.arc.items() if values[variable] > 0.5)

        def blocks(before: int, last: int) -> tuple[int, ...]:
            inside = [
                v
                for v, row in enumerate(self.placed)
                if values[row[last]] > 0.5 and not (before >= 0 and values[row[before]] > 0.5)
            ]
            return self.reduced.layers(inside)

        def stages(span: Span) -> tuple[NestedStage, ...]:
            out = []
            for a in chosen:
                if a.span == span:
                    inner = layout.inner(a)
                    layers = blocks(a.start - 1, layout.last(a))
                    out.append(NestedStage(layers, a.machines, stages(inner) if inner else ()))
            return tuple(out)

        found = stages(layout.top)
        if self.reduced.problem.scope == "nested":
            return nested_plan(cluster, found)
        return joint_plan(cluster, tuple((x.layers, x.replicas) for x in found), layout.copies)

    def values(self, plan: Plan) -> dict[Variable, float] | None:
        """z and y of a plan; None if it has another layout."""
        arcs = self.layout.arcs_of_plan(plan)
        if arcs is None or not all(a in self.arc for a in arcs):
            return None
        out = {variable: float(a in arcs) for a, variable in self.arc.items()}
        at = {stage: a.start for a, stage in arcs.items() if a.span.level == 1}
        stage_of = plan.stage_of_layer
        for v, row in enumerate(self.placed):
            first = at[stage_of[self.reduced.members[v][0]]]
            out.update({variable: float(first <= p) for p, variable in enumerate(row[:-1])})
        return out
