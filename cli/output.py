"""What programs read: one document on stdout, whatever the terminal's encoding."""

import json
import os
import sys
from collections.abc import Iterable
from typing import Any

__all__ = ["open_streams", "print_json", "print_lines", "tolerant_stdout"]


def print_json(value: Any) -> None:
    """Print a document; where stdout cannot hold every character, escaped as JSON allows."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(json.dumps(value, indent=1, ensure_ascii=not unicode, allow_nan=False))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines of a document at once: whoever follows a long run reads each as it is done."""
    for line in lines:
        print(line)
    sys.stdout.flush()


def tolerant_stdout() -> None:
    """Let stdout print what its encoding cannot, escaped, instead of failing half-way."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def open_streams() -> None:
    """Give a process that was started without stdout or stderr (`>&-`) one that goes nowhere.

    Python has None for them then, and the next file opened would get their number.
    """
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # open as long as the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
