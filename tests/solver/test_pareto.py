"""Pareto-minimal rows against the definition."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeplan.solver.backends.dp.pareto import minimal

ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)),
    max_size=25,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(ROWS, st.integers(0, 3))
def test_minimal_rows(rows: list[tuple[int, int, int, int]], dimensions: int) -> None:
    table = np.array(rows, dtype=np.int64).reshape(len(rows), 4)
    loads = [table[:, 1 + d].astype(np.float64) for d in range(dimensions)]
    kept = minimal([table[:, 0]], loads, [np.arange(len(rows))])
    values = [(row[0], row[1 : 1 + dimensions]) for row in rows]
    best = {
        (state, own)
        for state, own in values
        if not any(
            s == state and o != own and all(a <= b for a, b in zip(o, own, strict=True))
            for s, o in values
        )
    }
    found = [values[i] for i in kept.tolist()]
    assert len(found) == len(set(found))
    assert set(found) == best
    # Of equal rows the first by the tie key.
    assert all(values.index(values[i]) == i for i in kept.tolist())
