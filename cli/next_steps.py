"""The exact commands to type next, with the paths that were typed before."""

import shlex
import sys
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path

from pipeplan.cli.several import STAGE, gather

__all__ = ["after_saving", "how_to_save", "more_memory", "solve_instead", "typed", "with_recompute"]


def typed() -> list[str]:
    """The arguments of this very command line."""
    return sys.argv[1:]


def after_saving(plan: Path, name: str, profile: str | None = None) -> list[str]:
    """What to do with a plan that is in a file; `name` is the network's, `profile` its file."""
    path = shlex.quote(str(plan))
    source = "" if profile is None else f"{shlex.quote(profile)} "
    clean = "".join(x if x.isascii() and (x.isalnum() or x in "._") else "-" for x in name[:60])
    return [
        f"pipeplan generate {source}{path} -o {clean.strip('.-') or 'model'}-pipeline",
        f"pipeplan simulate {path}",
        f"pipeplan report {path} -o {clean.strip('.-') or 'model'}.html",
    ]


def how_to_save(arguments: Sequence[str]) -> list[str]:
    """The same command line again, this time keeping the plan."""
    return [f"pipeplan {shlex.join(arguments)} -o {_unused('plan')}"]


def more_memory(arguments: Sequence[str], smallest_bytes: int) -> list[str]:
    """The same command line with the smallest memory that would do."""
    kept = _without(arguments, ("--memory", "--memory_size", "-s"), ("--use_memory_constraint",))
    return [f"pipeplan {shlex.join(kept)} --memory {smallest_bytes}"]


def with_recompute(arguments: Sequence[str]) -> list[str]:
    """The same command line, keeping stage inputs alone."""
    return [f"pipeplan {shlex.join(arguments)} --recompute"]


def solve_instead(arguments: Sequence[str]) -> list[str]:
    """The question of an `evaluate` command line, to be solved."""
    kept = _without(
        arguments, ("--stages", "--rank-map", "-o", "--output"), ("--optimum", "--force")
    )
    asked = ["solve" if x == "evaluate" else x for x in kept]
    return [f"pipeplan {shlex.join(asked)} -o {_unused('best')}"]


def _unused(name: str) -> str:
    """A plan file that is not there yet: plan.json, plan-2.json, ..."""
    numbered = (f"{name}-{i}.json" for i in count(2))
    return next(x for x in chain([f"{name}.json"], numbered) if not Path(x).exists())


def _without(
    arguments: Sequence[str], valued: tuple[str, ...], flags: tuple[str, ...]
) -> list[str]:
    """Arguments without some flags; a flag of `valued` goes with its value, --stages with all."""
    kept: list[str] = []
    rest = gather(arguments, {"--stages": STAGE})
    while rest:
        arg = rest.pop(0)
        if arg in valued:
            del rest[:1]
        elif arg not in flags and not any(arg.startswith(f"{x}=") for x in valued):
            kept.append(arg)
    return kept
