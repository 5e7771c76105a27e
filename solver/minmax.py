"""The inner loop of every nested table: best middle state between two ends."""

import numpy as np
import numpy.typing as npt

from pipeplan.solver.clock import Pause, unhurried

__all__ = ["min_over_middle"]

Matrix = npt.NDArray[np.float64]


def min_over_middle(
    first: Matrix,
    second: Matrix,
    best: Matrix,
    *,
    last: bool = False,
    within: bool = False,
    pause: Pause = unhurried,
) -> None:
    """best[i, j] = min(best[i, j], min over k of max(first[i, k], second[k, j])), in place.

    States are in an order in which subsets come first, so only i < k < j can be finite (with
    `within`, i <= k <= j); entries that cannot matter are infinite and narrow the loop further.
    With `last` only the last column is filled. `pause` is called now and then and may raise.
    """
    rows, columns = len(first), second.shape[1]
    if rows == 1:
        np.minimum(best[0], np.maximum(first[0, :, None], second).min(axis=0), out=best[0])
        return
    # The first row from which each middle can be reached at all.
    reached = np.isfinite(first)
    opens = np.where(reached.any(axis=0), reached.argmax(axis=0), rows)
    given = np.isfinite(second)
    lows = np.where(given.any(axis=0), given.argmax(axis=0), columns)
    buffer = np.empty(rows * columns)
    for j in range(columns - 1 if last else 0, columns):
        pause()
        low, stop = int(lows[j]), j + within
        if low >= stop:
            continue
        start = int(opens[low:stop].min())
        top = min(rows, stop)
        if start >= top:
            continue
        shape = (top - start, stop - low)
        both = buffer[: shape[0] * shape[1]].reshape(shape)
        np.maximum(first[start:top, low:stop], second[None, low:stop, j], out=both)
        np.minimum(best[start:top, j], both.min(axis=1), out=best[start:top, j])
