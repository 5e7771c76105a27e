"""Constraints of the MILP model, one family a method; docs/formulation.md names each method.

The families and symbols are those of `cpsat.constraints`; implications are written as linear rows,
a condition y on a row by M (1 - y) with M the most that the row can exceed its bound.
"""

from collections import defaultdict

from pipeplan.core.nested_cost import PipedreamGraph
from pipeplan.core.schedule import in_flight
from pipeplan.solver.arcs import Arc, Span
from pipeplan.solver.backends.milp.variables import Terms, Variable, Variables

__all__ = ["Constraints"]


class Constraints:
    """Everything that makes a solution a valid plan, whatever it costs."""

    def __init__(self, variables: Variables) -> None:
        self.x = variables
        self.layout = variables.layout
        self.reduced = variables.reduced
        self.problem = variables.reduced.problem

    def add(self, memory: float | Variable | None) -> None:
        """Every family; `memory` is a device's bytes (a number, or a variable to be minimised, in
        units of `memory_unit`)."""
        self.paths()
        self.all_devices()
        self.prefixes_grow()
        self.precedence()
        self.placed_at_starts()
        self.stages_hold_layers()
        self.crossing_tensors()
        self.stage_weights()
        self.max_stages()
        self.forced_cuts()
        self.forbidden_cuts()
        self.pinned()
        if memory is not None:
            if self.problem.cost_model == "pipedream":
                self.pipedream_memory(memory)
            else:
                self.memory(memory)

    def paths(self) -> None:
        """Arcs of a span s form a path from its start: sum_m y[s, start, m] = [s is used], and at
        each later position p: sum_m y[s, p, m] + e[s, p] = sum of y of its arcs that end at p."""
        layout, x = self.layout, self.x
        used: dict[Span, Variable] = {}
        for a in layout.arcs:
            inner = layout.inner(a)
            if inner is not None:
                used[inner] = x.arc[a]
        for span in layout.spans:
            starting: dict[int, Terms] = defaultdict(list)
            ending: dict[int, Terms] = defaultdict(list)
            for a in layout.arcs_of(span):
                starting[a.start].append((1.0, x.arc[a]))
                ending[layout.end(a)].append((-1.0, x.arc[a]))
            if span in used:
                x.row([*starting[span.start], (-1.0, used[span])], 0.0, equal=True)
            else:
                x.row(starting[span.start], 1.0, equal=True)
            for p in (*list(layout.slots(span))[1:], layout.stop(span)):
                x.row([*starting[p], (1.0, x.end[span, p]), *ending[p]], 0.0, equal=True)
        for p, leaves in enumerate(x.leaves_at):
            x.row([*((1.0, x.arc[a]) for a in leaves), (-1.0, x.start[p])], 0.0, equal=True)

    def all_devices(self) -> None:
        """Cost model pipedream idles nothing: e[s, p] = 0 before the end of s."""
        problem = self.problem
        if problem.cost_model != "pipedream" or problem.use_fewer_machines:
            return
        for (span, p), variable in self.x.end.items():
            if p != self.layout.stop(span):
                variable.upper_bound = 0.0

    def prefixes_grow(self) -> None:
        """z[v,p-1] <= z[v,p]."""
        for row in self.x.placed:
            for p in range(1, self.layout.size - 1):
                self.x.row([(1.0, row[p - 1]), (-1.0, row[p])], 0.0)

    def precedence(self) -> None:
        """z[v,p] <= z[u,p] for each edge (u,v) of the transitive reduction: D_p is an ideal."""
        placed = self.x.placed
        for u, v in self.reduced.edges:
            for p in range(self.layout.size - 1):
                self.x.row([(1.0, placed[v][p]), (-1.0, placed[u][p])], 0.0)

    def placed_at_starts(self) -> None:
        """z[v,p] <= z[v,p-1] + start[p]: nothing is placed where no stage starts."""
        for row in self.x.placed:
            for p in range(1, self.layout.size):
                self.x.row([(1.0, row[p]), (-1.0, row[p - 1]), (-1.0, self.x.start[p])], 0.0)

    def stages_hold_layers(self) -> None:
        """start[p] <= sum_v z[v,p] - z[v,p-1]."""
        real = self.counted_blocks()
        for p, start in enumerate(self.x.start):
            own = self.x.between(p - 1, p, [-float(one) for one in real])
            self.x.row([(1.0, start), *own], 0.0)

    def counted_blocks(self) -> list[int]:
        """1 for a block that makes a stage: all but those that cost model pipedream drops."""
        if self.problem.cost_model != "pipedream":
            return [1] * len(self.reduced)
        removed = PipedreamGraph(self.problem.graph).removed
        return [int(not removed.issuperset(members)) for members in self.reduced.members]

    def crossing_tensors(self) -> None:
        """x[p,i] >= z[u,p] - z[w,p] for the producer u and each maximal reader w of tensor i, and
        O_p = sum_i a_i x[p,i]."""
        x = self.x
        for p, crossing in enumerate(x.crossing):
            total: Terms = [(-float(x.total_cut or 1), x.cut[p])]
            for tensor, variable in zip(self.reduced.tensors, crossing, strict=True):
                made = x.placed[tensor.producer][p]
                for w in tensor.consumers:
                    x.row([(1.0, made), (-1.0, x.placed[w][p]), (-1.0, variable)], 0.0)
                total.append((float(tensor.bytes_), variable))
            x.row([(c / (x.total_cut or 1), v) for c, v in total], 0.0, equal=True)

    def stage_weights(self) -> None:
        """W[a] <= y[a], and the W of the arcs of a level that start at p sum up to at least the
        weights placed there if one of them is chosen; both in units of all weights."""
        x, layout = self.x, self.layout
        unit = float(x.total_weights or 1)
        share = [w / unit for w in self.reduced.parameter_bytes]
        starting: dict[tuple[int, int], list[Arc]] = defaultdict(list)
        for a in layout.arcs:
            starting[a.span.level, a.start].append(a)
            x.row([(1.0, x.weights[a]), (-1.0, x.arc[a])], 0.0)
        for (_, start), arcs in sorted(starting.items()):
            own = x.between(start - 1, layout.last(arcs[0]), share)
            spread = [(-1.0, x.weights[a]) for a in arcs]
            x.row([*own, *spread, *((1.0, x.arc[a]) for a in arcs)], 1.0)

    def max_stages(self) -> None:
        """sum_p start[p] <= K."""
        most = self.problem.constraints.max_stages
        if most is not None:
            self.x.row([(1.0, start) for start in self.x.start], float(most))

    def forced_cuts(self) -> None:
        """For a forced cut F some position has D_p = F: f[p] <= z[v,p] for the maximal v of F,
        f[p] <= 1 - z[w,p] for the minimal w outside, f[p] <= start[p], sum_p f[p] = 1."""
        for cut in self.problem.constraints.forced_cuts:
            ends = self.reduced.ends(cut)
            here = [self.x.model.add_binary_variable() for _ in range(self.layout.size - 1)]
            if ends is None:
                here = []
            self.x.row([(1.0, f) for f in here], 1.0, equal=True)
            for p, f in enumerate(here):
                assert ends is not None
                self.x.row([(1.0, f), (-1.0, self.x.start[p])], 0.0)
                for v in ends[0]:
                    self.x.row([(1.0, f), (-1.0, self.x.placed[v][p])], 0.0)
                for w in ends[1]:
                    self.x.row([(1.0, f), (1.0, self.x.placed[w][p])], 1.0)

    def forbidden_cuts(self) -> None:
        """For a forbidden cut F no position has D_p = F: the sum of z[v,p] over the maximal v of F
        minus the sum of z[w,p] over the minimal w outside is below the number of those v."""
        for cut in self.problem.constraints.forbidden_cuts:
            ends = self.reduced.ends(cut)
            if ends is None:
                continue
            for p in range(self.layout.size - 1):
                inside = [(1.0, self.x.placed[v][p]) for v in ends[0]]
                outside = [(-1.0, self.x.placed[w][p]) for w in ends[1]]
                self.x.row([*inside, *outside], len(ends[0]) - 1.0)

    def pinned(self) -> None:
        """A layer v pinned to stage s: where z[v,p] - z[v,p-1] = 1, sum_{q<=p} start[q] = s + 1."""
        x = self.x
        for layer, stage in self.problem.constraints.pinned:
            row = x.placed[self.reduced.block_of[layer]]
            for p in range(self.layout.size):
                started = x.start[: p + 1]
                here = [(1.0, row[p]), *([(-1.0, row[p - 1])] if p else [])]
                over, under = float(max(0, p - stage)), float(stage + 1)
                x.row(
                    [*((1.0, s) for s in started), *((over * c, v) for c, v in here)],
                    stage + 1.0 + over,
                )
                x.row(
                    [*((-1.0, s) for s in started), *((under * c, v) for c, v in here)],
                    under - stage - 1.0,
                )

    def memory_unit(self) -> float:
        """Bytes of memory that rows count as 1."""
        return float(self.problem.cluster.memory_bytes or self._most(1) or 1)

    def _most(self, held: int) -> int:
        """Bytes of a rank that runs everything and holds so many micro-batches."""
        versions = self.problem.weight_copies + held - 1
        inputs = sum(feed.bytes_ for feed in self.reduced.feeds) + self.x.total_cut
        return versions * self.x.total_weights + held * (sum(self.reduced.kept_bytes) + inputs)

    def memory(self, limit: float | Variable) -> None:
        """A stage that holds h micro-batches needs copies * w + (h - 1) * w + h * k bytes
        (recompute: h * inputs + k; synchronous: no older versions), at most the limit.

        h is at least j where R > n (j - 1), R being the ranks from the stage on: that is a binary
        held[p,j], forced by y[a] and R; under 1f1b no further than the micro-batches dealt."""
        problem, layout, x = self.problem, self.layout, self.x
        entered = self._entered_feeds() if problem.recompute else None
        devices = float(problem.cluster.devices)
        ranks_from: Terms = []
        for p in reversed(range(layout.size)):
            leaves = x.leaves_at[p]
            if not leaves:
                continue
            ranks_from = [*ranks_from, *((float(layout.replicas(a)), x.arc[a]) for a in leaves)]
            if problem.schedule == "gpipe":
                groups: dict[int, list[Arc]] = defaultdict(list)
                for a in leaves:
                    groups[self._most_held(a)].append(a)
                for held, arcs in sorted(groups.items()):
                    self._need(p, held, entered, limit, [x.arc[a] for a in arcs])
                continue
            self._need(p, 1, entered, limit, [x.start[p]])
            for held in range(2, max(self._most_held(a) for a in leaves) + 1):
                literal = x.model.add_binary_variable()
                self._need(p, held, entered, limit, [literal])
                for a in leaves:
                    if self._most_held(a) >= held:
                        least = float(layout.replicas(a) * (held - 1))
                        x.row(
                            [*ranks_from, (devices, x.arc[a]), (-devices, literal)],
                            least + devices,
                        )

    def _most_held(self, a: Arc) -> int:
        """Most micro-batches that a stage on this arc can hold."""
        behind = self.problem.cluster.devices - self.layout.ranks_before(a)
        return in_flight(
            self.problem.schedule, behind, self.layout.replicas(a), self.problem.micro_batches
        )

    def _need(
        self,
        p: int,
        held: int,
        entered: list[list[Variable]] | None,
        limit: float | Variable,
        conditions: list[Variable],
    ) -> None:
        """Bytes of a rank of the stage that starts at p, holding so many micro-batches, <= limit
        where one of the conditions is 1."""
        problem, reduced, x = self.problem, self.reduced, self.x
        unit = self.memory_unit()
        copies = problem.weight_copies + (0 if problem.synchronous else held - 1)
        times = 1 if problem.recompute else held
        need = x.between(
            p - 1,
            p,
            [
                (copies * w + times * kept) / unit
                for w, kept in zip(reduced.parameter_bytes, reduced.kept_bytes, strict=True)
            ],
        )
        if entered is not None:
            need += x.crossed(p - 1, held / unit)
            for feed, row in zip(reduced.feeds, entered, strict=True):
                need.append((held * feed.bytes_ / unit, row[p]))
                if p:
                    need.append((-held * feed.bytes_ / unit, row[p - 1]))
        largest = self._most(held) / unit
        need += [(largest, condition) for condition in conditions]
        if not isinstance(limit, float):
            x.row([*need, (-1.0, limit)], largest)
        else:
            x.row(need, limit / unit + largest)

    def _entered_feeds(self) -> list[list[Variable]]:
        """entered[i,p]: network input i is read by a stage at or before p (an OR of z)."""
        out: list[list[Variable]] = []
        for feed in self.reduced.feeds:
            row = []
            for p in range(self.layout.size):
                variable = self.x.model.add_variable(lb=0.0, ub=1.0)
                readers = [self.x.placed[v][p] for v in feed.consumers]
                for z in readers:
                    self.x.row([(1.0, z), (-1.0, variable)], 0.0)
                self.x.row([(1.0, variable), *((-1.0, z) for z in readers)], 0.0)
                row.append(variable)
            out.append(row)
        return out

    def pipedream_memory(self, limit: float | Variable) -> None:
        """The original's own rule at every level: ceil(machines behind / m) * (a + w) <= limit, the
        machines behind being those of the span's later stages, and for its first stage all but its
        own: a plan that idles some counts them there."""
        layout, x = self.layout, self.x
        graph = self.problem.graph
        unit = self.memory_unit()
        size = [
            one * (sum(graph.layers[u].output_bytes for u in members) + weights) / unit
            for one, members, weights in zip(
                self.counted_blocks(),
                self.reduced.members,
                self.reduced.parameter_bytes,
                strict=True,
            )
        ]
        for a in layout.arcs:
            step = layout.group_sizes[a.span.level - 1]
            first = a.start == a.span.start
            behind = (layout.stop(a.span) - layout.end(a)) // step
            for machines in [behind] if first else range(behind + 1):
                times = -(-machines // a.machines)
                if not times:
                    continue
                own = x.between(a.start - 1, layout.last(a), [times * s for s in size])
                largest = times * sum(size)
                conditions = [x.arc[a]]
                if not first:
                    conditions.append(x.end[a.span, layout.end(a) + machines * step])
                own += [(largest, condition) for condition in conditions]
                if not isinstance(limit, float):
                    x.row([*own, (-1.0, limit)], largest * len(conditions))
                else:
                    x.row(own, limit / unit + largest * len(conditions))
