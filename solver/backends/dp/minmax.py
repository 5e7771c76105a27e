"""The inner loop of every nested table: best middle state between two ends."""

import numpy as np
import numpy.typing as npt

__all__ = ["min_over_middle"]

Matrix = npt.NDArray[np.float64]


def min_over_middle(first: Matrix, second: Matrix, best: Matrix, *, last: bool = False) -> None:
    """best[i, j] = min(best[i, j], min over k of max(first[i, k], second[k, j])), in place.

    States are in an order in which subsets come first, so only i < k < j can be finite. With `last`
    only the last column is filled.
    """
    rows, columns = len(first), second.shape[1]
    if rows == 1:
        np.minimum(best[0], np.maximum(first[0, :, None], second).min(axis=0), out=best[0])
        return
    for j in range(columns - 1 if last else 1, columns):
        column = second[:j, j]
        middle = np.flatnonzero(np.isfinite(column))
        if not middle.size:
            continue
        low = int(middle[0])
        top = min(rows, j)
        both = np.maximum(first[:top, low:j], column[None, low:])
        np.minimum(best[:top, j], both.min(axis=1), out=best[:top, j])
