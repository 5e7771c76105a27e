"""Where the layer graph's nodes are drawn: left to right, wrapped into rows like text."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pipeplan.core.graph import LayerGraph
from pipeplan.core.plan import Plan

__all__ = ["NARROW", "STEP_X", "STEP_Y", "WIDE", "Band", "CutMark", "GraphLayout", "lay_out"]

STEP_X: Final = 150.0
STEP_Y: Final = 62.0
_ROW_GAP: Final = 74.0
WIDE: Final = 2.3
"""Width over height that suits a desk."""
NARROW: Final = 0.75
"""And a phone."""


@dataclass(frozen=True, slots=True)
class Band:
    """The ground of one stage in one row."""

    stage: int
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class CutMark:
    """Where one stage ends and the next begins."""

    after_stage: int
    x: float
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """Centres of nodes by layer index, bands of stages and marks of cuts, in pixels at zoom 1."""

    nodes: tuple[tuple[float, float], ...]
    bands: tuple[Band, ...]
    cuts: tuple[CutMark, ...]
    width: float
    height: float


def lay_out(graph: LayerGraph, plan: Plan, aspect: float = WIDE) -> GraphLayout:
    """Place every layer: a column is one step of depth, and stages follow each other.

    Linear in layers and edges but for sorting. Columns are wrapped so that the whole is about
    `aspect` times as wide as high; inside a column nodes stand near the layers that they read.
    """
    columns, starts = _columns(graph, plan)
    lanes = _lanes(graph, columns)
    breadth = [len(column) for column in columns]
    wrap = _best_wrap(breadth, aspect)
    tops: list[float] = []
    top = 0.0
    heights: list[float] = []
    for first in range(0, len(columns), wrap):
        height = max(breadth[first : first + wrap]) * STEP_Y
        tops.append(top)
        heights.append(height)
        top += height + _ROW_GAP
    nodes = [(0.0, 0.0)] * len(graph)
    for c, column in enumerate(columns):
        row, place = divmod(c, wrap)
        for v in column:
            nodes[v] = ((place + 0.5) * STEP_X, tops[row] + heights[row] / 2 + lanes[v] * STEP_Y)
    ends = [*starts[1:], len(columns)]
    bands = tuple(
        Band(s, (a % wrap) * STEP_X, tops[a // wrap], (b - a) * STEP_X, heights[a // wrap])
        for s, (start, end) in enumerate(zip(starts, ends, strict=True))
        for a, b in _pieces(start, end, wrap)
    )
    cuts = tuple(
        CutMark(s, (at % wrap) * STEP_X, tops[at // wrap], heights[at // wrap])
        for s, at in enumerate(starts[1:])
    )
    return GraphLayout(tuple(nodes), bands, cuts, min(wrap, len(columns)) * STEP_X, top - _ROW_GAP)


def _columns(graph: LayerGraph, plan: Plan) -> tuple[list[list[int]], list[int]]:
    """Layers by column, and the first column of each stage: depth restarts behind each cut."""
    depth = [0] * len(graph)
    columns: list[list[int]] = []
    starts: list[int] = []
    for stage in plan.stages:
        start = len(columns)
        starts.append(start)
        for v in stage.layers:
            depth[v] = max([start, *(depth[u] + 1 for u in graph.producers[v])])
            while len(columns) <= depth[v]:
                columns.append([])
            columns[depth[v]].append(v)
    return columns, starts


def _lanes(graph: LayerGraph, columns: list[list[int]]) -> list[float]:
    lanes = [0.0] * len(graph)
    for column in columns:
        wish = {
            v: math.fsum(lanes[u] for u in graph.producers[v]) / max(1, len(graph.producers[v]))
            for v in column
        }
        for i, v in enumerate(sorted(column, key=lambda v: (wish[v], v))):
            lanes[v] = i - (len(column) - 1) / 2
    return lanes


def _best_wrap(breadth: list[int], aspect: float) -> int:
    """Columns a row, by trying the widths that come near the wanted aspect."""
    area = sum(breadth) * STEP_X * (STEP_Y + _ROW_GAP)
    guess = max(1, round(math.sqrt(area * aspect) / STEP_X))
    tried = sorted({min(len(breadth), max(1, round(guess * f / 8))) for f in range(3, 25)})

    def off(wrap: int) -> float:
        rows = range(0, len(breadth), wrap)
        height = sum(max(breadth[i : i + wrap]) * STEP_Y + _ROW_GAP for i in rows)
        return abs(math.log(wrap * STEP_X / height / aspect))

    return min(tried, key=lambda wrap: (off(wrap), wrap))


def _pieces(start: int, end: int, wrap: int) -> list[tuple[int, int]]:
    """The columns start..end cut where rows end."""
    edges = [start, *range((start // wrap + 1) * wrap, end, wrap), end]
    return [(a, b) for a, b in pairwise(edges) if a < b]
