"""A sweep drawn: objective and bound against the value, with a band for each plan's stretch."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final
from xml.sax.saxutils import escape

from pipeplan.core.units import format_ms
from pipeplan.validation.palette import stage_colour, text_colour
from pipeplan.validation.sensitivity import Sweep, plan_words, show_value
from pipeplan.validation.svg import element, number, svg_document, text

__all__ = ["sweep_svg"]

_WIDTH: Final = 1000.0
_HEIGHT: Final = 330.0
_LEFT: Final = 90.0
_RIGHT: Final = 20.0
_TOP: Final = 64.0
_BOTTOM: Final = 46.0


def sweep_svg(sweeps: Sequence[Sweep], *, name: str, now: Sequence[float | None]) -> str:
    """The SVG text, one chart below the other; `now` is the question's own value of each axis."""
    parts: list[str] = []
    for i, (found, here) in enumerate(zip(sweeps, now, strict=True)):
        drawing = "".join(_chart(found, name, here))
        parts.append(element("g", drawing, transform=f"translate(0 {number(i * _HEIGHT)})"))
    title = f"Best plans of {name}"
    return svg_document(_WIDTH, _HEIGHT * len(sweeps), parts, title=title)


def _chart(found: Sweep, name: str, here: float | None) -> list[str]:
    axis = found.axis
    solved = [x for x in found.points if x.objective_ms is not None]
    low, high = math.log(axis.low), math.log(axis.high)
    times = [y for x in solved for y in (x.objective_ms, x.bound_ms) if y]
    least, most = (math.log(min(times)), math.log(max(times))) if times else (0.0, 1.0)
    margin = 0.06 * (most - least) or 0.05
    least, most = least - margin, most + margin

    def across(value: float) -> float:
        share = (math.log(value) - low) / (high - low) if high > low else 0.5
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def down(time_ms: float) -> float:
        share = (math.log(max(time_ms, 1e-12)) - least) / (most - least)
        return _TOP + (1 - share) * (_HEIGHT - _TOP - _BOTTOM)

    floor = _HEIGHT - _BOTTOM
    parts = [
        text(f"{name}: objective against {axis.name}", x=16, y=22, font_size=14, font_weight="600")
    ]
    edges = _edges(found)
    for stretch, start, end in zip(found.stretches, edges, edges[1:], strict=False):
        x, width = across(start), across(end) - across(start)
        colour = "#d0d4da" if stretch.plan is None else stage_colour(stretch.plan)
        label = "none" if stretch.plan is None else str(stretch.plan)
        title = "" if stretch.plan is None else plan_words(found.plans[stretch.plan])
        tip = element("title", escape(title))
        parts.append(element("rect", tip, x=x, y=_TOP - 24, width=width, height=18, fill=colour))
        parts.append(
            element(
                "rect", x=x, y=_TOP, width=width, height=floor - _TOP, fill=colour,
                fill_opacity=0.12,
            )
        )  # fmt: skip
        if width > 14 * len(label):
            ink = "#1b1f24" if stretch.plan is None else text_colour(stretch.plan)
            parts.append(text(label, x=x + width / 2, y=_TOP - 11, text_anchor="middle", fill=ink))
    for i in range(5):
        time_ms = math.exp(least + (most - least) * i / 4)
        y = down(time_ms)
        parts.append(element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, stroke="#d8dee4"))
        parts.append(text(format_ms(time_ms), x=_LEFT - 8, y=y + 4, text_anchor="end"))
    ticks = _ticks(found)
    for i, value in enumerate(ticks):
        anchor = "start" if i == 0 else "end" if i == len(ticks) - 1 else "middle"
        parts.append(
            text(show_value(axis.name, value), x=across(value), y=floor + 20, text_anchor=anchor)
        )
    if here is not None and axis.low <= here <= axis.high:
        x = across(here)
        parts.append(
            element("line", x1=x, x2=x, y1=_TOP, y2=floor, stroke="#1b1f24", stroke_dasharray="3 3")
        )
        parts.append(text("now", x=x + 5, y=_TOP + 12))
    bound = [(across(x.value), down(x.bound_ms)) for x in solved if x.bound_ms]
    line = [(across(x.value), down(x.objective_ms)) for x in solved if x.objective_ms]
    parts.append(_path(bound, stroke="#57606a", stroke_dasharray="5 4"))
    parts.append(_path(line, stroke="#0b5cad", stroke_width=2.5))
    parts += [element("circle", cx=x, cy=y, r=3, fill="#0b5cad") for x, y in line]
    parts.append(text("solid: best plan, dashed: bound, bands: plans", x=_LEFT, y=floor + 38))
    return parts


def _ticks(found: Sweep) -> list[float]:
    """Five values to write below: of devices, numbers that there are."""
    axis = found.axis
    if axis.name == "devices":
        values = [x.value for x in found.points]
        return values if len(values) < 6 else values[:: len(values) // 5]
    ratio = axis.high / axis.low
    return [axis.low * ratio ** (i / 4) for i in range(5)] if ratio > 1 else [axis.low]


def _edges(found: Sweep) -> list[float]:
    """Where the bands meet: in the middle of the last two values that were told apart."""
    stretches = found.stretches
    inner = [math.sqrt(a.high * b.low) for a, b in pairwise(stretches)]
    return [found.axis.low, *inner, found.axis.high]


def _path(points: Sequence[tuple[float, float]], **style: str | float) -> str:
    shown = " ".join(f"{number(x)},{number(y)}" for x, y in points)
    return element("polyline", points=shown, fill="none", **style)
