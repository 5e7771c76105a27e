"""A folder written whole or not at all, and never over what was not ours."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from pipeplan.core.errors import PipeplanError, SourceError, shown
from pipeplan.core.jsontext import parse_json
from pipeplan.core.textfile import read_text

__all__ = ["MANIFEST", "write_folder"]

MANIFEST: Final = "package.json"
"""The file by which a generated folder is known; its `files` names what was generated."""


def write_folder(directory: Path, files: Mapping[str, str], *, force: bool) -> None:
    """Write the files, by plain names, as a new folder.

    Without `force` the folder must not exist, or be empty. With it, a folder that was generated
    before is replaced: files that it named as its own go, others (checkpoints, notes) stay. Raises
    PipeplanError, and leaves everything as it was, where that is not so or a write fails.
    """
    for name in files:
        if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
            raise PipeplanError(f"{shown(name)} is no name of a file in a folder")
    try:
        target = Path(os.path.realpath(directory))
        kept = _kept(directory, target, files, force=force)
        if not target.parent.is_dir():
            raise PipeplanError(f"{directory} cannot be written: there is no {target.parent}")
        _write(target, files, kept)
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or str(fault)
        raise PipeplanError(f"{shown(str(directory))} cannot be written: {reason}") from None


def _kept(directory: Path, target: Path, files: Mapping[str, str], *, force: bool) -> list[str]:
    """Names in an existing folder that stay."""
    if not os.path.lexists(target):
        return []
    if not target.is_dir():
        raise PipeplanError(f"{directory} is not a folder")
    present = sorted(os.listdir(target))
    if not present:
        return []
    if not force:
        raise PipeplanError(f"{directory} exists and is not empty; --force replaces a package")
    manifest = target / MANIFEST
    if MANIFEST not in present or manifest.is_symlink():
        raise PipeplanError(
            f"{directory} holds no {MANIFEST}: it is not overwritten, even by force"
        )
    document = parse_json(read_text(manifest, SourceError), SourceError, manifest)
    own = document.get("files") if isinstance(document, dict) else None
    if not isinstance(own, list) or document.get("schema") != "pipeplan.package/1":
        raise PipeplanError(f"{manifest} is not of a generated package: it is not overwritten")
    kept = [name for name in present if name not in own]
    for name in kept:
        # Such as a stage_1.py of someone's own.
        if name in files:
            raise PipeplanError(f"{directory / name} was not generated: it is not overwritten")
    return [name for name in kept if name != "__pycache__"]


def _write(target: Path, files: Mapping[str, str], kept: list[str]) -> None:
    mask = os.umask(0)
    os.umask(mask)
    fresh = Path(tempfile.mkdtemp(prefix=".pipeplan-", dir=target.parent))
    old: Path | None = None
    moved: list[str] = []
    try:
        for name, text in files.items():
            (fresh / name).write_bytes(text.encode())
        fresh.chmod(0o777 & ~mask)
        if target.is_dir():
            if not os.listdir(target):
                target.rmdir()
            else:
                old = Path(tempfile.mkdtemp(prefix=".pipeplan-", dir=target.parent))
                for name in kept:
                    (target / name).rename(fresh / name)
                    moved.append(name)
                target.rename(old)
        fresh.rename(target)
    except BaseException:
        if old is not None and not target.exists():
            old.rename(target)
            old = None
        for name in moved:
            (fresh / name).rename(target / name)
        raise
    finally:
        for rest in (fresh, old):
            if rest is not None:
                with suppress(OSError):
                    shutil.rmtree(rest)
