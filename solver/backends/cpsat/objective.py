"""Times and objective of the CP-SAT model, one family a method; docs/formulation.md names each.

Every time row reads: literals => ticks <= n T, in ticks; T counts steps of many ticks. Symbols as
in `constraints`; B_l bandwidth, rho compression, C copies.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pipeplan.core.nested_cost import PipedreamGraph
from pipeplan.solver.arcs import Arc
from pipeplan.solver.backends.cpsat.variables import Linear, Literal, Variables
from pipeplan.solver.cells import closure_sums
from pipeplan.solver.geometry import Layout as Geometry
from pipeplan.solver.quantize import TICKS_PER_STEP, Ticks
from pipeplan.solver.relaxation import Relaxation

__all__ = ["JointObjective", "NestedObjective", "Objective"]


class Objective:
    """The period T in steps between two bounds, and what every cost model shares.

    `most_terms` is the longest sum of rounded coefficients: the rounding error follows from it.
    """

    def __init__(self, variables: Variables, ticks: Ticks, period_steps: tuple[int, int]) -> None:
        self.x = variables
        self.model = variables.model
        self.layout = variables.layout
        self.reduced = variables.reduced
        self.problem = variables.reduced.problem
        self.ticks = ticks
        self.lowest, self.highest = period_steps
        self.period = self.model.new_int_var(self.lowest, max(self.lowest, self.highest), "T")
        self.most_terms = 1
        self.target: Linear = self.period

    def row(
        self,
        literals: Sequence[Literal],
        parts: Sequence[Linear],
        replicas: int,
        terms: int,
    ) -> None:
        """literals => sum of parts <= replicas * T."""
        self.most_terms = max(self.most_terms, terms)
        self.model.add(sum(parts) <= replicas * TICKS_PER_STEP * self.period).only_enforce_if(
            *literals
        )

    def per_block(self, ms_per_byte: float, compute: Sequence[float] | None = None) -> list[int]:
        """Ticks of each block: its compute, if asked for, plus its weights at a rate."""
        weights = self.reduced.parameter_bytes
        if compute is None:
            return [self.ticks.of(ms_per_byte * w) for w in weights]
        return [self.ticks.of(c + ms_per_byte * w) for c, w in zip(compute, weights, strict=True)]

    def per_tensor(self, ms_per_byte: float) -> list[int]:
        """Ticks of each tensor at a rate."""
        return [self.ticks.of(ms_per_byte * t.bytes_) for t in self.reduced.tensors]

    def compute_ms(self) -> tuple[float, ...]:
        """c of each block."""
        return self.reduced.compute_ms

    def windows(self) -> None:
        """What is placed before an arc fits the ranks before it, what comes after fits the rest:
        y[a] => sum_v c_v z[v,p-1] <= before(a) T and sum_v c_v (1 - z[v,p]) <= after(a) T; and
        where the compute at and behind v exceeds (N - 1 - p) T for the largest T: z[v,p] = 1."""
        x, layout = self.x, self.layout
        compute = self.per_block(0.0, self.compute_ms())
        total, slack = sum(compute), len(compute)
        devices = self.problem.cluster.devices
        for a in layout.leaves:
            before = layout.ranks_before(a)
            after = devices - before - layout.replicas(a)
            if a.start:
                self.row([x.arc[a]], [x.between(-1, a.start - 1, compute)], before, slack)
            if after:
                rest = total - x.between(-1, a.start, compute)
                self.row([x.arc[a]], [rest], after, slack)
            else:
                for row in x.placed:
                    self.model.add_implication(x.arc[a], row[a.start])
        limit = self.highest * TICKS_PER_STEP
        behind = closure_sums(self.reduced.descendants, np.array(compute, dtype=np.float64))
        for v, ticks in enumerate(behind):
            for p, literal in enumerate(x.placed[v][:-1]):
                if ticks > (layout.size - 1 - p) * layout.copies * limit + slack:
                    self.model.add(literal == 1)

    def placed_windows(self, relaxation: Relaxation | None) -> None:
        """What `solver.relaxation` knows of plans within the upper bound: start[p] => least(p) <=
        sum_v c_v z[v,p-1] <= most(p), and z[v,p] = 1 from the position where v is surely placed."""
        if relaxation is None:
            return
        x = self.x
        compute = self.per_block(0.0, self.compute_ms())
        for p, (least, most) in sorted(relaxation.before_ms.items()):
            if p:
                before = x.between(-1, p - 1, compute)
                slack = len(compute) + 2
                for bound in (
                    before >= self.ticks.of(least) - slack,
                    before <= self.ticks.of(most) + slack,
                ):
                    self.model.add(bound).only_enforce_if(x.start[p])
        x.surely_placed(relaxation.placed)

    def minimise(self) -> None:
        """min T (JointObjective: or the batch time)."""
        self.model.minimize(self.target)


class JointObjective(Objective):
    """Cost model `topology` for one block size (DESIGN 4.1)."""

    def __init__(self, variables: Variables, ticks: Ticks, period_steps: tuple[int, int]) -> None:
        super().__init__(variables, ticks, period_steps)
        self.geometry = Geometry(self.problem, self.layout.size)

    def add(self, batch_steps: tuple[int, int] | None, relaxation: Relaxation | None) -> None:
        """Every family; `batch_steps` bounds the batch time of a synchronous schedule."""
        self.windows()
        self.placed_windows(relaxation)
        self.devices()
        self.device_ports()
        self.ports_above()
        self.ports_inside()
        if batch_steps is not None:
            self.batch(*batch_steps)
        self.minimise()

    def devices(self) -> None:
        """y[a] => sum over the stage of c + w s(a) <= n(a) T, s being a whole all-reduce's ms per
        byte (0 where it overlaps or comes once a batch)."""
        x = self.x
        for a in self.layout.leaves:
            stage = self.geometry.stage(a.start, a.machines)
            n = stage.replicas
            cost = self.per_block(stage.device_sync_ms_per_byte * n, self.compute_ms())
            latency = self.ticks.of(stage.latency_ms * n)
            own = x.between(a.start - 1, a.start, cost)
            self.row([x.arc[a]], [own, latency], n, len(cost) + 1)

    def device_ports(self) -> None:
        """y[a] => w s_1(a) + (O_before + O_after) / (B_1 rho) <= n(a) T."""
        x = self.x
        tensors = self.per_tensor(self.geometry.device_moved_ms_per_byte)
        for a in self.layout.leaves:
            stage = self.geometry.stage(a.start, a.machines)
            sync = self.per_block(stage.device_port_ms_per_byte * stage.replicas)
            parts = [
                x.between(a.start - 1, a.start, sync),
                x.cut(a.start - 1, tensors),
                x.cut(self.layout.end(a) - 1, tensors),
            ]
            self.row([x.arc[a]], parts, stage.replicas, len(sync) + 2 * len(tensors))

    def ports_above(self) -> None:
        """Ports of levels whose children hold whole blocks carry every stage's all-reduce:
        sum over stages of w s_l(a) / n(a) <= T."""
        if not self.geometry.shares_ports:
            return
        loads = [self._stage_load(p, None) for p in range(self.layout.size)]
        self.row([], loads, 1, len(self.reduced))

    def ports_inside(self) -> None:
        """Each child g of a level l that the block spans: sum of the all-reduces of the stages with
        ranks in g, plus sum over cuts of |share_s(g) - share_s+1(g)| O_s / (B_l rho), is <= T."""
        for level, port in enumerate(self.geometry.ports):
            sync = [self._stage_load(p, level) for p in range(self.layout.size)]
            for first in range(0, self.layout.size, port.size):
                parts = [
                    *self._present(sync, first, port.size),
                    *self._transfers(port.ms_per_byte, first, port.size),
                ]
                terms = len(self.reduced) + self.layout.size * len(self.reduced.tensors)
                self.row([], parts, 1, terms)

    def _stage_load(self, p: int, level: int | None) -> Linear:
        """All-reduce time of the stage at p on a port: y[a] => load >= w s_l(a) / n(a)."""
        rates = {
            a: stage.shared_ms_per_byte if level is None else stage.port_ms_per_byte[level]
            for a in self.x.leaves_at[p]
            for stage in [self.geometry.stage(a.start, a.machines)]
        }
        if not any(rates.values()):
            return 0
        load = self.model.new_int_var(0, self.highest * TICKS_PER_STEP, f"sync_{p}")
        for a, rate in rates.items():
            own = self.x.between(p - 1, p, self.per_block(rate))
            self.model.add(own <= load).only_enforce_if(self.x.arc[a])
        return load

    def _present(self, sync: Sequence[Linear], first: int, size: int) -> list[Linear]:
        """Loads of the stages that have ranks first..first+size-1: those that start there, and
        those that start before and reach in."""
        out: list[Linear] = []
        for p in range(first + size):
            if isinstance(sync[p], int):
                continue
            if p >= first:
                out.append(sync[p])
                continue
            load = self.model.new_int_var(0, self.highest * TICKS_PER_STEP, f"reach_{p}_{first}")
            for a in self.x.leaves_at[p]:
                if self.layout.end(a) > first:
                    self.model.add(sync[p] <= load).only_enforce_if(self.x.arc[a])
            out.append(load)
        return out

    def _transfers(self, ms_per_byte: float, first: int, size: int) -> list[Linear]:
        """For each cut, y[a] and y[b] (the stages around it) => load >= |share_a - share_b| O."""
        layout, x = self.layout, self.x
        ending: dict[int, list[Arc]] = defaultdict(list)
        for a in layout.leaves:
            ending[layout.end(a)].append(a)

        def share(a: Arc) -> float:
            held = min(layout.end(a), first + size) - max(a.start, first)
            return max(0, held) / layout.replicas(a)

        out: list[Linear] = []
        for p in range(1, layout.size):
            pairs = [
                (a, b, abs(share(a) - share(b)))
                for a in ending[p]
                for b in x.leaves_at[p]
                if share(a) != share(b)
            ]
            if not pairs:
                continue
            load = self.model.new_int_var(0, self.highest * TICKS_PER_STEP, f"moved_{p}_{first}")
            for a, b, part in pairs:
                crossing = x.cut(p - 1, self.per_tensor(ms_per_byte * part))
                self.model.add(crossing <= load).only_enforce_if(x.arc[a], x.arc[b])
            out.append(load)
        return out

    def batch(self, lowest: int, highest: int) -> None:
        """Synchronous schedules minimise the batch time: sum_v c_v + sum over cuts of path(O)
        + (M - 1) T + the longest whole all-reduce, M micro-batches a batch."""
        x, layout = self.x, self.layout
        most = highest * TICKS_PER_STEP
        self.ticks = replace(self.ticks, cap=max(self.ticks.cap, 2 * most))
        longest = self.model.new_int_var(0, most, "all_reduce")
        for a in layout.leaves:
            stage = self.geometry.stage(a.start, a.machines)
            own = x.between(a.start - 1, a.start, self.per_block(stage.full_ms_per_byte))
            self.model.add(own + self.ticks.of(stage.full_latency_ms) <= longest).only_enforce_if(
                x.arc[a]
            )
        paths = [self._path(p, most) for p in range(1, layout.size)]
        assert self.problem.micro_batches is not None
        total = self.ticks.of(self.problem.graph.total_compute_ms)
        batch = self.model.new_int_var(lowest, max(lowest, highest), "batch")
        further = (self.problem.micro_batches - 1) * TICKS_PER_STEP
        self.model.add(
            total + sum(paths) + longest + further * self.period <= TICKS_PER_STEP * batch
        )
        self.most_terms = max(
            self.most_terms,
            2 * len(self.reduced) + layout.size * (len(self.reduced.tensors) + 1),
        )
        self.target = batch

    def _path(self, p: int, most: int) -> Linear:
        """Time of one micro-batch over the cut before position p, both ways: a stage starts at p =>
        path >= O * slowest + latencies of level 1; where the stages around it part at an outer
        level, y[a] and y[b] => that of the levels up to it."""
        x, layout, geometry = self.x, self.layout, self.geometry
        path = self.model.new_int_var(0, most, f"path_{p}")

        def cost(level: int) -> Linear:
            rate, latency = geometry.path_ms_per_byte(level)
            return x.cut(p - 1, self.per_tensor(rate)) + self.ticks.of(latency)

        self.model.add(cost(1) <= path).only_enforce_if(x.start[p])
        for a in layout.leaves:
            if layout.end(a) != p:
                continue
            for b in x.leaves_at[p]:
                level = geometry.crossing_level(p, a.machines, b.machines)
                if level > 1:
                    self.model.add(cost(level) <= path).only_enforce_if(x.arc[a], x.arc[b])
        return path


class NestedObjective(Objective):
    """Cost models `levelwise` and `pipedream`: all levels in one model (DESIGN 4.2)."""

    def __init__(self, variables: Variables, ticks: Ticks, period_steps: tuple[int, int]) -> None:
        super().__init__(variables, ticks, period_steps)
        self.original = self.problem.cost_model == "pipedream"
        self.view = PipedreamGraph(self.problem.graph)
        removed = self.view.removed if self.original else frozenset()
        graph = self.problem.graph
        self._compute = tuple(
            graph.compute_ms(v for v in members if v not in removed)
            for members in self.reduced.members
        )
        self._weights = tuple(
            graph.parameter_bytes(v for v in members if v not in removed)
            for members in self.reduced.members
        )

    def compute_ms(self) -> tuple[float, ...]:
        """c of each block, without what the original drops."""
        return self._compute

    def add(self, relaxation: Relaxation | None) -> None:
        """Every family."""
        self.windows()
        self.placed_windows(relaxation)
        self.devices()
        self.transfers()
        self.minimise()

    def _sync(self, a: Arc) -> tuple[list[Linear], int]:
        """All-reduces of the stages around an arc, in ticks of the arc: sum over the outer levels l
        of (m m_1 ... m_l-1) 4 (m_l - 1) / (m_l U B_l) W_l; and the number of terms."""
        parts: list[Linear] = []
        inside = a.machines
        outer = self.layout.around(a)
        while outer is not None:
            parts.append(self._all_reduce(outer, inside))
            inside *= outer.machines
            outer = self.layout.around(outer)
        return parts, len(parts) * len(self.reduced)

    def _all_reduce(self, a: Arc, times: int) -> Linear:
        """Ticks of `times` all-reduces of a stage of any level, 4 (m - 1) / (m U B) W each."""
        if self.problem.synchronous or a.machines == 1:
            return 0
        level = a.span.level
        cluster = self.problem.cluster
        width = cluster.group_sizes[level - 1]
        if self.original:
            # The base divides by the inner width, the recursion does not.
            first = a.start == a.span.start
            width = cluster.levels[level - 2].children if first and level > 1 else 1
        rate = cluster.levels[level - 1].bandwidth_bytes_per_s
        per_byte = 4 * (a.machines - 1) / (rate * a.machines * width) * 1e3 * times
        own = [self.ticks.of(per_byte * w) for w in self._weights]
        return self.x.between(a.start - 1, self.layout.last(a), own)

    def devices(self) -> None:
        """A stage on m_1 devices inside stages on m_2, ..., m_L machines: c + the all-reduce of
        level 1 + m_1 (that of level 2) + m_1 m_2 (that of level 3) + ... <= m_1 ... m_L T."""
        compute = [self.ticks.of(c) for c in self._compute]
        for a in self.layout.leaves:
            own = self.x.between(a.start - 1, a.start, compute)
            outer, terms = self._sync(a)
            parts = [own, self._all_reduce(a, 1), *outer]
            self.row([self.x.arc[a]], parts, self.layout.replicas(a), 2 * len(compute) + terms)

    def transfers(self) -> None:
        """A stage of level l on m machines: 2 O / (B_l rho) + m (all-reduce of level l+1) + ... <=
        m m_l+1 ... m_L T, for O entering and O leaving (pipedream: as far as it counts them)."""
        x, layout, problem = self.x, self.layout, self.problem
        if self.original and problem.activation_compression_ratio is None:
            return
        for a in layout.arcs:
            rate = problem.cluster.levels[a.span.level - 1].bandwidth_bytes_per_s
            per_byte = 2 / (rate * problem.compression) * 1e3
            ends = (a.start - 1, layout.last(a))
            if self.original and a.start == a.span.start:
                continue
            replicas = layout.replicas(a)
            outer, terms = self._sync(a)
            for p in ends:
                moved = self._moved(p, per_byte)
                self.row([x.arc[a]], [moved, *outer], replicas, terms + len(self.reduced.tensors))

    def _moved(self, p: int, per_byte: float) -> Linear:
        """Ticks of what crosses behind p. On a chain of states the original's own O of a state is a
        telescoping sum over z: O_1 z[1,p] + (O_2 - O_1) z[2,p] + ..., 0 for the last state."""
        if not self.original:
            return self.x.cut(p, self.per_tensor(per_byte))
        if not 0 <= p < self.layout.size - 1:
            return 0
        sizes = self.state_ticks(per_byte)
        steps = [b - a for a, b in zip([0, *sizes], sizes, strict=False)]
        kept = [v for v, m in enumerate(self.reduced.members) if not self.view.removed & set(m)]
        coefficients = [0] * len(self.reduced)
        for v, step in zip(kept, steps, strict=True):
            coefficients[v] = step
        return self.x.between(-1, p, coefficients)

    def state_ticks(self, per_byte: float) -> list[int]:
        """Ticks of O of each state of a chain, the last one 0."""
        state: set[int] = set()
        out: list[int] = []
        for v in sorted(self.view.kept):
            state.add(v)
            out.append(self.ticks.of(per_byte * self.view.output_bytes(frozenset(state))))
        out[-1] = 0
        return out
