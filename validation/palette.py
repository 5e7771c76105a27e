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
_INK: Final = "#1b1f24"
_PAPER: Final = "#ffffff"


def stage_colour(stage: int) -> str:
    """The fill of a stage."""
    return STAGE_COLOURS[stage % len(STAGE_COLOURS)]


def text_colour(stage: int) -> str:
    """Text that can be read on it: dark or white, whichever has the higher contrast."""
    fill = _luminance(stage_colour(stage))
    on_white = 1.05 / (fill + 0.05)
    return _PAPER if on_white > (fill + 0.05) / (_luminance(_INK) + 0.05) else _INK


def _luminance(colour: str) -> float:
    """Relative luminance of #rrggbb as WCAG 2 defines it, 0 to 1."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
