"""Questions: combinations that have no meaning are refused, each with its reason."""

import math
import re
from types import SimpleNamespace
from typing import Any

import pytest

from pipeplan.core.cluster import Cluster
from pipeplan.core.errors import ProblemError
from pipeplan.core.graph import Layer, LayerGraph, Together
from pipeplan.core.problem import Constraints, Problem

HALF = Cluster.of([2], [1.0], duplex="half")
LEVELWISE: dict[str, Any] = {"scope": "nested", "cost_model": "levelwise"}
ORIGINAL: dict[str, Any] = {"scope": "nested", "cost_model": "pipedream"}


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"scope": "both"}, "there is no scope 'both'; choose from joint, nested"),
        ({"cost_model": "guess"}, "there is no cost model 'guess'"),
        ({"schedule": "zb"}, "there is no schedule 'zb'; choose from pipedream, 1f1b, gpipe"),
        ({"scope": "nested"}, "scope nested does not go with cost model topology"),
        ({"cost_model": "levelwise"}, "scope joint does not go with cost model levelwise"),
        ({"schedule": "gpipe"}, "say how many micro-batches"),
        ({"schedule": "1f1b"}, "say how many micro-batches"),
        ({"micro_batches": 4}, "never flushes"),
        *(
            ({"schedule": "gpipe", "micro_batches": m}, "number of micro-batches a batch is")
            for m in (0, -1, 2.5, True, 10**6 + 1, "4")
        ),
        *(({"weight_copies": w}, "weight copies is") for w in (0, 101, 1.5, True)),
        *(
            ({"activation_compression_ratio": x}, "compression ratio is")
            for x in (0, -1, math.nan, math.inf, 1e-9, 1e9, 10**400, True)
        ),
        ({"use_fewer_machines": True}, "belongs to cost model pipedream"),
        ({"overlap_sync": True, **LEVELWISE}, "belongs to topology"),
        ({"overlap_sync": True, **ORIGINAL}, "belongs to topology"),
        ({"recompute": True, **ORIGINAL}, "knows no recompute"),
        ({"schedule": "gpipe", "micro_batches": 2, **ORIGINAL}, "knows schedule pipedream"),
        ({"cluster": HALF, **ORIGINAL}, "full duplex"),
        ({"constraints": Constraints(max_stages=2), **ORIGINAL}, "no stage constraints"),
        *(
            ({"constraints": Constraints(max_stages=x)}, "max_stages is")
            for x in (0, -1, 1.5, True, 2**40)
        ),
        ({"constraints": Constraints(pinned=((3, 0),))}, "cannot pin layer 3: the graph has 3"),
        ({"constraints": Constraints(pinned=((-1, 0),))}, "cannot pin layer -1"),
        ({"constraints": Constraints(pinned=((1, -1),))}, "layer n1 is pinned to is -1"),
        ({"constraints": Constraints(pinned=((1, 0), (1, 1)))}, "pinned to two stages"),
        ({"constraints": Constraints(together=((0, 3),))}, "names a missing layer"),
        ({"constraints": Constraints(together=((),))}, "keep together is empty"),
        *(
            ({"constraints": Constraints(**{name: (cut,)})}, "proper, non-empty set")
            for name in ("forced_cuts", "forbidden_cuts")
            for cut in map(frozenset, ((), (0, 1, 2), (1,), (-1,), (7,), (0, 9)))
        ),
    ],
)
def test_what_has_no_meaning_is_refused(
    options: dict[str, Any], pattern: str, make: SimpleNamespace
) -> None:
    given: dict[str, Any] = {
        "graph": make.chain(3), "cluster": Cluster.of([2], [1.0]), **options
    }  # fmt: skip
    with pytest.raises(ProblemError, match=re.escape(pattern)):
        Problem(**given)


def test_what_has_meaning_is_accepted(make: SimpleNamespace) -> None:
    graph, cluster = make.chain(3), Cluster.of([2], [1.0])
    for options in (
        {},
        LEVELWISE,
        ORIGINAL,
        {"schedule": "1f1b", "micro_batches": 1, "recompute": True, "overlap_sync": True},
        {"use_fewer_machines": True, **ORIGINAL},
        {"constraints": Constraints(straight=True), **ORIGINAL},
        {"cluster": HALF, "schedule": "gpipe", "micro_batches": 8, **LEVELWISE},
        {"constraints": Constraints(True, 2, (frozenset({0}),), (), ((2, 5),), ((0, 1),))},
    ):
        Problem(**{"graph": graph, "cluster": cluster, **options})


def test_compression_counts_as_one_where_it_is_not_given(make: SimpleNamespace) -> None:
    graph, cluster = make.chain(3), Cluster.of([2], [1.0])
    assert Problem(graph, cluster).compression == 1.0
    problem = Problem(graph, cluster, activation_compression_ratio=2)
    assert problem.compression == 2.0
    assert isinstance(problem.activation_compression_ratio, float)


def test_groups_of_graph_and_asker_add_up() -> None:
    graph = LayerGraph.build(
        [Layer(x, 1, 1, 1) for x in "abc"], [], together=[Together(("a", "c"), "tied")]
    )
    cluster = Cluster.of([2], [1.0])
    asked = Constraints(together=((1, 2),))
    assert Problem(graph, cluster, constraints=asked).together == ((0, 2), (1, 2))
    assert Problem(graph, cluster, **ORIGINAL).together == ()
