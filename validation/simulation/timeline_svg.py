"""A run drawn as a timeline: one row a rank, passes in the colour of their stage."""

from typing import Final

from pipeplan.core.units import format_ms
from pipeplan.validation.palette import stage_colour, text_colour
from pipeplan.validation.simulation.engine import BACKWARD, FORWARD
from pipeplan.validation.simulation.result import Simulation
from pipeplan.validation.svg import element, number, svg_document, text

__all__ = ["MAX_ROWS", "shown_ranks", "shown_window", "timeline_svg"]

MAX_ROWS: Final = 64
"""Rows that are drawn: of more ranks, the first of each stage."""
_MAX_BARS: Final = 20_000
_ROW: Final = 22.0
_LEFT: Final = 130.0
_WIDTH: Final = 1200.0
_TOP: Final = 54.0


def shown_ranks(result: Simulation, most: int = MAX_ROWS) -> list[int]:
    """The ranks that a drawing has room for, ascending: all, or as many of each stage as fit."""
    stages = result.pipeline.plan.stages
    if result.pipeline.plan.devices <= most:
        return sorted(result.pipeline.plan.stage_of_rank)
    each = max(1, most // len(stages))
    return sorted(rank for stage in stages[:most] for rank in stage.ranks[:each])


def shown_window(result: Simulation) -> tuple[float, float]:
    """The part of the time worth drawing: a whole batch, or filling up and a few rounds after."""
    if result.batch_ms is not None:
        return 0.0, result.run.end_ms
    plan = result.pipeline.plan
    period = result.period_ms or result.predicted_ms
    fill = sum(result.pipeline.forward_ms) + sum(result.pipeline.backward_ms)
    rounds = 3 * max(stage.replicas for stage in plan.stages) * period
    return 0.0, min(result.run.end_ms, fill + rounds)


def timeline_svg(result: Simulation) -> str:
    """The SVG text: forward passes plain, backward passes darker, all-reduces hatched."""
    ranks = shown_ranks(result)
    first, last = shown_window(result)
    rows = {rank: _TOP + i * _ROW for i, rank in enumerate(ranks)}
    stage_of = result.pipeline.plan.stage_of_rank
    scale = (_WIDTH - _LEFT - 20) / (last - first) if last > first else 0.0
    height = _TOP + len(ranks) * _ROW + 40
    parts = [_HATCH, *_heading(result), *_axis(first, last, scale, height)]
    for rank in ranks:
        label = f"rank {rank} · stage {stage_of[rank]}"
        parts.append(text(label, x=_LEFT - 8, y=rows[rank] + 15, text_anchor="end"))
    log = result.run.operations
    bars = 0
    for rank, kind, m, start, end in zip(
        log.rank, log.kind, log.micro_batch, log.start_ms, log.end_ms, strict=True
    ):
        if rank not in rows or start >= last or bars >= _MAX_BARS:
            continue
        bars += 1
        x, width = _LEFT + (start - first) * scale, (min(end, last) - start) * scale
        parts += _bar(x, rows[rank], width, kind, m, stage_of[rank], start, end)
    hidden = len(stage_of) - len(ranks)
    if hidden:
        parts.append(
            text(f"{hidden} more ranks, like those of the same stage", x=_LEFT, y=height - 8)
        )
    return svg_document(_WIDTH, height, parts, title="Timeline of the simulated plan")


_HATCH: Final = (
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="6" height="6" fill="#d0d4da"/>'
    '<line x1="0" y1="0" x2="0" y2="6" stroke="#57606a" stroke-width="2"/></pattern></defs>'
)


def _heading(result: Simulation) -> list[str]:
    problem = result.pipeline.problem
    period = "not reached" if result.period_ms is None else format_ms(result.period_ms)
    line = (
        f"{problem.graph.name or 'plan'} · schedule {problem.schedule} · steady period {period} "
        f"(predicted {format_ms(result.predicted_ms)})"
    )
    if result.batch_ms is not None and result.predicted_batch_ms is not None:
        predicted = format_ms(result.predicted_batch_ms)
        line += f" · batch {format_ms(result.batch_ms)} (predicted {predicted})"
    legend = "plain: forward · darker: backward · hatched: all-reduce · empty: waiting"
    return [
        text(line, x=16, y=20, font_size=14, font_weight="600"),
        text(legend, x=16, y=38, fill="#57606a"),
    ]


def _axis(first: float, last: float, scale: float, height: float) -> list[str]:
    parts: list[str] = []
    for i in range(7):
        time_ms = first + (last - first) * i / 6
        x = _LEFT + (time_ms - first) * scale
        parts.append(element("line", x1=x, y1=_TOP - 4, x2=x, y2=height - 34, stroke="#d8dee4"))
        parts.append(
            text(f"{time_ms:.4g} ms", x=x, y=height - 20, text_anchor="middle", fill="#57606a")
        )
    return parts


def _bar(
    x: float, y: float, width: float, kind: int, m: int, stage: int, start: float, end: float
) -> list[str]:
    what = {FORWARD: f"forward {m}", BACKWARD: f"backward {m}"}.get(kind, f"all-reduce {m}")
    title = f"<title>{what}: {start:.6g} to {end:.6g} ms</title>"
    fill = stage_colour(stage) if kind in (FORWARD, BACKWARD) else "url(#hatch)"
    shade = (
        f'<rect x="{number(x)}" y="{number(y + 2)}" width="{number(width)}" height="18" '
        'fill="#000000" fill-opacity="0.18" pointer-events="none"/>'
        if kind == BACKWARD
        else ""
    )
    bar = element("rect", title, x=x, y=y + 2, width=width, height=18, fill=fill)
    if width < 16 or kind not in (FORWARD, BACKWARD):
        return [bar + shade]
    label = text(
        str(m), x=x + width / 2, y=y + 15, text_anchor="middle", fill=text_colour(stage),
        font_size=10, pointer_events="none",
    )  # fmt: skip
    return [bar + shade + label]
