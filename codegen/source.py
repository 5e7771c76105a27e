"""From a profile to a program, whichever way the profile describes its layers."""

from pipeplan.codegen.from_capture import program_from_capture
from pipeplan.codegen.from_text import program_from_text
from pipeplan.codegen.program import Program
from pipeplan.core.captured import CAPTURE_KEY, capture_from_dict
from pipeplan.core.graph import LayerGraph

__all__ = ["program_of"]


def program_of(graph: LayerGraph) -> Program:
    """The program of a graph: from its capture where it holds one, else from its layers' texts.

    Raises ProfileError naming the layer that cannot be turned into code, and why.
    """
    capture = graph.metadata.get(CAPTURE_KEY)
    if capture is None:
        return program_from_text(graph)
    return program_from_capture(graph, capture_from_dict(capture))
