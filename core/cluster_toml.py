"""Clusters as TOML files, which people write:

    memory = "16GB"            # of each device; without it there is no limit
    duplex = "full"            # or "half"; full without it

    [[level]]                  # innermost first: the GPUs of a server
    name = "NVLink"            # optional
    children = 8               # devices a server
    bandwidth = "4GiB/s"       # of each child's port, one direction; a bare number is bytes/s
    latency = "5us"            # optional; a bare number is seconds

    [[level]]                  # the servers
    children = 2
    bandwidth = "2GiB/s"

Anything else is an error: a misspelt `latncy` must not pass for no latency.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from pipeplan.core.cluster import Cluster, Level
from pipeplan.core.errors import ClusterError, PipeplanError
from pipeplan.core.jsontext import read_text
from pipeplan.core.units import parse_bytes, parse_duration_s, parse_rate

__all__ = ["parse_cluster", "read_cluster"]

_TOP: Final = {"memory", "duplex", "level"}
_LEVEL: Final = {"name", "children", "bandwidth", "latency"}
_MAX_CHARACTERS: Final = 1_000_000


def read_cluster(path: Path) -> Cluster:
    """Read a cluster file; raises ClusterError naming file, line and what is wrong there."""
    return parse_cluster(read_text(path, ClusterError), path)


def parse_cluster(text: str, path: str | Path) -> Cluster:
    """A cluster from a TOML text; `path` serves errors, which are ClusterError."""
    if len(text) > _MAX_CHARACTERS:
        raise ClusterError(
            f"{len(text)} characters; a cluster file has at most {_MAX_CHARACTERS}", path=path
        )
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        where = re.search(r"\(at line (\d+), column \d+\)", str(fault))
        line = int(where[1]) if where else len(text.splitlines())
        message = re.sub(r" ?\(at [^)]*\)", "", str(fault))
        raise ClusterError(
            f"not TOML: {message}", path=path, line=line, text=_line(text, line)
        ) from None
    except ValueError as fault:  # Python reads no whole number of more than 4300 digits
        found = re.search(r"[0-9_]{4300,}", text)
        if found is None:
            raise ClusterError(f"not TOML: {fault}", path=path) from None
        line = text.count("\n", 0, found.start()) + 1
        message = "a number with too many digits"
        raise ClusterError(message, path=path, line=line, text=_line(text, line)) from None
    except RecursionError:
        raise ClusterError("nested too deeply to be a cluster", path=path) from None
    return _File(text, str(path)).cluster(data)


def _line(text: str, number: int) -> str | None:
    lines = text.splitlines()
    return lines[number - 1].strip() if 0 < number <= len(lines) else None


@dataclass(frozen=True, slots=True)
class _File:
    """One file's text, to say where in it something stands."""

    text: str
    path: str

    def cluster(self, data: Mapping[str, Any]) -> Cluster:
        """The cluster that the file's values describe."""
        self._only(data, _TOP, None)
        levels = data.get("level")
        if (
            not isinstance(levels, list)
            or not all(isinstance(x, dict) for x in levels)
            or not levels
        ):
            self._fail("a cluster needs a [[level]] for each level, innermost first", None, "level")
        memory = self._quantity(data, "memory", parse_bytes, None)
        duplex = data.get("duplex", "full")
        if duplex not in ("full", "half"):
            self._fail(f"duplex is {duplex!r}; it is full or half", None, "duplex")
        found = tuple(self._level(x, i) for i, x in enumerate(levels))
        try:
            return Cluster(found, memory, "half" if duplex == "half" else "full")
        except ClusterError as error:
            self._fail(error.message, None, "memory" if "memory" in error.message else "level")

    def _level(self, entry: Mapping[str, Any], number: int) -> Level:
        self._only(entry, _LEVEL, number)
        name = entry.get("name", "")
        if not isinstance(name, str) or not name.isprintable() or len(name) > 200:
            self._fail("a name is at most 200 printable characters", number, "name")
        for key in ("children", "bandwidth"):
            if key not in entry:
                self._fail(f"level {number + 1} has no {key}", number, None)
        rate = self._quantity(entry, "bandwidth", parse_rate, number)
        latency_s = self._quantity(entry, "latency", parse_duration_s, number)
        try:
            return Level(entry["children"], rate, (latency_s or 0.0) * 1e3, name)
        except ClusterError as error:
            words = ("children", "bandwidth", "latency")
            at_fault = next((x for x in words if x in error.message), None)
            self._fail(error.message, number, at_fault)

    def _quantity(self, entry: Mapping[str, Any], key: str, parse: Any, level: int | None) -> Any:
        """A figure with its unit, or a bare number of the base unit; None where it is absent."""
        value = entry.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self._fail(f"{key} is neither text nor a number", level, key)
        try:
            return parse(value if isinstance(value, str) else repr(value))
        except PipeplanError as error:
            self._fail(str(error), level, key)

    def _only(self, entry: Mapping[str, Any], known: set[str], level: int | None) -> None:
        for key in entry:
            if key not in known:
                self._fail(
                    f"unknown key {key[:80]!r}; here stand {', '.join(sorted(known))}", level, key
                )

    def _fail(self, message: str, level: int | None, key: str | None) -> NoReturn:
        line = self._find(level, key)
        shown = None if line is None else _line(self.text, line)
        raise ClusterError(message, path=self.path, line=line, text=shown)

    def _find(self, level: int | None, key: str | None) -> int | None:
        """The line of a key: tomllib keeps none, so the text is looked through for `key =` under
        the heading that the key belongs to. None where it is written in some rarer way."""
        seen = -1
        header = None
        for number, text in enumerate(self.text.splitlines(), 1):
            line = text.strip()
            if re.match(r"\[\[\s*level\s*\]\]", line):
                seen += 1
                if level == seen:
                    header = number
                if level is None and key == "level":
                    return number
            elif (
                key is not None
                and seen == (-1 if level is None else level)
                and re.match(rf"[\"']?{re.escape(key)}[\"']?\s*=", line)
            ):
                return number
        return header
