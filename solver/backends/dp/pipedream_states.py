"""The original's states: closures of antichains behind its first source, with their sums."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeplan.core.errors import ProblemError, TooLargeError
from pipeplan.core.nested_cost import PipedreamGraph

__all__ = ["PipedreamStates", "pipedream_states"]

Matrix = npt.NDArray[np.float64]
_MAX_STATES: Final = 2000


@dataclass(frozen=True)
class PipedreamStates:
    """States with the empty one in front, subsets first; matrices are infinite where two do not nest."""

    sets: tuple[frozenset[int], ...]
    compute: Matrix
    """Compute ms between two states."""
    weights: Matrix
    """Parameter bytes between two states."""
    stashed: Matrix
    """Outputs plus parameters, for the original's memory rule."""
    output: npt.NDArray[np.float64]
    """O of each state."""


def pipedream_states(view: PipedreamGraph) -> PipedreamStates:
    """All states of the original for a graph.

    Raises ProblemError where its last state lacks layers, TooLargeError past the stated limit.
    """
    graph = view.graph
    whole = view.whole()
    if whole != view.kept:
        lost = graph.layers[min(view.kept - whole)].id
        raise ProblemError(
            f"cost model pipedream starts at the first source and never reaches layer {lost}; the "
            "original drops such layers without a word. Use --cost-model levelwise"
        )
    closed = sorted(
        (graph.down_closure(state) - view.removed for state in _antichain_closures(view)),
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


def _antichain_closures(view: PipedreamGraph) -> list[set[int]]:
    """Down-closed sets of the part behind the first source, as sets of its layers."""
    graph = view.graph
    order = sorted(view.reachable)
    place = {v: i for i, v in enumerate(order)}
    needs = [sum(1 << place[u] for u in graph.producers[v] if u in place) for v in order]
    readers = [[place[w] for w in graph.consumers[v] if w in place] for v in order]
    found = {0}
    frontier = {0: (0,)}  # the first source comes first in topological order
    while frontier:
        grown: dict[int, tuple[int, ...]] = {}
        for mask, ready in frontier.items():
            for b in ready:
                bigger = mask | 1 << b
                if bigger not in grown:
                    fresh = [w for w in readers[b] if needs[w] & ~bigger == 0]
                    grown[bigger] = (*(x for x in ready if x != b), *fresh)
        found.update(grown)
        if len(found) > _MAX_STATES:
            raise TooLargeError(
                "cost model pipedream fills tables over pairs of states, and the graph has more "
                f"than {_MAX_STATES} (counted {len(found)} before stopping); use --cost-model "
                "levelwise --backend cpsat, or --scope joint"
            )
        frontier = grown
    return [{v for i, v in enumerate(order) if mask >> i & 1} for mask in sorted(found)]
