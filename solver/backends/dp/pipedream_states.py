"""The original's states: down-closed sets grown from its first source, with their sums."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeplan.core.errors import ProblemError, TooLargeError
from pipeplan.core.graph import LayerGraph
from pipeplan.core.nested_cost import PipedreamGraph

__all__ = ["PipedreamStates", "pipedream_states"]

Matrix = npt.NDArray[np.float64]
_MAX_STATES: Final = 2000


@dataclass(frozen=True)
class PipedreamStates:
    """States, the empty one in front, subsets first; matrices infinite where two do not nest."""

    sets: tuple[frozenset[int], ...]
    compute: Matrix
    """Compute ms between two states."""
    weights: Matrix
    """Parameter bytes between two states."""
    stashed: Matrix
    """Outputs plus parameters, for the original's memory rule."""
    output: npt.NDArray[np.float64]
    """O of each state."""


@lru_cache(maxsize=8)
def pipedream_states(graph: LayerGraph) -> PipedreamStates:
    """All states of the original for a graph; kept, since one graph is asked about many times.

    Raises ProblemError where its last state lacks layers, TooLargeError past the stated limit.
    """
    view = PipedreamGraph(graph)
    whole = view.whole()
    if whole != view.kept:
        lost = graph.layers[min(view.kept - whole)].id
        raise ProblemError(
            f"cost model pipedream starts at the first source and never reaches layer {lost}; the "
            "original drops such layers without a word. Use --cost-model levelwise"
        )
    closed = sorted(
        _explored(view),
        key=lambda s: (graph.compute_ms(s), len(s), sorted(s)),
    )
    inside = np.zeros((len(closed), len(graph)), dtype=np.float32)
    for i, state in enumerate(closed):
        inside[i, sorted(state)] = 1
    # Layers of i that j lacks, for all pairs at once; counts are small enough to be exact.
    lacking = inside @ (1 - inside).T
    size = inside.sum(axis=1)
    nested = (lacking == 0) & (size[:, None] < size[None, :])

    def between(values: Iterable[float]) -> Matrix:
        column = np.array(list(values), dtype=np.float64)
        return np.where(nested, column[None, :] - column[:, None], np.inf)

    weights = [graph.parameter_bytes(s) for s in closed]
    outputs = [sum(graph.layers[v].output_bytes for v in s) for s in closed]
    return PipedreamStates(
        tuple(closed),
        between(graph.compute_ms(s) for s in closed),
        between(weights),
        between(w + a for w, a in zip(weights, outputs, strict=True)),
        np.array([float(view.output_bytes(s)) for s in closed]),
    )


def _explored(view: PipedreamGraph) -> list[frozenset[int]]:
    """Every state the original reaches: from the first source, a state grows by a layer that reads
    something in it, with all that is before that layer (other sources ride along)."""
    graph = view.graph
    with_ancestors = [0] * len(graph)
    for v, producers in enumerate(graph.producers):
        with_ancestors[v] = 1 << v
        for u in producers:
            with_ancestors[v] |= with_ancestors[u]
    readers = [[w for w in consumers if w in view.kept] for consumers in graph.consumers]
    start = with_ancestors[view.first]
    found: dict[int, None] = {start: None}
    queue = [start]
    while queue:
        state = queue.pop()
        for v in range(len(graph)):
            if not state >> v & 1:
                continue
            for w in readers[v]:
                bigger = state | with_ancestors[w]
                if bigger not in found:
                    found[bigger] = None
                    queue.append(bigger)
        if len(found) > _MAX_STATES:
            raise TooLargeError(
                "cost model pipedream fills tables over pairs of states, and the graph has more "
                f"than {_MAX_STATES} (counted {len(found)} before stopping); use --cost-model "
                "levelwise --backend cpsat, or --scope joint"
            )
    layers = range(len(graph))
    return [frozenset(), *(frozenset(v for v in layers if mask >> v & 1) for mask in found)]
