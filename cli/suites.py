"""The instances of `compare`: profiles on one cluster, or a suite of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pipeplan.cli.errors import complain
from pipeplan.cli.inputs import loaded, loaded_graph
from pipeplan.cli.question import Question
from pipeplan.core.errors import ProblemError, ProfileError, shown
from pipeplan.core.graph import LayerGraph
from pipeplan.models.profiles import packaged_names
from pipeplan.validation.comparison import Instance
from pipeplan.validation.suite import CLUSTERS, NamedCluster, named

__all__ = ["PACKAGED", "asked_instances"]

PACKAGED: Final = "packaged"
"""The suite of every packaged profile."""


def asked_instances(
    profiles: Sequence[str], suite: str | None, question: Question
) -> list[Instance]:
    """Every instance, read and posed before anything is solved.

    A suite is asked on the question's cluster, and where that names none, on the four of
    `validation.suite`. Raises PipeplanError for what cannot be read or posed; files of a folder
    that are no profiles are left out, and said.
    """
    if suite is None:
        if not profiles:
            raise ProblemError(
                "which PROFILE? Name files or packaged profiles (pipeplan profiles), or a --suite"
            )
        problems = [(profile, loaded(profile, question)) for profile in profiles]
        return [Instance(name, named(x.cluster).name, x) for name, x in problems]
    if profiles:
        raise ProblemError(f"--suite names the profiles: leave out {shown(profiles[0])}")
    clusters = _clusters(question)
    for warning in question.warnings():
        complain(f"warning: {warning}")
    return [
        Instance(name, place.name, question.problem(graph, place.cluster))
        for name, graph in _graphs(suite)
        for place in clusters
    ]


def _clusters(question: Question) -> list[NamedCluster]:
    if question.names_cluster:
        return [named(question.described_cluster())]
    return [named(question.limited(x.cluster), x.name) for x in CLUSTERS]


def _graphs(suite: str) -> list[tuple[str, LayerGraph]]:
    if suite == PACKAGED:
        return [(name, loaded_graph(name)) for name in packaged_names()]
    folder = Path(suite)
    if not folder.is_dir():
        raise ProblemError(f"there is no suite {shown(suite)}: it is {PACKAGED}, or a folder")
    found = []
    for path in sorted(x for x in folder.iterdir() if x.is_file()):
        try:
            found.append((path.name, loaded_graph(str(path))))
        except ProfileError as error:
            complain(f"left out: {error}")
    if not found:
        raise ProblemError(f"no file in {shown(suite)} is a profile")
    return found
