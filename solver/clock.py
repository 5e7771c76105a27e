"""Time left of a limit, fair shares of it, and the end of a search when it is over."""

import time
from collections.abc import Callable

__all__ = ["Clock", "OutOfTimeError", "Pause", "unhurried"]

Pause = Callable[[], None]
"""Called now and then by whoever works for long; it may raise, to end that (`Clock.check`)."""


def unhurried() -> None:
    """The pause of those who have all the time."""


class OutOfTimeError(Exception):
    """Raised inside a search and caught by its backend; never seen outside."""


class Clock:
    """Seconds since it was made, and what is left of a limit (None: no limit)."""

    def __init__(self, limit_s: float | None) -> None:
        self._start = time.perf_counter()
        self._limit_s = limit_s

    @property
    def seconds(self) -> float:
        """Elapsed time."""
        return time.perf_counter() - self._start

    def share(self, parts: int) -> float | None:
        """What each of so many tasks may take of the time left, None without a limit."""
        if self._limit_s is None:
            return None
        return max(0.0, self._limit_s - self.seconds) / max(1, parts)

    def used(self, share: float) -> bool:
        """Whether that share of the limit is gone; never without a limit."""
        return self._limit_s is not None and self.seconds >= share * self._limit_s

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return self.used(1.0)

    def check(self) -> None:
        """Raise OutOfTimeError past the limit: whoever may work for long asks now and then."""
        if self.over:
            raise OutOfTimeError
