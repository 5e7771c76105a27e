"""Stops a search at its time limit."""

from pipeplan.solver.stopwatch import Stopwatch

__all__ = ["Clock", "OutOfTimeError"]


class OutOfTimeError(Exception):
    """Raised inside a search and caught by its backend; never seen outside."""


class Clock(Stopwatch):
    """A stopwatch that interrupts whoever asks it too late."""

    def check(self) -> None:
        """Raise OutOfTimeError past the limit."""
        if self.over:
            raise OutOfTimeError
