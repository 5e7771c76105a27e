"""Constraints of the CP-SAT model, one family a method; docs/formulation.md names each method.

Symbols: z[v,p] `placed`, y[a] `arc`, e[s,p] `end`, x[p,i] `crossing`, T the period, n(a) replicas
of arc a, D_p the set of blocks with z[v,p] = 1, c compute, w weights, k kept bytes, O_p what
crosses behind p. An arc of level 1 is a stage.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from pipeplan.core.schedule import in_flight
from pipeplan.solver.arcs import Arc, Span
from pipeplan.solver.backends.cpsat.variables import Linear, Literal, Variables
from pipeplan.solver.quantize import exact_bytes

__all__ = ["Constraints"]


class Constraints:
    """Everything that makes a solution a valid plan, whatever it costs."""

    def __init__(self, variables: Variables) -> None:
        self.x = variables
        self.model = variables.model
        self.layout = variables.layout
        self.reduced = variables.reduced
        self.problem = variables.reduced.problem

    def add(self, memory: Linear | None) -> None:
        """Every family; `memory` is a device's bytes (a number, or a variable to be minimised)."""
        self.paths()
        self.all_devices()
        self.prefixes_grow()
        self.precedence()
        self.placed_at_starts()
        self.stages_hold_layers()
        self.crossing_tensors()
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
        used: dict[Span, Literal | int] = {layout.top: 1}
        for a in layout.arcs:
            inner = layout.inner(a)
            if inner is not None:
                used[inner] = x.arc[a]
        for span in layout.spans:
            starting: dict[int, list[Literal]] = defaultdict(list)
            ending: dict[int, list[Literal]] = defaultdict(list)
            for a in layout.arcs_of(span):
                starting[a.start].append(x.arc[a])
                ending[layout.end(a)].append(x.arc[a])
            self.model.add(sum(starting[span.start]) == used[span])
            for p in (*list(layout.slots(span))[1:], layout.stop(span)):
                self.model.add(sum(starting[p]) + x.end[span, p] == sum(ending[p]))
        self.model.add_exactly_one(x.end[span, p] for span, p in x.end if span == layout.top)
        for p, leaves in enumerate(x.leaves_at):
            self.model.add(sum(x.arc[a] for a in leaves) == x.start[p])
            self.model.add_at_most_one(x.arc[a] for a in leaves)

    def all_devices(self) -> None:
        """Cost model pipedream idles nothing: e[s, p] = 0 before the end of s."""
        problem = self.problem
        if problem.cost_model != "pipedream" or problem.use_fewer_machines:
            return
        for (span, p), literal in self.x.end.items():
            if p != self.layout.stop(span):
                self.model.add(literal == 0)

    def prefixes_grow(self) -> None:
        """z[v,p-1] <= z[v,p]."""
        for row in self.x.placed:
            self.x.pause()
            for earlier, later in pairwise(row):
                self.model.add_implication(earlier, later)

    def precedence(self) -> None:
        """z[v,p] <= z[u,p] for each edge (u,v) of the transitive reduction: D_p is an ideal."""
        placed = self.x.placed
        for u, v in self.reduced.edges:
            self.x.pause()
            for p in range(self.layout.size - 1):
                self.model.add_implication(placed[v][p], placed[u][p])

    def placed_at_starts(self) -> None:
        """z[v,p] <= z[v,p-1] + start[p]: nothing is placed where no stage starts."""
        for row in self.x.placed:
            self.x.pause()
            for p in range(1, self.layout.size):
                self.model.add_bool_or(~row[p], row[p - 1], self.x.start[p])

    def stages_hold_layers(self) -> None:
        """start[p] => sum_v z[v,p] - z[v,p-1] >= 1."""
        real = self.counted_blocks()
        for p, start in enumerate(self.x.start):
            own = self.x.between(p - 1, p, real)
            self.model.add(own >= 1).only_enforce_if(start)

    def counted_blocks(self) -> list[int]:
        """1 for a block that makes a stage: all but those that cost model pipedream drops."""
        if self.problem.cost_model != "pipedream":
            return [1] * len(self.reduced)
        from pipeplan.core.nested_cost import PipedreamGraph

        removed = PipedreamGraph(self.problem.graph).removed
        return [int(not removed.issuperset(members)) for members in self.reduced.members]

    def crossing_tensors(self) -> None:
        """x[p,i] >= z[u,p] - z[w,p] for the producer u and each maximal reader w of tensor i; and
        x[p,i] <= z[u,p], so that a tensor not yet made never counts."""
        placed = self.x.placed
        for p, literals in enumerate(self.x.crossing):
            for tensor, literal in zip(self.reduced.tensors, literals, strict=True):
                self.x.pause()
                made = placed[tensor.producer][p]
                self.model.add_implication(literal, made)
                for w in tensor.consumers:
                    self.model.add_bool_or(~made, placed[w][p], literal)
                self.model.add_bool_or(~literal, *(~placed[w][p] for w in tensor.consumers))

    def max_stages(self) -> None:
        """sum_p start[p] <= K."""
        most = self.problem.constraints.max_stages
        if most is not None:
            self.model.add(sum(self.x.start) <= most)

    def forced_cuts(self) -> None:
        """For a forced cut F some position has D_p = F: f[p] => z[v,p] = 1 for the maximal v of F
        and z[w,p] = 0 for the minimal w outside, sum_p f[p] = 1."""
        for cut in self.problem.constraints.forced_cuts:
            ends = self.reduced.ends(cut)
            if ends is None:
                self.model.add_bool_or([])
                continue
            here = [self.model.new_bool_var("forced") for _ in range(self.layout.size - 1)]
            self.model.add_exactly_one(here) if here else self.model.add_bool_or([])
            # The first position that holds the cut, so that exactly one does.
            for p, literal in enumerate(here):
                self.model.add_implication(literal, self.x.start[p])
                for v in ends[0]:
                    self.model.add_implication(literal, self.x.placed[v][p])
                for w in ends[1]:
                    self.model.add_implication(literal, ~self.x.placed[w][p])

    def forbidden_cuts(self) -> None:
        """For a forbidden cut F no position has D_p = F: some maximal v of F has z[v,p] = 0 or some
        minimal w outside has z[w,p] = 1."""
        for cut in self.problem.constraints.forbidden_cuts:
            ends = self.reduced.ends(cut)
            if ends is None:
                continue
            for p in range(self.layout.size - 1):
                self.model.add_bool_or(
                    *(~self.x.placed[v][p] for v in ends[0]),
                    *(self.x.placed[w][p] for w in ends[1]),
                )

    def pinned(self) -> None:
        """A layer v pinned to stage s: z[v,p] - z[v,p-1] = 1 => sum_{q<=p} start[q] = s + 1."""
        for layer, stage in self.problem.constraints.pinned:
            row = self.x.placed[self.reduced.block_of[layer]]
            for p in range(self.layout.size):
                before = [~row[p - 1]] if p else []
                self.model.add(sum(self.x.start[: p + 1]) == stage + 1).only_enforce_if(
                    [row[p], *before]
                )

    def memory(self, limit: Linear) -> None:
        """A stage that holds h micro-batches needs copies * w + (h - 1) * w + h * k
        bytes (recompute: h * inputs + k; synchronous: no older versions), at most the limit.

        h is at least j where R > n (j - 1), R being the ranks from the stage on: that is a literal
        held[p,j], forced by y[a] and R; under 1f1b no further than the micro-batches dealt."""
        problem, layout, x = self.problem, self.layout, self.x
        devices = problem.cluster.devices
        most = sum(self.reduced.parameter_bytes) * (problem.weight_copies + devices) + (
            sum(self.reduced.kept_bytes)
            + sum(t.bytes_ for t in self.reduced.tensors)
            + sum(feed.bytes_ for feed in self.reduced.feeds)
        ) * max(devices, problem.micro_batches or 1)
        exact_bytes(most, "the memory of a stage")
        entered = self._entered_feeds() if problem.recompute else None
        ranks_from: Linear = 0
        for p in reversed(range(layout.size)):
            leaves = x.leaves_at[p]
            if not leaves:
                continue
            ranks_from = ranks_from + sum(layout.replicas(a) * x.arc[a] for a in leaves)
            for held in sorted(self._fixed_counts(leaves)):
                here = [a for a in leaves if self._fixed_count(a) == held]
                need = self._need(p, held, entered)
                for a in here:
                    self.model.add(need <= limit).only_enforce_if(x.arc[a])
            if problem.schedule == "gpipe":
                continue
            self.model.add(self._need(p, 1, entered) <= limit).only_enforce_if(x.start[p])
            top = max(self._most_held(a) for a in leaves)
            for held in range(2, top + 1):
                literal = self.model.new_bool_var(f"held_{p}_{held}")
                self.model.add(self._need(p, held, entered) <= limit).only_enforce_if(literal)
                for a in leaves:
                    if self._most_held(a) >= held:
                        self.model.add(
                            ranks_from <= layout.replicas(a) * (held - 1)
                        ).only_enforce_if(x.arc[a], ~literal)

    def _fixed_count(self, a: Arc) -> int:
        """Micro-batches held under gpipe: they depend on the stage's replicas alone."""
        return in_flight("gpipe", 1, self.layout.replicas(a), self.problem.micro_batches)

    def _fixed_counts(self, leaves: Sequence[Arc]) -> set[int]:
        return {self._fixed_count(a) for a in leaves} if self.problem.schedule == "gpipe" else set()

    def _most_held(self, a: Arc) -> int:
        """Most micro-batches that a stage on this arc can hold."""
        behind = self.problem.cluster.devices - self.layout.ranks_before(a)
        return in_flight(
            self.problem.schedule, behind, self.layout.replicas(a), self.problem.micro_batches
        )

    def _need(self, p: int, held: int, entered: list[list[Literal]] | None) -> Linear:
        """Bytes of a rank of the stage that starts at p, holding so many micro-batches."""
        problem, reduced = self.problem, self.reduced
        copies = problem.weight_copies + (0 if problem.synchronous else held - 1)
        times = 1 if problem.recompute else held
        need = self.x.between(
            p - 1,
            p,
            [
                copies * w + times * kept
                for w, kept in zip(reduced.parameter_bytes, reduced.kept_bytes, strict=True)
            ],
        )
        if entered is None:
            return need
        need = need + self.x.cut(p - 1, [held * t.bytes_ for t in reduced.tensors])
        for feed, row in zip(reduced.feeds, entered, strict=True):
            need = need + held * feed.bytes_ * (row[p] - (row[p - 1] if p else 0))
        return need

    def _entered_feeds(self) -> list[list[Literal]]:
        """entered[i,p]: network input i is read by a stage at or before p (an OR of z)."""
        out: list[list[Literal]] = []
        for feed in self.reduced.feeds:
            row = []
            for p in range(self.layout.size):
                literal = self.model.new_bool_var("entered")
                readers = [self.x.placed[v][p] for v in feed.consumers]
                self.model.add_max_equality(literal, readers)
                row.append(literal)
            out.append(row)
        return out

    def pipedream_memory(self, limit: Linear) -> None:
        """The original's own rule at every level: ceil(machines behind / m) * (a + w) <= limit, the
        machines behind being those of the span's later stages, and for its first stage all but its
        own: a plan that idles some counts them there."""
        problem, layout, x = self.problem, self.layout, self.x
        counted = self.counted_blocks()
        graph = problem.graph
        size = [
            counted[v] * sum(graph.layers[u].output_bytes for u in members)
            + counted[v] * self.reduced.parameter_bytes[v]
            for v, members in enumerate(self.reduced.members)
        ]
        exact_bytes(sum(size) * problem.cluster.devices, "the memory of a stage")
        for a in layout.arcs:
            step = layout.group_sizes[a.span.level - 1]
            own = x.between(a.start - 1, layout.last(a), size)
            first = a.start == a.span.start
            behind = (layout.stop(a.span) - layout.end(a)) // step
            for machines in [behind] if first else range(behind + 1):
                ends = [] if first else [x.end[a.span, layout.end(a) + machines * step]]
                self.model.add(-(-machines // a.machines) * own <= limit).only_enforce_if(
                    x.arc[a], *ends
                )
