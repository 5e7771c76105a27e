"""Times and objective of the MILP model, one family a method; docs/formulation.md names each.

The families are those of `cpsat.objective`. Times are in units of a reference time. Of the arcs
that start at one position at most one is chosen, so their rows are added up: with t[a] = T y[a] and
W[a] = w y[a] (`Variables`) one row a position says what CP-SAT says once for every arc.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

from pipeplan.core.nested_cost import PipedreamGraph
from pipeplan.solver.arcs import Arc
from pipeplan.solver.backends.milp.variables import Terms, Variable, Variables
from pipeplan.solver.geometry import Layout as Geometry
from pipeplan.solver.relaxation import Relaxation

__all__ = ["JointObjective", "NestedObjective", "Objective"]


class Objective:
    """The period T, and what every cost model shares; `unit_ms` is the reference time."""

    def __init__(
        self, variables: Variables, unit_ms: float, period_ms: tuple[float, float]
    ) -> None:
        self.x = variables
        self.layout = variables.layout
        self.reduced = variables.reduced
        self.problem = variables.reduced.problem
        self.unit_ms = unit_ms
        self.highest = period_ms[1] / unit_ms
        self.period = variables.model.add_variable(lb=period_ms[0] / unit_ms, ub=self.highest)
        self.target: Variable = self.period
        self.starting: dict[tuple[int, int], list[Arc]] = defaultdict(list)
        for a in self.layout.arcs:
            self.starting[a.span.level, a.start].append(a)

    def compute(self) -> Sequence[float]:
        """c of each block in units."""
        return [c / self.unit_ms for c in self.reduced.compute_ms]

    def per_weight(self, ms_per_byte: float) -> float:
        """Units of time for all weights at a rate."""
        return ms_per_byte * self.x.total_weights / self.unit_ms

    def shares_of_period(self) -> None:
        """t[a] <= T_max y[a], and the t of the arcs of a level that start at p sum up to <= T."""
        x = self.x
        for arcs in self.starting.values():
            for a in arcs:
                x.row([(1.0, x.share[a]), (-self.highest, x.arc[a])], 0.0)
            x.row([*((1.0, x.share[a]) for a in arcs), (-1.0, self.period)], 0.0)

    def busy(self, arcs: Sequence[Arc], factor: Callable[[Arc], float]) -> Terms:
        """- sum of factor(a) t[a]: the right-hand side of a time row."""
        return [(-float(factor(a)), self.x.share[a]) for a in arcs]

    def unless(self, arcs: Sequence[Arc], most: float) -> Terms:
        """most * (sum of y[a]): relaxes a row by `most` where none is chosen."""
        return [(most, self.x.arc[a]) for a in arcs]

    def windows(self) -> None:
        """What is placed before an arc fits the ranks before it, what comes after fits the rest:
        sum_v c_v z[v,p-1] <= sum_a before(a) t[a] + M (1 - start[p]), and likewise after."""
        x, layout = self.x, self.layout
        compute = list(self.compute())
        total = sum(compute)
        devices = self.problem.cluster.devices
        for p, leaves in enumerate(x.leaves_at):
            if not leaves:
                continue
            after = self.busy(
                leaves,
                lambda a: devices - layout.ranks_before(a) - layout.replicas(a),
            )
            rest = [(-c, z) for c, z in x.between(-1, p, compute)]
            x.row([*rest, *after, *self.unless(leaves, total)], 0.0)
            if p:
                before = self.busy(leaves, layout.ranks_before)
                placed = x.between(-1, p - 1, compute)
                x.row([*placed, *before, *self.unless(leaves, total)], total)

    def placed_windows(self, relaxation: Relaxation | None) -> None:
        """What `solver.relaxation` knows of plans within the upper bound: where start[p] = 1,
        least(p) <= sum_v c_v z[v,p-1] <= most(p); z[v,p] = 1 from where v is surely placed on."""
        if relaxation is None:
            return
        x = self.x
        compute = list(self.compute())
        total = sum(compute)
        for p, (least, most) in sorted(relaxation.before_ms.items()):
            if p:
                before = x.between(-1, p - 1, compute)
                slack = total - min(total, most / self.unit_ms)
                x.row([*before, (slack, x.start[p])], total * (1 + 1e-9))
                missing = [(-c, z) for c, z in before]
                x.row([*missing, (least / self.unit_ms, x.start[p])], total * 1e-9)
        x.surely_placed(relaxation.placed)

    def all_work(self) -> None:
        """sum_a n(a) t[a] >= sum_v c_v: the LP relaxation alone bounds T by the shared work."""
        leaves = self.layout.leaves
        self.x.row(self.busy(leaves, self.layout.replicas), -sum(self.compute()))

    def minimise(self) -> None:
        """min T (JointObjective: or the batch time)."""
        self.x.model.minimize(self.target)


class JointObjective(Objective):
    """Cost model `topology` for one block size (DESIGN 4.1)."""

    def __init__(
        self, variables: Variables, unit_ms: float, period_ms: tuple[float, float]
    ) -> None:
        super().__init__(variables, unit_ms, period_ms)
        self.geometry = Geometry(self.problem, self.layout.size)
        self.entering: dict[Arc, Variable] = {}
        self.leaving: dict[Arc, Variable] = {}

    def add(self, batch_ms: tuple[float, float] | None, relaxation: Relaxation | None) -> None:
        """Every family; `batch_ms` bounds the batch time of a synchronous schedule."""
        self.shares_of_period()
        self.windows()
        self.placed_windows(relaxation)
        self.all_work()
        self.devices()
        self.device_ports()
        self.ports_above()
        self.ports_inside()
        if batch_ms is not None:
            self.batch(*batch_ms)
        self.minimise()

    def _rates(self, leaves: Sequence[Arc], rate: Callable[[Arc], float]) -> Terms:
        return [(self.per_weight(rate(a)), self.x.weights[a]) for a in leaves]

    def devices(self) -> None:
        """sum over the stage of c + sum_a s(a) W[a] <= sum_a n(a) t[a] at each position."""
        x, stage = self.x, self.geometry.stage
        compute = self.compute()
        for p, leaves in enumerate(x.leaves_at):
            latency = [
                (stage(p, a.machines).latency_ms * self.layout.replicas(a) / self.unit_ms, x.arc[a])
                for a in leaves
            ]
            sync = self._rates(
                leaves,
                lambda a: (
                    stage(a.start, a.machines).device_sync_ms_per_byte * self.layout.replicas(a)
                ),
            )
            own = x.between(p - 1, p, compute)
            x.row([*own, *sync, *latency, *self.busy(leaves, self.layout.replicas)], 0.0)

    def device_ports(self) -> None:
        """Where start[p]: sum_a s_1(a) W[a] + (O_before + O_after) / (B_1 rho) <= sum n(a) t[a]."""
        x, stage = self.x, self.geometry.stage
        rate = self.geometry.device_moved_ms_per_byte / self.unit_ms
        for p, leaves in enumerate(x.leaves_at):
            sync = self._rates(
                leaves,
                lambda a: (
                    stage(a.start, a.machines).device_port_ms_per_byte * self.layout.replicas(a)
                ),
            )
            moved = [*x.crossed(p - 1, rate), *x.crossed(p, rate)]
            most = 2 * rate * x.total_cut
            x.row(
                [
                    *sync,
                    *moved,
                    *self.busy(leaves, self.layout.replicas),
                    *self.unless(leaves, most),
                ],
                most,
            )

    def ports_above(self) -> None:
        """Ports of levels whose children hold whole blocks: sum_a s_l(a) W[a] <= T."""
        if self.geometry.shares_ports:
            load = self._rates(
                self.layout.leaves,
                lambda a: self.geometry.stage(a.start, a.machines).shared_ms_per_byte,
            )
            self.x.row([*load, (-1.0, self.period)], 0.0)

    def ports_inside(self) -> None:
        """Each child g of a level l that the block spans: the all-reduces of the stages with ranks
        in g, plus sum over cuts of |share_s(g) - share_s+1(g)| O_s / (B_l rho), is <= T."""
        layout = self.layout
        for level, port in enumerate(self.geometry.ports):
            for first in range(0, layout.size, port.size):
                rate = self._port_rate(level)
                inside = [
                    a
                    for a in layout.leaves
                    if a.start < first + port.size and layout.end(a) > first
                ]
                load = self._rates(inside, rate)
                load += self._transfers(port.ms_per_byte, first, port.size)
                self.x.row([*load, (-1.0, self.period)], 0.0)

    def _port_rate(self, level: int) -> Callable[[Arc], float]:
        return lambda a: self.geometry.stage(a.start, a.machines).port_ms_per_byte[level]

    def _split_cuts(self) -> None:
        """O of the cut at p, on the arc that ends there and on the one that starts there:
        entering[b] <= y[b], leaving[a] <= y[a], each sums up to O at least if start[p]."""
        if self.entering or not self.layout.leaves:
            return
        x, model = self.x, self.x.model
        for a in self.layout.leaves:
            for side in (self.entering, self.leaving):
                side[a] = model.add_variable(lb=0.0, ub=1.0)
                x.row([(1.0, side[a]), (-1.0, x.arc[a])], 0.0)
        for p in range(1, self.layout.size):
            before = [self.leaving[a] for a in self.layout.leaves if self.layout.end(a) == p]
            behind = [self.entering[b] for b in x.leaves_at[p]]
            for parts in (before, behind):
                over = [(1.0, x.cut[p - 1]), *((-1.0, part) for part in parts)]
                x.row([*over, (1.0, x.start[p])], 1.0)
            equal = [*((1.0, v) for v in before), *((-1.0, v) for v in behind)]
            x.row(equal, 0.0, equal=True)

    def _transfers(self, ms_per_byte: float, first: int, size: int) -> Terms:
        """For each cut a load >= |share of the stage before - share of the stage behind| O."""
        self._split_cuts()
        layout, x = self.layout, self.x
        factor = ms_per_byte * x.total_cut / self.unit_ms

        def share(a: Arc) -> float:
            held = min(layout.end(a), first + size) - max(a.start, first)
            return max(0, held) / layout.replicas(a) * factor

        out: Terms = []
        for p in range(1, layout.size):
            before = [(share(a), self.leaving[a]) for a in layout.leaves if layout.end(a) == p]
            behind = [(share(b), self.entering[b]) for b in x.leaves_at[p]]
            if not any(c for c, _ in (*before, *behind)):
                continue
            load = x.model.add_variable(lb=0.0)
            for sign in (1.0, -1.0):
                x.row(
                    [
                        *((sign * c, v) for c, v in before),
                        *((-sign * c, v) for c, v in behind),
                        (-1.0, load),
                    ],
                    0.0,
                )
            out.append((1.0, load))
        return out

    def batch(self, lowest_ms: float, highest_ms: float) -> None:
        """Synchronous schedules minimise the batch time: sum_v c_v + sum over cuts of path(O)
        + (M - 1) T + the longest whole all-reduce, M micro-batches a batch."""
        x, stage = self.x, self.geometry.stage
        longest = x.model.add_variable(lb=0.0)
        for leaves in x.leaves_at:
            latency = [
                (stage(a.start, a.machines).full_latency_ms / self.unit_ms, x.arc[a])
                for a in leaves
            ]
            whole = self._rates(leaves, lambda a: stage(a.start, a.machines).full_ms_per_byte)
            x.row([*whole, *latency, (-1.0, longest)], 0.0)
        paths = [(1.0, self._path(p)) for p in range(1, self.layout.size)]
        assert self.problem.micro_batches is not None
        total = self.problem.graph.total_compute_ms / self.unit_ms
        self.target = x.model.add_variable(
            lb=lowest_ms / self.unit_ms, ub=highest_ms / self.unit_ms
        )
        further = float(self.problem.micro_batches - 1)
        x.row([*paths, (1.0, longest), (further, self.period), (-1.0, self.target)], -total)

    def _path(self, p: int) -> Variable:
        """Time of one micro-batch over the cut before p, both ways: where a stage starts at p, path
        >= O * slowest + latencies of level 1, and where the stages around it part at an outer level
        those of the levels up to it."""
        x, layout, geometry = self.x, self.layout, self.geometry
        path = x.model.add_variable(lb=0.0)

        def bound(level: int, conditions: list[Variable]) -> None:
            rate, latency = geometry.path_ms_per_byte(level)
            most = rate * x.total_cut / self.unit_ms + latency / self.unit_ms
            x.row(
                [
                    *x.crossed(p - 1, rate / self.unit_ms),
                    *((most, condition) for condition in conditions),
                    (-1.0, path),
                ],
                most * len(conditions) - latency / self.unit_ms,
            )

        bound(1, [x.start[p]])
        for a in layout.leaves:
            if layout.end(a) != p:
                continue
            for b in x.leaves_at[p]:
                level = geometry.crossing_level(p, a.machines, b.machines)
                if level > 1:
                    bound(level, [x.arc[a], x.arc[b]])
        return path


class NestedObjective(Objective):
    """Cost models `levelwise` and `pipedream`: all levels in one model (DESIGN 4.2)."""

    def __init__(
        self, variables: Variables, unit_ms: float, period_ms: tuple[float, float]
    ) -> None:
        super().__init__(variables, unit_ms, period_ms)
        self.original = self.problem.cost_model == "pipedream"
        self.view = PipedreamGraph(self.problem.graph)
        self.outer: dict[Arc, Variable] = {}

    def compute(self) -> Sequence[float]:
        """c of each block in units, without what the original drops."""
        removed = self.view.removed if self.original else frozenset()
        graph = self.problem.graph
        return [
            graph.compute_ms(v for v in members if v not in removed) / self.unit_ms
            for members in self.reduced.members
        ]

    def add(self, relaxation: Relaxation | None) -> None:
        """Every family."""
        self.shares_of_period()
        self.windows()
        self.placed_windows(relaxation)
        self.all_work()
        self.outer_all_reduces()
        self.devices()
        self.transfers()
        self.minimise()

    def _all_reduce(self, a: Arc) -> float:
        """Units of one all-reduce of all weights on a stage of any level: 4 (m - 1) / (m U B) W."""
        if self.problem.synchronous or a.machines == 1:
            return 0.0
        level = a.span.level
        cluster = self.problem.cluster
        width = cluster.group_sizes[level - 1]
        if self.original:
            # The base divides by the inner width, the recursion does not.
            first = a.start == a.span.start
            width = cluster.levels[level - 2].children if first and level > 1 else 1
        rate = cluster.levels[level - 1].bandwidth_bytes_per_s
        return self.per_weight(4 * (a.machines - 1) / (rate * a.machines * width) * 1e3)

    def outer_all_reduces(self) -> None:
        """What the stages around an arc add to it where it is chosen: sum over the outer levels l
        of (m m_1 ... m_l-1) 4 (m_l - 1) / (m_l U B_l) W_l <= outer[a] + M (1 - y[a])."""
        x, layout = self.x, self.layout
        for a in layout.arcs:
            terms: Terms = []
            inside = a.machines
            around = layout.around(a)
            while around is not None:
                terms.append((inside * self._all_reduce(around), x.weights[around]))
                inside *= around.machines
                around = layout.around(around)
            most = sum(c for c, _ in terms)
            if most:
                self.outer[a] = x.model.add_variable(lb=0.0, ub=most)
                x.row([*terms, (-1.0, self.outer[a]), (most, x.arc[a])], most)

    def _outer(self, arcs: Sequence[Arc]) -> Terms:
        return [(1.0, self.outer[a]) for a in arcs if a in self.outer]

    def devices(self) -> None:
        """c + the all-reduce of level 1 + m_1 (that of level 2) + m_1 m_2 (that of level 3) + ...
        <= m_1 ... m_L T, added up over the arcs that start at a position."""
        x = self.x
        compute = self.compute()
        for p, leaves in enumerate(x.leaves_at):
            own = x.between(p - 1, p, compute)
            sync = [(self._all_reduce(a), x.weights[a]) for a in leaves]
            load = [*own, *sync, *self._outer(leaves)]
            x.row([*load, *self.busy(leaves, self.layout.replicas)], 0.0)

    def transfers(self) -> None:
        """A stage of level l on m machines: 2 O / (B_l rho) + m (all-reduce of level l+1) + ... <=
        m m_l+1 ... m_L T, for O entering and O leaving (pipedream: as far as it counts them)."""
        x, layout, problem = self.x, self.layout, self.problem
        if self.original and problem.activation_compression_ratio is None:
            return
        for (level, p), found in sorted(self.starting.items()):
            arcs = [a for a in found if not (self.original and a.start == a.span.start)]
            if not arcs:
                continue
            rate = problem.cluster.levels[level - 1].bandwidth_bytes_per_s * problem.compression
            for position in (p - 1, layout.last(arcs[0])):
                moved, most = self._moved(position, 2e3 / rate / self.unit_ms)
                busy = self.busy(arcs, layout.replicas)
                x.row([*moved, *self._outer(arcs), *busy, *self.unless(arcs, most)], most)

    def _moved(self, p: int, per_byte: float) -> tuple[Terms, float]:
        """What crosses behind p, and the most that can. On a chain of states the original's own O
        of a state is a telescoping sum: O_1 z[1,p] + (O_2 - O_1) z[2,p] + ..., 0 for the last."""
        if not 0 <= p < self.layout.size - 1:
            return [], 0.0
        if not self.original:
            return self.x.crossed(p, per_byte), per_byte * self.x.total_cut
        sizes: list[float] = []
        state: set[int] = set()
        for v in sorted(self.view.kept):
            state.add(v)
            sizes.append(per_byte * self.view.output_bytes(frozenset(state)))
        sizes[-1] = 0.0
        values = [0.0] * len(self.reduced)
        before = 0.0
        for v, size in zip(sorted(self.view.kept), sizes, strict=True):
            values[self.reduced.block_of[v]] = size - before
            before = size
        return self.x.between(-1, p, values), max(sizes)
