"""Files that commands read and write: profiles with their warnings, plans, places for output."""

import os
from pathlib import Path

from pipeplan.cli.errors import complain
from pipeplan.cli.question import Question
from pipeplan.core.codec import PlanFile, plan_from_dict
from pipeplan.core.errors import PipeplanError, PlanError, ProblemError, ProfileError, shown
from pipeplan.core.graph import LayerGraph
from pipeplan.core.jsontext import parse_json, read_text
from pipeplan.core.problem import Problem

__all__ = ["asked_profile", "loaded", "loaded_graph", "loaded_plan", "writable"]


def asked_profile(argument: str | None, option: str | None) -> str:
    """The profile, given as PROFILE or as PipeDream's -f; raises ProblemError for none or both."""
    if argument is not None and option is not None:
        raise ProblemError(f"the profile is given twice: {argument!r} and -f {option!r}")
    found = argument if argument is not None else option
    if found is None:
        raise ProblemError(
            "which PROFILE? Name a file, or one of the packaged profiles (pipeplan profiles)"
        )
    return found


def loaded_graph(profile: str) -> LayerGraph:
    """Read a profile; what looks wrong about it is said on stderr."""
    from pipeplan.models.formats import read_profile

    file = read_profile(profile)
    for warning in file.warnings:
        complain(f"warning: {profile}: {warning}")
    return file.graph


def loaded(profile: str, question: Question) -> Problem:
    """Read a profile and pose the question; warnings go to stderr."""
    question.described_cluster()  # A mistake there is told before a large profile is read.
    problem = question.problem(loaded_graph(profile))
    for warning in question.warnings():
        complain(f"warning: {warning}")
    return problem


def loaded_plan(path: Path) -> PlanFile:
    """Read a plan file; raises PlanError naming the file."""
    data = parse_json(read_text(path, PlanError), PlanError, path)
    try:
        return plan_from_dict(data)
    except (PlanError, ProfileError) as error:
        if error.path is not None:
            raise
        raise PlanError(error.message, path=path, text=error.text) from None
    except PipeplanError as error:
        raise PlanError(str(error), path=path) from None


def writable(path: Path, *, force: bool) -> None:
    """Complain before a long search, not after it, where its result could not be written."""
    try:
        _check_writable(path, force=force)
    except (OSError, ValueError) as fault:  # a name too long, a loop of links, a NUL character
        reason = getattr(fault, "strerror", None) or str(fault)
        raise PipeplanError(f"{shown(str(path))} cannot be written: {reason}") from None


def _check_writable(path: Path, *, force: bool) -> None:
    if path.is_dir():
        raise PipeplanError(f"{path} is a folder; -o names a file")
    if path.exists() and not force:
        raise PipeplanError(f"{path} exists; --force overwrites it")
    folder = path.parent
    if not folder.is_dir():
        raise PipeplanError(f"{path} cannot be written: there is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise PipeplanError(f"{path} cannot be written: {folder} is not writable")
