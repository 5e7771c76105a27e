"""Stops a search at its time limit."""

import time

__all__ = ["Clock", "OutOfTimeError"]


class OutOfTimeError(Exception):
    """Raised inside a search and caught by its backend; never seen outside."""


class Clock:
    """Seconds since a search began, and the moment it must stop."""

    def __init__(self, limit_s: float | None) -> None:
        self._start = time.perf_counter()
        self._limit_s = limit_s

    @property
    def seconds(self) -> float:
        """Elapsed time."""
        return time.perf_counter() - self._start

    def check(self) -> None:
        """Raise OutOfTimeError past the limit."""
        if self._limit_s is not None and self.seconds > self._limit_s:
            raise OutOfTimeError
