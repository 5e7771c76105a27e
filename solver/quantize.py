"""Milliseconds to integer ticks for the backends that count in integers, and the error that causes.

Every coefficient is rounded to the nearest tick, so that a sum of n coefficients is off by at most
n/2 ticks. Objectives are counted in *steps* of many ticks, rounded up: a plan that takes s steps
costs more than s - 1 and at most s of them, whatever order a search found it in.
"""

import math
from dataclasses import dataclass
from typing import Final

from pipeplan.core.errors import TooLargeError

__all__ = ["TICKS_PER_STEP", "Ticks", "exact_bytes"]

TICKS_PER_STEP: Final = 2**12
_STEPS: Final = 2**22
"""Steps of the reference time: one step is 2.4e-7 of it."""
_MOST: Final = 2**61
"""What a sum may reach: CP-SAT wants every expression to fit 64 bits."""


@dataclass(frozen=True, slots=True)
class Ticks:
    """A tick of `tick_ms`, chosen from a reference time close below the expected optimum.

    `cap` is the most ticks a coefficient may have. One that reaches it costs more than any plan of
    interest, so that cutting it off there changes nothing.
    """

    tick_ms: float
    cap: int

    @staticmethod
    def choose(*, reference_ms: float, upper_ms: float, devices: int) -> "Ticks":
        """Ticks under which `reference_ms` is 2**34 and every sum up to `upper_ms` a device fits.

        Raises TooLargeError where the two are so far apart that integers cannot span them.
        """
        reference = reference_ms or upper_ms or 1.0
        tick_ms = max(reference / (_STEPS * TICKS_PER_STEP), upper_ms * devices / 2**50)
        if tick_ms > reference * 1e-4:
            raise TooLargeError(
                f"times from {reference:.3g} to {upper_ms:.3g} ms cannot be counted in integers; "
                "backend dp calculates in floating point"
            )
        return Ticks(tick_ms, math.ceil(upper_ms / tick_ms * devices * 2) + TICKS_PER_STEP)

    def of(self, ms: float) -> int:
        """Nearest number of ticks, at most `cap`."""
        ticks = ms / self.tick_ms
        return self.cap if ticks >= self.cap else round(ticks)

    @property
    def step_ms(self) -> float:
        """One step of the objective."""
        return self.tick_ms * TICKS_PER_STEP

    def steps_up(self, ms: float) -> int:
        """The fewest steps that are at least `ms`."""
        return math.ceil(ms / self.step_ms)

    def steps_down(self, ms: float) -> int:
        """The most steps that are at most `ms`."""
        return math.floor(ms / self.step_ms)

    def error_ms(self, terms: int) -> float:
        """Most that a sum of so many rounded coefficients can be off."""
        return 0.5 * terms * self.tick_ms


def exact_bytes(largest: int, what: str) -> int:
    """`largest` if sums of that many bytes are exact in a solver's integers, else TooLargeError."""
    if largest > _MOST:
        raise TooLargeError(
            f"{what} can reach {largest:.3g} bytes, beyond the 64-bit integers of this backend; "
            "backend dp has no such limit"
        )
    return largest
