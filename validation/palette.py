"""Colours of stages: told apart by colour-blind people, and paired with numbers everywhere.

Okabe and Ito's eight (2008, "Color Universal Design") without black, which is text. Past seven
stages the colours repeat, so that every drawing also writes the stage's number.
"""

from typing import Final

__all__ = ["STAGE_COLOURS", "stage_colour", "text_colour"]

STAGE_COLOURS: Final = (
    "#56b4e9",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#f0e442",
    "#0072b2",
    "#d55e00",
)
_DARK: Final = frozenset({"#009e73", "#0072b2", "#d55e00"})


def stage_colour(stage: int) -> str:
    """The fill of a stage."""
    return STAGE_COLOURS[stage % len(STAGE_COLOURS)]


def text_colour(stage: int) -> str:
    """Text that can be read on it."""
    return "#ffffff" if stage_colour(stage) in _DARK else "#1b1f24"
