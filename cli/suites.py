"""The instances of `compare`: profiles on one cluster, or a suite of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pipeplan.cli.errors import complain
from pipeplan.cli.inputs import loaded_graph
from pipeplan.cli.question import Question
from pipeplan.core.cluster import Cluster
from pipeplan.core.errors import PipeplanError, ProblemError, ProfileError, shown
from pipeplan.core.graph import LayerGraph
from pipeplan.core.problem import Problem
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
    `validation.suite`. Raises PipeplanError for what cannot be read or posed; what
    of a folder is no profile is left out, and said.
    """
    if suite is None:
        if not profiles:
            raise ProblemError(
                "which PROFILE? Name files or packaged profiles (pipeplan profiles), or a --suite"
            )
        cluster = question.described_cluster()
        place = named(cluster).name
        _warn(question)
        return [
            Instance(name, place, _posed(question, name, loaded_graph(name), cluster))
            for name in profiles
        ]
    if profiles:
        raise ProblemError(f"--suite names the profiles: leave out {shown(profiles[0])}")
    clusters = _clusters(question)
    _warn(question)
    return [
        Instance(name, place.name, _posed(question, name, graph, place.cluster))
        for name, graph in _graphs(suite)
        for place in clusters
    ]


def _warn(question: Question) -> None:
    for warning in question.warnings():
        complain(f"warning: {warning}")


def _posed(question: Question, name: str, graph: LayerGraph, cluster: Cluster) -> Problem:
    """The question about one of many; what is wrong with it is told with the profile's name."""
    try:
        return question.problem(graph, cluster)
    except PipeplanError as error:
        raise PipeplanError(f"{name}: {error}") from None


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
    for path in sorted(folder.iterdir()):
        if not path.is_file():
            complain(f"left out: {path} is no file")
            continue
        try:
            found.append((path.name, loaded_graph(str(path))))
        except ProfileError as error:
            complain(f"left out: {error}")
    if not found:
        raise ProblemError(f"no file in {shown(suite)} is a profile")
    return found
