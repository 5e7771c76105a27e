"""What the model-based backends share: one model for each layout, a plan first, then the proof.

A joint problem has one layout for each number of copies, a nested one a single layout with all its
levels. A plan along a line bounds every model from above; each model then finds a better plan or
proves that its layout has none. `Engine` is what a solver must be able to do for that.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Final, Protocol

from pipeplan.core.check import block_sizes, violations
from pipeplan.core.cost import evaluate
from pipeplan.core.errors import BackendBugError, ProblemError
from pipeplan.core.memory import stage_memory
from pipeplan.core.nested_cost import PipedreamGraph
from pipeplan.core.plan import Plan
from pipeplan.core.problem import Problem
from pipeplan.solver.arcs import Layout
from pipeplan.solver.bounds import floor_ms
from pipeplan.solver.cells import CellSums, Crossing, affordable_cells, cell_sums
from pipeplan.solver.clock import Clock, OutOfTimeError
from pipeplan.solver.explain import explain
from pipeplan.solver.judge import true_price_ms
from pipeplan.solver.least_memory import least_peak_bytes, plans_below, roomiest_plans
from pipeplan.solver.linear_dp import linear_plan
from pipeplan.solver.options import SolveOptions
from pipeplan.solver.outcome import Outcome, Progress, ProgressEvent
from pipeplan.solver.reduce import ReducedGraph, reduce_graph
from pipeplan.solver.relaxation import MOST_BLOCKS, Relaxation, relax_joint
from pipeplan.solver.relaxation_nested import relax_levelwise
from pipeplan.solver.result import Limit, Stats, Status

__all__ = ["Engine", "Finding", "Task", "layouts_of", "search_layouts"]

_SAME: Final = 1e-9
"""Relative difference below which two prices are one."""


_PRICE_S: Final = 30.0
"""What the model's own price of a plan may take."""
_BUILT_PER_S: Final = 800
"""Blocks times positions of a model that can be relied on to be built in a second."""


@dataclass(frozen=True)
class Task:
    """One model to solve: find a plan of a layout that costs at most `upper_ms`, the cheapest.

    `clock` runs from the task's making; what is left is for building the model and solving it.
    `lower_ms` is known to bound every plan. `hint` is a plan of the layout to start from, and
    then `upper_ms` its price. `relaxation` says what plans within `upper_ms` look like; the arcs it
    rules out are barred from the layout already.
    """

    reduced: ReducedGraph
    layout: Layout
    lower_ms: float
    upper_ms: float
    hint: Plan | None
    clock: Clock
    options: SolveOptions
    relaxation: Relaxation | None = None


@dataclass(frozen=True)
class Finding:
    """What a model says. `bound_ms` holds for every plan of the layout that costs at most the
    task's upper bound, so that min(bound, upper) holds for all; `complete` where nothing is left
    to find."""

    complete: bool
    plan: Plan | None = None
    claimed_ms: float | None = None
    bound_ms: float = 0.0
    tolerance: float = 0.0
    interrupted: bool = False
    variables: int = 0
    constraints: int = 0


class Engine(Protocol):
    """A solver that models layouts.

    What takes a task raises OutOfTimeError where the task's time is over before its model is built.
    """

    @property
    def name(self) -> str:
        """The backend's name."""

    def fits(self, reduced: ReducedGraph, layout: Layout) -> bool:
        """Whether a model of this size makes sense."""

    def improve(self, task: Task, progress: Progress | None) -> Finding:
        """Minimise the objective within the task's bounds."""

    def price(self, task: Task) -> Finding:
        """The model's own figure for the task's hint; complete without one where it refuses it."""

    def feasible(self, task: Task) -> Finding:
        """Any valid plan, whatever it costs."""

    def least_memory(self, task: Task, low: int, high: int | None) -> tuple[int | None, bool]:
        """Least device memory in bytes that any plan of the layout needs, None where there is no
        plan; and whether that is proven. None needs less than `low`, and of those that need more
        than `high` nothing is asked."""


def layouts_of(problem: Problem) -> list[Layout]:
    """Every layout of a problem, smallest first."""
    straight = problem.constraints.straight
    if problem.scope == "nested":
        return [Layout.nested(problem.cluster, straight=straight)]
    blocks = sorted(block_sizes(problem))
    return [Layout.joint(problem.cluster, block, straight=straight) for block in blocks]


def search_layouts(
    engine: Engine,
    problem: Problem,
    options: SolveOptions,
    progress: Progress | None,
    *,
    hint: Plan | None,
    lower_bound_ms: float,
    crossing: Crossing | None = None,
) -> Outcome:
    """Solve with an engine; Ctrl-C and the time limit end it with the best plan so far. `crossing`
    is what is known of the problem's cuts already.

    Raises ProblemError where cost model pipedream is asked of a graph whose states are no chain.
    """
    _require_chain(engine, problem)
    return _Search(engine, problem, options, progress, hint, lower_bound_ms, crossing).run()


def _require_chain(engine: Engine, problem: Problem) -> None:
    """On a chain of states the original's output of a state is a sum over layers; elsewhere not."""
    if problem.cost_model != "pipedream":
        return
    graph = problem.graph
    kept = sorted(PipedreamGraph(graph).kept)
    known = set(graph.edges)
    for u, v in pairwise(kept):
        if (u, v) not in known:
            raise ProblemError(
                f"cost model pipedream needs backend dp here: {engine.name} states it for chains "
                f"of cuts alone, and {graph.layers[u].id} and {graph.layers[v].id} can be cut "
                "in either order"
            )


class _Search:
    def __init__(
        self,
        engine: Engine,
        problem: Problem,
        options: SolveOptions,
        progress: Progress | None,
        hint: Plan | None,
        lower_bound_ms: float,
        crossing: Crossing | None,
    ) -> None:
        self.watch = Clock(options.time_limit_s)
        self.engine = engine
        self.problem = problem
        self.options = options
        self.progress = progress
        self.reduced = reduce_graph(problem)
        self.lower = max(floor_ms(problem), lower_bound_ms * (1 - _SAME))
        self.plan: Plan | None = None
        self.objective = math.inf
        self.claimed: float | None = None
        self.tolerance = _SAME
        self.limit: Limit | None = None
        self.variables = self.constraints = 0
        self.notes: list[str] = list(self.reduced.notes)
        self.given = hint
        self.crossed = crossing

    def run(self) -> Outcome:
        layouts = layouts_of(self.problem)
        bounds = dict.fromkeys(layouts, self.lower)
        open_layouts = [x for x in layouts if self.engine.fits(self.reduced, x)]
        if len(open_layouts) < len(layouts):
            sizes = ", ".join(str(x.size) for x in layouts if x not in open_layouts)
            self.notes.append(
                f"no model for pipelines over {sizes} ranks: too large for this backend"
            )
        try:
            self._start()
            if self.plan is None:
                infeasible = self._first_plan(layouts, open_layouts)
                if infeasible is not None:
                    return infeasible
            if self.plan is not None:
                self._improve(open_layouts, bounds)
                self._price()
        except KeyboardInterrupt:
            self.limit = Limit.INTERRUPT
        except OutOfTimeError:
            self.limit = Limit.TIME
        return self._outcome(bounds, sized=len(open_layouts) < len(layouts))

    def _start(self) -> None:
        """The given plan, if it is one, and the one along a line."""
        if self.given is not None and not violations(self.problem, self.given):
            self._take(self.given, None, 0.0)
            return
        linear_plan(
            self.problem, self.reduced, self.watch, lambda plan: self._take(plan, None, 0.0)
        )

    def _take(self, plan: Plan, claimed: float | None, tolerance: float) -> None:
        """Keep a plan if it is cheaper, or as cheap and preferred."""
        objective = evaluate(self.problem, plan).objective_ms
        same = self.plan is not None and math.isclose(objective, self.objective, rel_tol=_SAME)
        if self.plan is not None and same and claimed is not None and self.claimed is None:
            better = plan.key() <= self.plan.key()
        elif self.plan is not None and same:
            better = plan.key() < self.plan.key()
        else:
            better = objective < self.objective
        if better:
            self.plan, self.objective, self.claimed = plan, objective, claimed
            self.tolerance = max(self.tolerance, tolerance)
            if self.progress is not None:
                self.progress(ProgressEvent(self.objective, self.lower, plan=plan))

    def _task(self, layout: Layout, seconds: float | None, hint: Plan | None) -> Task:
        clock = Clock(seconds)
        return Task(self.reduced, layout, self.lower, self.objective, hint, clock, self.options)

    def _ask(self, what: Callable[[Task], Finding], task: Task) -> Finding:
        """What an engine says of a task, nothing where the time for its model was too short."""
        try:
            return what(task)
        except OutOfTimeError:
            return Finding(complete=False, bound_ms=task.lower_ms)

    def _count(self, finding: Finding) -> None:
        self.variables = max(self.variables, finding.variables)
        self.constraints = max(self.constraints, finding.constraints)
        if finding.interrupted:
            raise KeyboardInterrupt

    def _first_plan(self, layouts: list[Layout], open_layouts: list[Layout]) -> Outcome | None:
        """Look for any valid plan; the outcome if there is none."""
        late = False
        limit = self.problem.cluster.memory_bytes
        if limit is not None:
            floors = self._floors(self.problem, self.reduced)
            layouts, open_layouts = (
                [x for x in some if floors[x] <= limit] for some in (layouts, open_layouts)
            )
        for done, layout in enumerate(reversed(open_layouts)):
            self.watch.check()
            seconds = self.watch.share(len(open_layouts) - done + 1)
            finding = self._ask(self.engine.feasible, self._task(layout, seconds, None))
            self._count(finding)
            if finding.plan is not None:
                self._take(finding.plan, None, 0.0)
                return None
            late |= not finding.complete
        if late or len(open_layouts) < len(layouts):
            self.limit = Limit.TIME if late else Limit.SIZE
            return None
        text, smallest = explain(self.problem, self._feasible, self._least_memory, self.watch)
        return Outcome(
            Status.INFEASIBLE,
            self._stats(),
            explanation=text,
            smallest_memory_bytes=smallest,
        )

    def _feasible(self, problem: Problem) -> bool | None:
        """Whether a variant of the problem has any plan, None where that was not decided."""
        reduced = reduce_graph(problem)
        if linear_plan(problem, reduced, Clock(self.watch.share(4))) is not None:
            return True
        unknown = False
        for layout in layouts_of(problem):
            task = replace(self._task(layout, self.watch.share(4), None), reduced=reduced)
            finding = self._ask(self.engine.feasible, task)
            self._count(finding)
            if finding.plan is not None:
                return True
            unknown |= not finding.complete
        return None if unknown else False

    def _floors(self, problem: Problem, reduced: ReducedGraph) -> dict[Layout, float]:
        """Bytes of device memory that every plan of a layout needs at least."""
        return {
            layout: least_peak_bytes(problem, reduced, layout, self.watch.check)
            for layout in layouts_of(problem)
        }

    def _least_memory(self, problem: Problem) -> tuple[int | None, bool]:
        """Least device memory over all layouts, and whether it is proven."""
        reduced = reduce_graph(problem)
        floors = self._floors(problem, reduced)
        least = self._roomiest(problem, reduced, min(floors.values()))
        high = 2**61 if least is None else least
        pending = {
            layout: seen
            for layout in sorted(floors, key=lambda x: (floors[x], -x.size))
            if floors[layout] < high
            for seen in [plans_below(problem, reduced, layout, high, self.watch.check)]
            if seen.arcs
        }
        proven = True
        for done, (layout, seen) in enumerate(pending.items()):
            if least is not None and floors[layout] >= least:
                continue
            task = replace(
                self._task(layout, self.watch.share(len(pending) - done), None),
                reduced=reduced,
                layout=replace(layout, barred=frozenset(layout.arcs) - seen.arcs),
                relaxation=seen,
            )
            most = None if least is None else least - 1
            try:
                found, sure = self.engine.least_memory(task, math.ceil(floors[layout]), most)
            except OutOfTimeError:
                found, sure = None, False
            proven &= sure
            if found is not None:
                least = found if least is None else min(least, found)
        return least, proven

    def _roomiest(self, problem: Problem, reduced: ReducedGraph, floor: float) -> int | None:
        """The largest peak (bytes) of the plan of least memory that is soon found, if one is."""
        least: int | None = None
        for plan in roomiest_plans(problem, reduced, self.watch.check):
            if not violations(problem, plan):
                peak = max(x.peak_bytes for x in stage_memory(problem, plan))
                least = peak if least is None else min(least, peak)
            if (least is not None and least <= floor) or self.watch.used(0.5):
                break
        return least

    def _improve(self, open_layouts: list[Layout], bounds: dict[Layout, float]) -> None:
        """Solve the layout that promises most, until the bounds of all meet the best plan; what was
        left at its share of the time is taken up again once a better plan is known."""
        for layout in bounds:
            if layout not in open_layouts and not self.watch.used(0.5):
                self._relax(layout, bounds)
        pending = list(open_layouts)
        relaxed: dict[Layout, tuple[float, Relaxation | None]] = {}
        left_at: dict[Layout, float] = {}
        tried_s: dict[Layout, float] = {}
        while True:
            for layout in list(pending):
                if layout not in relaxed or relaxed[layout][0] > self.objective * (1 + 1e-4):
                    # Late, what the models have had no time for is worth more than a bound.
                    found = None if self.watch.used(0.5) else self._relax(layout, bounds)
                    relaxed[layout] = (self.objective, found)
                if self._met(bounds[layout]):
                    pending.remove(layout)
            ready = [
                x
                for x in pending
                if self.objective < left_at.get(x, math.inf) * 0.999 and self._time_for(x)
            ]
            left = self.watch.share(1)
            if not ready and left is not None:
                # What others did not need goes to whom it gives much more time than before.
                ready = [x for x in pending if left >= 1.5 * tried_s.get(x, math.inf)]
                ready = sorted(ready, key=lambda x: (bounds[x], -x.size))[:1]
            share = self.watch.share(len(ready))
            if not ready or (share is not None and share <= 0.05) or self.watch.used(0.95):
                self.limit = Limit.TIME if pending else None
                return
            layout = min(ready, key=lambda x: (bounds[x], -x.size))
            # A loose upper bound makes a loose model: look briefly, then build a tighter one.
            loose = self.objective > 1.3 * bounds[layout] and layout not in left_at
            seconds = min(share or math.inf, 10.0) if loose else share
            before, relaxation = relaxed[layout]
            tried_s[layout] = seconds or math.inf
            task = self._task(layout, seconds, self._own(layout))
            if relaxation is not None:
                barred = frozenset(layout.arcs) - relaxation.arcs
                task = replace(task, layout=replace(layout, barred=barred), relaxation=relaxation)
            if self._solve(task, layout, bounds):
                pending.remove(layout)
            elif seconds == share or self.objective >= before * 0.999:
                left_at[layout] = math.inf if loose and seconds != share else self.objective

    def _time_for(self, layout: Layout) -> bool:
        """Whether building the layout's model leaves time to solve it."""
        left = self.watch.share(1)
        return left is None or len(self.reduced) * layout.size <= left * _BUILT_PER_S

    @cached_property
    def sums(self) -> CellSums:
        """What the relaxation of nested plans knows of cuts."""
        return cell_sums(self.reduced, 260, self.watch.check)

    @property
    def crossing(self) -> Crossing:
        """What the relaxation of joint plans knows of cuts."""
        if self.crossed is None:
            cells = affordable_cells(self.reduced)
            self.crossed = Crossing(self.reduced, cells, self.watch.check)
        return self.crossed

    def _met(self, bound: float) -> bool:
        """Whether a bound is as high as the best plan, or as near as was asked for."""
        return self.objective <= bound * (1 + max(self.options.gap, _SAME))

    def _solve(self, task: Task, layout: Layout, bounds: dict[Layout, float]) -> bool:
        """Run one model and keep what it finds; whether its layout is done with."""
        before = self.objective
        report = self._report(bounds, layout)
        finding = self._ask(lambda asked: self.engine.improve(asked, report), task)
        self.tolerance = max(self.tolerance, finding.tolerance)
        if finding.plan is not None:
            self._take(finding.plan, self._claim(finding, finding.plan), finding.tolerance)
        elif finding.complete and task.hint is not None:
            raise BackendBugError(
                f"{self.engine.name} says that no plan of {layout.size} ranks a copy costs at most "
                f"{before} ms, but one is known"
            )
        bounds[layout] = max(bounds[layout], min(finding.bound_ms, before))
        self._count(finding)
        return finding.complete or self._met(bounds[layout])

    def _claim(self, finding: Finding, plan: Plan) -> float | None:
        """The engine's own figure for its plan, None where that is no more than a bound on it.

        Raises BackendBugError where the plan is none, or costs what the figure does not say: a
        model that promises too much must not go unseen because its plan is no better after all.
        """
        # A search that stops early may leave the period above what its plan needs.
        early = not finding.complete or self.options.gap > 0
        claimed, tolerance = finding.claimed_ms, finding.tolerance
        price = true_price_ms(
            self.problem, self.engine.name, plan, claimed, tolerance, at_most=early
        )
        return claimed if math.isclose(claimed or 0.0, price, rel_tol=tolerance) else None

    def _relax(self, layout: Layout, bounds: dict[Layout, float]) -> Relaxation | None:
        """Raise a layout's bound by the relaxation, and say what it rules out."""
        problem = self.problem
        further = (problem.micro_batches or 2) - 1 if problem.scope == "joint" else 1
        if problem.cost_model == "pipedream" or not further or len(self.reduced) > MOST_BLOCKS:
            return None
        if problem.scope == "nested":
            relaxation = relax_levelwise(
                problem, self.sums, layout, self.objective, self.watch.check
            )
            bound = relaxation.bound_ms
        elif problem.micro_batches is None:
            relaxation = self._relaxed(layout, self.objective)
            bound = relaxation.bound_ms
        else:
            total = problem.graph.total_compute_ms
            relaxation = self._relaxed(layout, (self.objective - total) / further)
            bound = total + further * relaxation.bound_ms
        bounds[layout] = max(bounds[layout], min(bound, self.objective))
        return relaxation

    def _relaxed(self, layout: Layout, upper_ms: float) -> Relaxation:
        return relax_joint(
            self.problem, self.reduced, self.crossing, layout, upper_ms, self.watch.check
        )

    def _own(self, layout: Layout) -> Plan | None:
        """The best plan, if it is one of this layout."""
        if self.plan is None or self.problem.scope == "nested":
            return self.plan
        return self.plan if self.plan.copies == layout.copies else None

    def _report(self, bounds: dict[Layout, float], layout: Layout) -> Progress | None:
        """Progress of one model in terms of the whole search."""
        progress = self.progress
        if progress is None:
            return None
        others = [bound for x, bound in bounds.items() if x != layout]

        def report(event: ProgressEvent) -> None:
            known = [x for x in (event.incumbent_ms, self.objective) if x is not None]
            bound = min([event.bound_ms or self.lower, *others])
            progress(ProgressEvent(min(known), max(bound, self.lower), event.text))

        return report

    def _price(self) -> None:
        """The model's own figure for the best plan, where it came from elsewhere."""
        if self.plan is None or self.claimed is not None:
            return
        if self.watch.over:
            self._leave_unpriced()
            return
        for layout in layouts_of(self.problem):
            if self._own(layout) is not None and self.engine.fits(self.reduced, layout):
                left = self.watch.share(1)
                seconds = _PRICE_S if left is None else min(_PRICE_S, left)
                finding = self._ask(self.engine.price, self._task(layout, seconds, self.plan))
                self._count(finding)
                if finding.claimed_ms is None and not finding.complete:
                    self._leave_unpriced()
                    return
                if finding.claimed_ms is None:
                    raise BackendBugError(
                        f"{self.engine.name} refuses a valid plan of {self.objective} ms"
                    )
                self.claimed = finding.claimed_ms
                self.tolerance = max(self.tolerance, finding.tolerance)

    def _leave_unpriced(self) -> None:
        """The plan stands by the price of `core.cost` alone."""
        self.claimed = self.objective
        self.notes.append(f"{self.engine.name} had no time to price the plan by its own model")

    def _stats(self) -> Stats:
        return Stats(
            self.engine.name,
            self.watch.seconds,
            variables=self.variables,
            constraints=self.constraints,
            notes=tuple(self.notes),
        )

    def _outcome(self, bounds: dict[Layout, float], *, sized: bool) -> Outcome:
        bound = max(self.lower, min(bounds.values()))
        if self.plan is None:
            return Outcome(
                Status.NO_SOLUTION,
                self._stats(),
                bound_ms=self.lower,
                limit=self.limit or Limit.TIME,
                explanation="no plan was found, and none was ruled out, within the limit",
            )
        claimed = self.objective if self.claimed is None else self.claimed
        proven = self.objective <= bound * (1 + self.tolerance) + 1e-12
        limit = self.limit
        if limit is None and not proven:
            limit = Limit.SIZE if sized else Limit.GAP
        return Outcome(
            Status.OPTIMAL if proven else Status.FEASIBLE,
            self._stats(),
            plan=self.plan,
            claimed_ms=claimed,
            bound_ms=bound,
            tolerance=self.tolerance,
            limit=None if proven else limit,
        )
