"""Profiles that come with pipeplan, computed by its own estimator: found by name, and listed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["ProfileSummary", "list_profiles", "packaged_names", "packaged_path"]

_FOLDER: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class ProfileSummary:
    """What a list of profiles shows of one; sizes in bytes, the batch in samples."""

    name: str
    layers: int
    parameter_bytes: int
    batch: int
    device: str
    description: str


def packaged_names() -> tuple[str, ...]:
    """Names of the packaged profiles, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.json")))


def packaged_path(name: str) -> Path | None:
    """The file of a packaged profile, None where there is none of this name."""
    return _FOLDER / f"{name}.json" if name in packaged_names() else None


def list_profiles() -> tuple[ProfileSummary, ...]:
    """A summary of each packaged profile, by name; reads only the head of each file."""
    return tuple(_summary(_FOLDER / f"{name}.json") for name in packaged_names())


def _summary(path: Path) -> ProfileSummary:
    # The writer puts schema, name and metadata first, one a line: all that a list needs.
    with path.open(encoding="utf-8") as file:
        head = [next(file).strip() for _ in range(4)]
    fields: Mapping[str, Any] = json.loads(" ".join(head).rstrip(",") + "}")
    metadata: Mapping[str, Any] = fields["metadata"]
    return ProfileSummary(
        name=path.stem,
        layers=metadata["layers"],
        parameter_bytes=metadata["parameter_bytes"],
        batch=metadata["batch"],
        device=metadata["device"],
        description=metadata["description"],
    )
