"""Flags that take several values, as in `-n 8 2 -b 4GiB/s 2GiB/s vgg16`.

A command module declares them: `SEVERAL_VALUES = {"-n": NUMBER, "--stages": STAGE}`, each flag with
the form of its values. Values are joined by a blank into the one value that the parser knows.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

__all__ = ["NUMBER", "QUANTITY", "STAGE", "gather", "split_values", "torn_quantity"]

NUMBER: Final = re.compile(r"[0-9][0-9,]*")
"""A whole number, or several with commas."""

QUANTITY: Final = re.compile(r"\.?[0-9][0-9.,eE+]*(?:[kKmMgGtTpP]i?)?[bB]?(?:/s|ps)?(?:,.*)?")
"""A number with or without a unit."""

STAGE: Final = re.compile(r".+[:@][0-9, -]+|[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*")
"""Layers with their replicas or ranks, or indices alone: 0-24:15, conv1-fc6@0-6,8-14, 0-24."""

_BARE: Final = re.compile(r"\.?[0-9][0-9.,eE+]*")
_SIZE_UNIT: Final = re.compile(r"[kKmMgGtTpP]i?[bB](?:/s|ps)?|[bB](?:/s|ps)")
_TIME_UNIT: Final = re.compile(r"us|ms|s|min|m|h")


def torn_quantity(args: Sequence[str]) -> str | None:
    """A complaint about a number and its unit that stand apart, as in `-b 10 GB/s`."""
    flag = ""
    for number, unit in pairwise(args):
        if number == "--":
            return None
        if number.startswith("-"):
            flag = number
        units = _TIME_UNIT if flag == "--time-limit" else _SIZE_UNIT
        if flag and _BARE.fullmatch(number) and units.fullmatch(unit):
            return f"{flag}: write {number}{unit}, with no space between the number and its unit"
    return None


def gather(args: Sequence[str], several: Mapping[str, re.Pattern[str]]) -> list[str]:
    """Join the values that follow each flag of `several`.

    The first value is taken whatever it looks like, so that the complaint about it names the flag;
    further ones as long as they have the form of a value: what comes next may be the profile.
    """
    out: list[str] = []
    rest = list(args)
    while rest:
        arg = rest.pop(0)
        if arg == "--":
            return [*out, arg, *rest]
        flag, first = _flag_of(arg, several)
        if flag is None:
            out.append(arg)
            continue
        values = [] if first is None else [first]
        if not values and rest and not rest[0].startswith("-"):
            values.append(rest.pop(0))
        while values and rest and several[flag].fullmatch(rest[0]):
            values.append(rest.pop(0))
        out += [flag, " ".join(values)] if values else [flag]
    return out


def _flag_of(
    arg: str, several: Mapping[str, re.Pattern[str]]
) -> tuple[str, str | None] | tuple[None, None]:
    """The flag that an argument is, with the value attached to it: -n8 or --flag=8."""
    if arg in several:
        return arg, None
    name, equals, value = arg.partition("=")
    if equals and name in several and name.startswith("--"):
        return name, value
    short = arg[:2]
    if short in several and not arg.startswith("--"):
        return short, arg[2:]
    return None, None


def split_values(text: str) -> list[str]:
    """The values of a flag that takes several, written with blanks, commas or both.

    A unit that is quoted together with its number, "10 GB/s", belongs to it.
    """
    whole = re.sub(rf"(?<=[0-9.])\s+(?=(?:{_SIZE_UNIT.pattern})(?:[\s,]|$))", "", text)
    return [part for part in re.split(r"[\s,]+", whole) if part]
