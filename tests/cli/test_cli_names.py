"""The names of commands and options are a promise: a change here is a change for every user."""

import importlib
import inspect
from typing import Any

import pytest
from typer.main import get_command

from pipeplan.cli.app import COMMANDS, app

QUESTION = {
    "--cluster",
    "-n --all_num_machines",
    "-b --network_bandwidths",
    "--duplex",
    "--memory",
    "-s --memory_size",
    "--use_memory_constraint",
    "--scope",
    "--cost-model",
    "--schedule",
    "--micro-batches",
    "--recompute",
    "--overlap-sync",
    "--weight-copies",
    "--straight --straight_pipeline",
    "--max-stages",
    "--force-cut",
    "--forbid-cut",
    "--pin",
    "--together",
    "--activation_compression_ratio",
    "--use_fewer_machines",
}
SEARCH = {"--time-limit", "--workers", "--seed", "--gap", "--log"}
OPTIONS = {
    "solve": QUESTION
    | SEARCH
    | {"-f --profile_filename", "--backend", "-o --output", "--json", "--force"}
    | {"--sweep", "--plot"},
    "show": set(),
    "evaluate": QUESTION
    | SEARCH
    | {
        "--stages",
        "--plan",
        "--rank-map",
        "--backend",
        "--optimum/--no-optimum",
        "-o --output",
        "--force",
        "--json",
    },
    "compare": QUESTION | SEARCH | {"--suite", "--backends", "--json", "--markdown"},
    "generate": {"-o --output", "--force"},
    "verify": {"--dtype", "--seed", "--each"},
    "run": {
        "--steps",
        "--micro-batches",
        "--schedule",
        "--device",
        "--dtype",
        "--seed",
        "--timeout",
        "--check/--no-check",
        "--json",
    },
    "simulate": {
        "--micro-batches",
        "--jitter",
        "--straggler",
        "--extra-in-flight",
        "--barrier",
        "--seed",
        "--trace",
        "--svg",
        "--force",
        "--json",
    },
    "report": {"-o --output", "--png", "--dot", "--sweep", "--time-limit", "--force"},
    "regress": {"--backends", "--only", "--time-limit", "--update", "--json"},
    "profile": {
        "-o --output",
        "--estimate",
        "--device",
        "--size",
        "--keep-whole",
        "--name",
        "--eval",
        "--warm-up",
        "--repeats",
        "--graph-txt",
        "--force",
    },
    "profiles": {"--json"},
}
EVERY_COMMAND = (
    "solve",
    "show",
    "evaluate",
    "compare",
    "profiles",
    "profile",
    "generate",
    "verify",
    "run",
    "simulate",
    "report",
    "regress",
)


def options(name: str) -> set[str]:
    """Spellings of each option of a command, as the parser knows them."""
    group: Any = get_command(app)
    out = set()
    for parameter in group.get_command(None, name).params:
        if parameter.param_type_name == "option":
            negated = f"/{parameter.secondary_opts[0]}" if parameter.secondary_opts else ""
            out.add(" ".join(parameter.opts) + negated)
    return out


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_options_are_frozen(name: str) -> None:
    assert options(name) == OPTIONS[name]


def test_commands_are_frozen() -> None:
    assert set(COMMANDS) <= set(EVERY_COMMAND)
    assert set(OPTIONS) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    module = importlib.import_module(f"pipeplan.cli.commands.{name}")
    summary = inspect.getdoc(module.command)
    assert summary
    first = summary.splitlines()[0]
    assert COMMANDS[name] == first
    assert first.endswith(".")
    assert len(first) <= 66, "one line of `pipeplan --help` at 80 columns"
