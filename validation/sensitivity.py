"""Which plan is best where: a question solved again for many values of one of its figures."""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from pipeplan.core.check import violations
from pipeplan.core.cluster import MAX_DEVICES
from pipeplan.core.cost import evaluate
from pipeplan.core.errors import PipeplanError
from pipeplan.core.plan import Plan
from pipeplan.core.problem import Problem
from pipeplan.core.units import format_bytes, format_rate, parse_bytes, parse_rate, plural
from pipeplan.solver.result import SolveResult, Status

__all__ = [
    "MAX_POINTS",
    "Axis",
    "Change",
    "Point",
    "Stretch",
    "Sweep",
    "axis_value",
    "current_value",
    "parse_axis",
    "plan_words",
    "show_value",
    "sweep",
    "tolerance",
    "with_value",
]

MAX_POINTS: Final = 200
_SAME: Final = 1e-9
_NAME: Final = re.compile(r"bandwidth([1-8])?|memory|devices")
_TEXT: Final = re.compile(
    r"(?P<name>[a-z0-9]+)=(?P<low>.+?)\.\.(?P<high>.+?)(?::(?P<points>[0-9]+))?"
)
_UNIT: Final = re.compile(r"[A-Za-z/]+$")

Solver = Callable[[Problem], SolveResult]


@dataclass(frozen=True, slots=True)
class Axis:
    """A figure of the question and the range to look at.

    `name` is `bandwidth` (the outermost level's ports), `bandwidth1`, `bandwidth2`, ... (of one
    level), `memory` (of a device, bytes) or `devices` (children of the outermost level).
    """

    name: str
    low: float
    high: float
    points: int

    @property
    def whole(self) -> bool:
        """Whether only whole numbers have a meaning."""
        return self.name in ("devices", "memory")

    def values(self) -> tuple[float, ...]:
        """Evenly spaced in ratio; whole numbers where nothing else has a meaning."""
        if self.points == 1 or self.low == self.high:
            return (self.low,)
        step = math.log(self.high / self.low) / (self.points - 1)
        inner = [self.low * math.exp(step * i) for i in range(1, self.points - 1)]
        found = [self.low, *inner, self.high]
        return tuple(sorted({float(round(x)) for x in found} if self.whole else set(found)))


@dataclass(frozen=True, slots=True)
class Point:
    """The answer at one value; `plan` is a number in `Sweep.plans`, None where there is none."""

    value: float
    status: Status
    plan: int | None
    objective_ms: float | None
    bound_ms: float | None


@dataclass(frozen=True, slots=True)
class Change:
    """Between `low` and `high` the best plan changes."""

    low: float
    high: float
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class Stretch:
    """A plan is best at every value that was tried from `low` to `high`.

    `open_low` and `open_high` say that the range ended there, not the plan's advantage.
    """

    plan: int | None
    low: float
    high: float
    open_low: bool
    open_high: bool


@dataclass(frozen=True, slots=True)
class Sweep:
    """Points in ascending order of value, the plans they name, and where the best plan changes."""

    axis: Axis
    points: tuple[Point, ...]
    plans: tuple[Plan, ...]
    changes: tuple[Change, ...]

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """Neighbouring points with the same plan, as one; every plan's tolerance."""
        out: list[Stretch] = []
        last = len(self.points) - 1
        for i, point in enumerate(self.points):
            if out and out[-1].plan == point.plan:
                out[-1] = replace(out[-1], high=point.value, open_high=i == last)
            else:
                out.append(Stretch(point.plan, point.value, point.value, i == 0, i == last))
        return tuple(out)

    def around(self, value: float) -> Stretch | None:
        """The stretch that holds a value."""
        return next((x for x in self.stretches if x.low <= value <= x.high), None)


def parse_axis(text: str) -> Axis:
    """An axis as people write it: `bandwidth=1..100GB/s:20`, `memory=8GB..80GB`, `devices=1..8`.

    A unit at the end counts for both ends. 13 points where no number is given; of devices every
    one. Raises PipeplanError naming what is wrong.
    """
    match = _TEXT.fullmatch(text.strip())
    if match is None or _NAME.fullmatch(match["name"]) is None:
        raise PipeplanError(
            f"not a sweep: {text[:80]!r} (write bandwidth=1..100GB/s:20, bandwidth1=..., "
            "memory=8GB..80GB or devices=1..8)"
        )
    name, low_text, high_text = match["name"], match["low"].strip(), match["high"].strip()
    unit = _UNIT.search(high_text)
    if unit is not None and _UNIT.search(low_text) is None:
        low_text += unit[0]
    low, high = axis_value(name, low_text), axis_value(name, high_text)
    if not 0 < low <= high:
        raise PipeplanError(f"sweep {text[:80]!r}: the range must ascend from above 0")
    if match["points"] is not None:
        points = int(match["points"][:9])
    else:
        points = min(MAX_POINTS, int(high - low) + 1) if name == "devices" else 13
    if not 1 <= points <= MAX_POINTS or (points == 1 and low < high):
        raise PipeplanError(f"sweep {text[:80]!r}: {points} points; 2 to {MAX_POINTS} make sense")
    return Axis(name, low, high, points)


def axis_value(name: str, text: str) -> float:
    """One value of an axis, with its unit; raises PipeplanError where it is none."""
    if name.startswith("bandwidth"):
        return parse_rate(text)
    if name == "memory":
        return float(parse_bytes(text))
    if not text.isdecimal() or not 1 <= int(text[:9]) <= MAX_DEVICES:
        raise PipeplanError(f"devices: {text[:40]!r} is not a whole number from 1 to {MAX_DEVICES}")
    return float(int(text))


def show_value(name: str, value: float) -> str:
    """A value for people, with its unit."""
    if name.startswith("bandwidth"):
        return format_rate(value)
    return format_bytes(value) if name == "memory" else f"{value:.0f}"


def with_value(problem: Problem, name: str, value: float) -> Problem:
    """The same question with one figure changed; raises PipeplanError for a level it lacks."""
    cluster = problem.cluster
    if name == "memory":
        return replace(problem, cluster=replace(cluster, memory_bytes=round(value)))
    count = len(cluster.levels)
    number = count if name in ("bandwidth", "devices") else int(name.removeprefix("bandwidth"))
    if number > count:
        raise PipeplanError(f"{name}: the cluster has {plural(count, 'level')}")
    level = cluster.levels[number - 1]
    changed = (
        replace(level, children=round(value))
        if name == "devices"
        else replace(level, bandwidth_bytes_per_s=value)
    )
    levels = (*cluster.levels[: number - 1], changed, *cluster.levels[number:])
    return replace(problem, cluster=replace(cluster, levels=levels))


def current_value(problem: Problem, name: str) -> float | None:
    """The value that the question has now; None for a memory limit that there is not."""
    cluster = problem.cluster
    if name == "memory":
        return None if cluster.memory_bytes is None else float(cluster.memory_bytes)
    if name == "devices":
        return float(cluster.levels[-1].children)
    number = len(cluster.levels) if name == "bandwidth" else int(name.removeprefix("bandwidth"))
    return cluster.levels[number - 1].bandwidth_bytes_per_s


def sweep(problem: Problem, axis: Axis, solve: Solver, *, precision: float = 0.01) -> Sweep:
    """Solve at every value of an axis, and halve between neighbours whose plans differ.

    Raises PipeplanError for a level that the cluster lacks, and what `solve` raises.
    A plan stays the best as long as it costs no more than what the solver finds (rel. 1e-9), so
    that ties do not show as changes. Changes are known to the relative `precision` (of devices and
    bytes to one); what lies between two values with the same plan is not looked at. The question's
    own value is one of the points where the range holds it.
    """
    search = _Search(problem, axis, solve)
    now = current_value(problem, axis.name)
    here = {now} if now is not None and axis.low <= now <= axis.high else set()
    values = sorted({*axis.values(), *here})
    for value in values:
        search.at(value)
    changes: list[Change] = []
    pending = list(pairwise(values))[::-1]
    while pending:
        low, high = pending.pop()
        before, after = search.at(low), search.at(high)
        if search.same(before, after):
            continue
        middle = float(round(math.sqrt(low * high))) if axis.whole else math.sqrt(low * high)
        if high / low <= 1 + precision or not low < middle < high:
            changes.append(Change(low, high, before.plan, after.plan))
        else:
            pending += [(middle, high), (low, middle)]
    return search.result(tuple(changes))


def tolerance(
    problem: Problem, name: str, solve: Solver, *, reach: float = 64.0, precision: float = 0.01
) -> Stretch | None:
    """How far one figure may go, both ways, until another plan is better; None without that figure.

    Looks as far as `reach` times in either direction.
    """
    now = current_value(problem, name)
    if now is None:
        return None
    low, high = max(now / reach, 1.0), now * reach
    if name == "devices":
        high = min(high, float(MAX_DEVICES // problem.cluster.group_sizes[-2]))
    steps = [now * 4.0**i for i in range(-3, 4)]
    inside = sorted({now, low, high, *(x for x in steps if low < x < high)})
    search = _Search(problem, Axis(name, low, high, len(inside)), solve)
    here = search.at(now)
    at = inside.index(now)
    ends: list[tuple[float, bool]] = []
    for side in (inside[at::-1], inside[at:]):
        known, limit = now, None
        for value in side[1:]:
            if not search.same(here, search.at(value)):
                limit = value
                break
            known = value
        while limit is not None and max(known, limit) / min(known, limit) > 1 + precision:
            middle = math.sqrt(known * limit)
            if search.axis.whole:
                middle = float(round(middle))
                if middle in (known, limit):
                    break
            if search.same(here, search.at(middle)):
                known = middle
            else:
                limit = middle
        ends.append((known, limit is None))
    (left, left_open), (right, right_open) = ends
    return Stretch(here.plan, left, right, left_open, right_open)


class _Search:
    """Answers by value, and the plans met so far: a known plan is preferred where it is as good."""

    def __init__(self, problem: Problem, axis: Axis, solve: Solver) -> None:
        self.problem = problem
        self.axis = axis
        self.solve = solve
        self.plans: list[Plan] = []
        self.results: dict[float, tuple[Problem, SolveResult]] = {}

    def at(self, value: float) -> Point:
        if value not in self.results:
            changed = with_value(self.problem, self.axis.name, value)
            found = self.solve(changed)
            self.results[value] = changed, found
            if found.plan is not None and not any(self.serves(p, value) for p in self.plans):
                self.plans.append(found.plan)
        changed, found = self.results[value]
        which = next((i for i, p in enumerate(self.plans) if self.serves(p, value)), None)
        return Point(value, found.status, which, found.objective_ms, found.bound_ms)

    def serves(self, plan: Plan, value: float) -> bool:
        """Whether a plan is as good as what was found at a value."""
        changed, found = self.results[value]
        if found.objective_ms is None or violations(changed, plan):
            return False
        return evaluate(changed, plan).objective_ms <= found.objective_ms * (1 + _SAME)

    def same(self, a: Point, b: Point) -> bool:
        """Whether one plan is the best at both."""
        if a.plan is None or b.plan is None:
            return a.plan is b.plan
        return any(self.serves(p, a.value) and self.serves(p, b.value) for p in self.plans)

    def result(self, changes: tuple[Change, ...]) -> Sweep:
        """Plans numbered in the order in which they come to be best, ties kept with the former."""
        points: list[Point] = []
        order: list[Plan] = []
        current: Plan | None = None
        for value in sorted(self.results):
            point = self.at(value)
            if point.plan is None:
                current = None
            elif current is None or not self.serves(current, value):
                # Of plans as good as each other, the one that stays so for longest.
                later = [v for v in sorted(self.results) if v >= value]
                current = max(
                    (p for p in self.plans if self.serves(p, value)),
                    key=lambda p: _run(self.serves(p, v) for v in later),
                )
            if current is not None and current not in order:
                order.append(current)
            number = None if current is None else order.index(current)
            points.append(replace(point, plan=number))
        by_low = {point.value: point.plan for point in points}
        shown = tuple(
            replace(x, before=by_low[x.low], after=by_low[x.high])
            for x in sorted(changes, key=lambda x: x.low)
        )
        return Sweep(self.axis, tuple(points), tuple(order), shown)


def _run(flags: Iterable[bool]) -> int:
    """How many are true before the first that is not."""
    count = 0
    for flag in flags:
        if not flag:
            break
        count += 1
    return count


def plan_words(plan: Plan) -> str:
    """A plan in a few characters: layers and replicas of its stages, as `evaluate` takes them."""
    pieces = []
    for stage in plan.stages:
        first, last = stage.layers[0], stage.layers[-1]
        whole = last - first + 1 == len(stage.layers)
        layers = f"{first}-{last}" if whole else plural(len(stage.layers), "layer")
        pieces.append(f"{layers}:{stage.replicas}")
    shown = pieces if len(pieces) <= 12 else [*pieces[:8], "...", *pieces[-3:]]
    return " ".join(shown)
