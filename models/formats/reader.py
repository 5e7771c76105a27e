"""Reads any profile: the format is told by the content, never by the name."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeplan.core.errors import ProfileError
from pipeplan.core.graph import LayerGraph
from pipeplan.core.jsontext import parse_json
from pipeplan.core.textfile import read_text
from pipeplan.models.formats.foreign import recognise
from pipeplan.models.formats.graph_txt import parse_graph_txt
from pipeplan.models.formats.graph_txt_lines import looks_like_graph_txt
from pipeplan.models.formats.profile_json import PROFILE_SCHEMA, parse_profile
from pipeplan.models.formats.suspicions import suspicions
from pipeplan.models.profiles import packaged_names, packaged_path

__all__ = ["GRAPH_TXT", "ProfileFile", "read_profile", "read_profile_text"]

GRAPH_TXT: Final = "graph.txt"
_MAX_NAME: Final = 255


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """A profile as read: the graph, what looks wrong about it, and the format it was in."""

    graph: LayerGraph
    warnings: tuple[str, ...]
    format: str


def read_profile(path_or_name: str | Path) -> ProfileFile:
    """Read a file, or a packaged profile by its bare name; a file of that name goes first.

    Raises ProfileError, located as well as possible, for whatever is not a profile.
    """
    path = Path(path_or_name)
    text = str(path_or_name)
    bare = isinstance(path_or_name, str) and not (set(text) & {os.sep, os.altsep, "\0"})
    if len(os.fsencode(path.name)) > _MAX_NAME:
        raise ProfileError("no file and no packaged profile has so long a name", text=text)
    if bare and not path.is_file():
        packaged = packaged_path(text)
        if packaged is not None:
            path = packaged
        elif not path.exists():
            known = ", ".join(packaged_names()) or "none"
            raise ProfileError(
                f"no file and no packaged profile of this name (packaged: {known})", text=text
            )
    return read_profile_text(read_text(path, ProfileError), path)


def read_profile_text(text: str, path: str | Path) -> ProfileFile:
    """Parse a profile's text; `path` serves errors and gives the graph its name.

    Raises ProfileError as `read_profile` does.
    """
    shown = str(path)
    position = text.find("\0")
    if position >= 0:
        line = text.count("\n", 0, position) + 1
        around = text[max(0, position - 20) : position + 1]
        message = "a NUL character, so this is not a text profile"
        raise ProfileError(message, path=shown, line=line, text=around)
    name = _name(Path(path))
    start = text.lstrip()[:1]
    if not start:
        raise ProfileError("the file is empty", path=shown)
    if start in "{[":
        graph, warnings = parse_profile(_document(text, shown), text, shown, name)
        found = PROFILE_SCHEMA
    elif looks_like_graph_txt(text):
        graph, warnings = parse_graph_txt(text, shown, name)
        found = GRAPH_TXT
    else:
        first = text.lstrip().split("\n", 1)[0]
        message = "this is neither a graph.txt nor a pipeplan profile"
        raise ProfileError(message, path=shown, line=1, text=first)
    return ProfileFile(graph, (*warnings, *suspicions(graph)), found)


def _document(text: str, path: str) -> dict[str, object]:
    document = parse_json(text, ProfileError, path)
    if not isinstance(document, dict):
        raise ProfileError(f"a profile is a JSON object with schema {PROFILE_SCHEMA!r}", path=path)
    schema = document.get("schema")
    if schema == PROFILE_SCHEMA:
        return document
    if isinstance(schema, str) and schema.startswith("pipeplan.profile/"):
        raise ProfileError(f"this version reads {PROFILE_SCHEMA} only", path=path, text=schema)
    what = recognise(document)
    if what is not None:
        raise ProfileError(f"this is {what}, not a profile; reading it is not supported", path=path)
    raise ProfileError(f"a profile needs the field schema: {PROFILE_SCHEMA!r}", path=path)


def _name(path: Path) -> str:
    """vgg16.graph.txt and vgg16.json are vgg16; a plain graph.txt goes by its folder."""
    stem = path.name.split(".", 1)[0]
    return path.parent.name or stem if stem == "graph" else stem
