"""Pareto-minimal rows, state by state, vectorised."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["minimal"]

Ints = npt.NDArray[np.int64]


def minimal(
    state: Sequence[npt.NDArray[np.int64]],
    loads: Sequence[npt.NDArray[np.float64]],
    ties: Sequence[npt.NDArray[np.int64]],
) -> Ints:
    """Rows that no other row of the same state dominates; of equal rows the first by `ties`.

    A row dominates another of its state if none of its loads is larger. Exact for any number of
    loads: up to one by sorting, two by a running minimum, more by comparing within a state.
    """
    rows = len(state[0])
    if rows == 0:
        return np.zeros(0, dtype=np.int64)
    order = np.lexsort([*reversed(ties), *reversed(loads), *reversed(state)]).astype(np.int64)
    fresh = np.zeros(rows, dtype=np.bool_)
    fresh[0] = True
    for key in state:
        ordered = key[order]
        fresh[1:] |= ordered[1:] != ordered[:-1]
    if len(loads) <= 1:
        return order[fresh]
    group = np.cumsum(fresh) - 1
    if len(loads) == 2:
        second = loads[1][order]
        # Rows come with ascending first load: one survives if its second is below all before it.
        return order[_record_lows(second, group)]
    values = np.stack([x[order] for x in loads], axis=1)
    starts = np.append(np.flatnonzero(fresh), rows)
    alive = np.ones(rows, dtype=np.bool_)
    for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        if b - a > 1:
            alive[a:b] = _front(values[a:b])
    return order[alive]


def _record_lows(
    values: npt.NDArray[np.float64], group: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """True where a value is below all earlier ones of its group (groups are contiguous)."""
    ranks = np.unique(values, return_inverse=True)[1].astype(np.int64)
    span = np.int64(len(values) + 1)
    # Later groups sit lower, so that a running minimum over everything restarts with each group.
    keyed = ranks - group * span
    lows = np.minimum.accumulate(keyed)
    out = np.ones(len(values), dtype=np.bool_)
    out[1:] = keyed[1:] < lows[:-1]
    return out


def _front(values: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Survivors of one state, its rows sorted lexicographically: only earlier ones dominate."""
    alive = np.ones(len(values), dtype=np.bool_)
    for i in range(len(values)):
        if alive[i]:
            beaten = (values[i + 1 :] >= values[i]).all(axis=1)
            alive[i + 1 :] &= ~beaten
    return alive
