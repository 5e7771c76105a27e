"""Keeps standard output for answers while a solver in C++ prints what it was told not to."""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

__all__ = ["stdout_aside"]


@contextlib.contextmanager
def stdout_aside() -> Iterator[None]:
    """Sends what this process writes to standard output to standard error meanwhile.

    HiGHS 1.11 prints a line of its own now and then, output disabled or not: in the middle of a
    JSON document it would be a fault of ours. Python's stream and C's are flushed on both sides.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:
        # Closed by whoever started us: nothing to keep clean.
        yield
        return
    _flush()
    os.dup2(2, 1)
    try:
        yield
    finally:
        _flush()
        os.dup2(kept, 1)
        os.close(kept)


def _flush() -> None:
    """What C code has printed and not yet written, where its library can be asked."""
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)
