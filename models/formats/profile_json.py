"""pipeplan's own profile, `schema: "pipeplan.profile/1"`, as a file: located errors, whole sizes.

What the fields are is in `core.profile_codec`, which a plan shares. Times are milliseconds and
sizes bytes, per micro-batch.
"""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pipeplan.core.errors import ProfileError
from pipeplan.core.graph import LayerGraph
from pipeplan.core.profile_codec import PROFILE_SCHEMA, graph_from_dict, graph_to_dict
from pipeplan.core.textfile import write_text

__all__ = ["PROFILE_SCHEMA", "dump_profile", "parse_profile", "write_profile"]

_SIZES: Final = ("output_bytes", "parameter_bytes", "saved_bytes")
_ENTRY: Final = re.compile(r"\b(layers|inputs)\[(\d{1,9})\]")
_NAMED: Final = re.compile(r"\b(?:layer|input) (\S+?):")


def parse_profile(
    document: Mapping[str, Any], text: str, path: str, name: str
) -> tuple[LayerGraph, tuple[str, ...]]:
    """The graph of a parsed document and what seemed odd about it; `text` serves to locate errors.

    Sizes that are not whole bytes are rounded up, with a warning. `name` is the graph's where the
    file gives none. Raises ProfileError with path, and line where the entry is known.
    """
    whole, rounded = _whole_sizes(document)
    try:
        graph, warnings = graph_from_dict({**whole, "name": document.get("name") or name})
    except ProfileError as error:
        line = _line(error.message, document, text)
        raise ProfileError(error.message, path=path, line=line, text=error.text) from None
    if rounded:
        warnings = (
            *warnings,
            f"{len(rounded)} sizes are not whole bytes and were rounded up (first: {rounded[0]})",
        )
    return graph, warnings


def dump_profile(graph: LayerGraph) -> str:
    """The graph as profile JSON, one layer a line; reading it back gives an equal graph.

    `schema`, `name` and `metadata` come first, a line each, so that a list of profiles needs no
    more. Raises ProfileError where the metadata are not JSON.
    """
    members: list[str] = []
    try:
        for key, value in graph_to_dict(graph).items():
            if isinstance(value, list) and value:
                rows = ",\n".join(_json(item) for item in value)
                members.append(f'"{key}": [\n{rows}\n]')
            else:
                # Metadata may hold a whole capture: no line to read, so no blanks either.
                members.append(f'"{key}": {_json(value, blanks=not isinstance(value, dict))}')
    except (TypeError, ValueError, RecursionError) as error:
        raise ProfileError(f"the graph's metadata are not JSON: {error}") from None
    return "{\n" + ",\n".join(members) + "\n}\n"


def write_profile(graph: LayerGraph, path: str | Path, *, force: bool = False) -> None:
    """Write profile JSON, whole or not at all.

    Raises PipeplanError where the file exists, unless `force`, and where it cannot be written.
    """
    write_text(Path(path), dump_profile(graph), force=force)


def _json(value: object, *, blanks: bool = True) -> str:
    separators = (", ", ": ") if blanks else (",", ":")
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=separators)


def _whole_sizes(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The document with fractions of bytes rounded up, and the places where there were any."""
    whole = dict(document)
    rounded: list[str] = []
    for key in ("layers", "inputs"):
        entries = document.get(key)
        if not isinstance(entries, list):
            continue
        made = list(entries)
        for i, entry in enumerate(entries):
            if not isinstance(entry, dict):
                continue
            odd = [x for x in _SIZES if _is_fraction(entry.get(x))]
            if odd:
                made[i] = {**entry, **{x: math.ceil(entry[x]) for x in odd}}
                rounded += [f"{x} of {str(entry.get('id'))[:80]!a}" for x in odd]
        whole[key] = made
    return whole, rounded


def _is_fraction(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value) and not value.is_integer()


def _line(message: str, document: Mapping[str, Any], text: str) -> int | None:
    """The line of the entry that a message names, by its place or by its id."""
    name: object = None
    if match := _ENTRY.search(message):
        entry = document[match[1]][int(match[2])]
        name = entry.get("id") if isinstance(entry, dict) else None
    elif match := _NAMED.search(message):
        name = match[1]
    if not isinstance(name, str):
        return None
    spellings = {json.dumps(name), json.dumps(name, ensure_ascii=False)}
    found = re.search(rf'"id"\s*:\s*(?:{"|".join(map(re.escape, sorted(spellings)))})', text)
    return None if found is None else text.count("\n", 0, found.start()) + 1
