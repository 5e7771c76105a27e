"""How people name layers: by id, or by index in the topological order that `show` prints."""

import re
from collections.abc import Iterable

from pipeplan.core.errors import ProblemError
from pipeplan.core.graph import LayerGraph

__all__ = ["layer_index", "layer_list", "layer_ranges"]


def layer_index(graph: LayerGraph, text: str) -> int:
    """Index of one layer; an id goes before an index. Raises ProblemError for neither."""
    found = _lookup(graph, text.strip())
    if found is None:
        last = len(graph) - 1
        raise ProblemError(
            f"{text.strip()[:80]!r} is no layer of the profile: give an id such as "
            f"{graph.layers[0].id}, or an index from 0 ({graph.layers[0].id}) to {last} "
            f"({graph.layers[last].id})"
        )
    return found


def _lookup(graph: LayerGraph, text: str) -> int | None:
    if text in graph.index:
        return graph.index[text]
    if re.fullmatch(r"[0-9]{1,9}", text) and int(text) < len(graph):
        return int(text)
    return None


def layer_list(graph: LayerGraph, text: str) -> tuple[int, ...]:
    """Indices of layers given as `a,b,c`, in that order; raises ProblemError."""
    return tuple(layer_index(graph, part) for part in text.split(","))


def layer_ranges(graph: LayerGraph, text: str) -> tuple[int, ...]:
    """Indices of layers given as `0-24`, `conv1-fc6` or `0-5,7,9-12`, in the order given.

    A range goes by topological index, both ends included. Raises ProblemError for names that are
    none, for ranges that run backwards, and for text that can be split into ids in two ways.
    """
    out: list[int] = []
    for part in text.split(","):
        whole = _lookup(graph, part.strip())
        if whole is not None:
            out.append(whole)
            continue
        ends = list(_ends(graph, part))
        if not ends:
            first, dash, last = part.partition("-")
            layer_index(graph, first)
            layer_index(graph, last if dash else first)
            raise ProblemError(f"{part[:80]!r} is neither a layer nor a range of layers")
        if len(ends) > 1:
            raise ProblemError(f"{part[:80]!r} can be read as several ranges; use indices")
        first_index, last_index = ends[0]
        if first_index > last_index:
            raise ProblemError(f"layers {part[:80]!r} run backwards")
        out += range(first_index, last_index + 1)
    return tuple(out)


def _ends(graph: LayerGraph, part: str) -> Iterable[tuple[int, int]]:
    """Every way to read `part` as two layers and a dash between; ids may hold dashes too."""
    for match in re.finditer("-", part):
        first = _lookup(graph, part[: match.start()].strip())
        last = _lookup(graph, part[match.end() :].strip())
        if first is not None and last is not None:
            yield first, last
