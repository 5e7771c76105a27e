"""One base error and the few kinds a caller may want to tell apart."""

import reprlib
from pathlib import Path
from typing import Final

__all__ = [
    "BackendBugError",
    "BackendUnavailableError",
    "ClusterError",
    "NoPlanError",
    "PipeplanError",
    "PlanError",
    "ProblemError",
    "ProfileError",
    "SourceError",
    "TooLargeError",
    "shown",
]

_SHORT: Final = reprlib.Repr()
_SHORT.maxlevel = 3
_SHORT.maxdict = _SHORT.maxlist = _SHORT.maxtuple = 6
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 100


def shown(value: object) -> str:
    """Any value as one short printable line for a message, however large or deeply nested it is."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python refuses to write out whole numbers of more than 4300 digits
        return f"({type(value).__name__}, too large to show)"


class PipeplanError(Exception):
    """Base of every error that pipeplan raises on purpose; its text is meant for people."""


class SourceError(PipeplanError):
    """Something wrong in a text that someone gave us, located as well as possible.

    `path` and `line` (1-based) are None where they are not known; `text` is the offending text.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | Path | None = None,
        line: int | None = None,
        text: str | None = None,
    ) -> None:
        self.message = message
        self.path = None if path is None else str(path)
        self.line = line
        self.text = text
        place = self.path if self.path is None or self.path.isprintable() else shown(self.path)
        where = ":".join(str(part) for part in (place, line) if part is not None)
        quoted = "" if text is None else f": {_shorten(text)}"
        super().__init__(f"{where}: {message}{quoted}" if where else f"{message}{quoted}")


def _shorten(text: str, limit: int = 120) -> str:
    """Offending text as one printable line: hostile input must not reach the terminal raw."""
    shown = repr(text if len(text) <= limit else text[:limit])
    return shown if len(text) <= limit else f"{shown}... ({len(text)} characters)"


class ProfileError(SourceError):
    """A layer graph, or the file it came from, is not valid."""


class ClusterError(SourceError):
    """A cluster description is not valid."""


class PlanError(SourceError):
    """A plan, or the file it came from, is not valid for its problem."""


class ProblemError(PipeplanError):
    """Valid parts that do not make a question this program can answer."""


class TooLargeError(ProblemError):
    """A backend's stated limit was reached; the message names the count and who can go on."""


class NoPlanError(PipeplanError):
    """A plan was required of a result that holds none."""


class BackendUnavailableError(PipeplanError):
    """A backend cannot run here; the message says what to install."""


class BackendBugError(PipeplanError):
    """A backend claimed what `core.cost` or `core.check` does not confirm."""
