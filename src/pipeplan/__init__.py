"""pipeplan: which layers of a network go on which GPU, and how many copies of each.

    import pipeplan

    graph = pipeplan.read_profile("vgg16").graph
    cluster = pipeplan.Cluster.of([8, 2], [4 * 2**30, 2 * 2**30])
    result = pipeplan.solve(pipeplan.Problem(graph, cluster))
    print(result.status, result.objective_ms, result.require_plan().stages)

Names are imported when they are first used: `import pipeplan` alone costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeplan.core.cluster import Cluster
    from pipeplan.core.cost import evaluate
    from pipeplan.core.graph import Layer, LayerGraph
    from pipeplan.core.plan import Plan
    from pipeplan.core.problem import Problem
    from pipeplan.models.formats import read_profile
    from pipeplan.solver.api import solve
    from pipeplan.solver.options import SolveOptions
    from pipeplan.solver.result import SolveResult

__version__ = "0.1.0"
__all__ = [
    "Cluster",
    "Layer",
    "LayerGraph",
    "Plan",
    "Problem",
    "SolveOptions",
    "SolveResult",
    "__version__",
    "evaluate",
    "read_profile",
    "solve",
]

_HOME = {
    "Cluster": "pipeplan.core.cluster",
    "Layer": "pipeplan.core.graph",
    "LayerGraph": "pipeplan.core.graph",
    "Plan": "pipeplan.core.plan",
    "Problem": "pipeplan.core.problem",
    "SolveOptions": "pipeplan.solver.options",
    "SolveResult": "pipeplan.solver.result",
    "evaluate": "pipeplan.core.cost",
    "read_profile": "pipeplan.models.formats",
    "solve": "pipeplan.solver.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'pipeplan' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
