"""What goes wrong becomes one message on stderr and an exit code; nobody is shown a traceback."""

import functools
import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NoReturn, TypeVar

import typer

from pipeplan.cli.signals import exit_code
from pipeplan.core.errors import BackendBugError, NoPlanError, PipeplanError

__all__ = [
    "EXIT_BAD_INPUT",
    "EXIT_FALSE",
    "EXIT_NO_PLAN",
    "EXIT_PIPE",
    "complain",
    "guarded",
    "refused",
]

EXIT_FALSE: Final = 1
"""Infeasible, a disagreement, a regression, or a fault of this program."""
EXIT_BAD_INPUT: Final = 2
EXIT_NO_PLAN: Final = 3
"""A limit was reached before there was a plan."""
EXIT_PIPE: Final = 141
"""As a shell reports a program ended by SIGPIPE."""

_F = TypeVar("_F", bound=Callable[..., Any])


def complain(message: str) -> None:
    """One message on stderr, without control characters that a file could have smuggled in."""
    safe = "".join(x if x == "\n" or x.isprintable() else "?" for x in message)
    print(f"pipeplan: {safe}", file=sys.stderr)


def guarded(command: _F) -> _F:
    """Wrap a command so that every way of failing ends in a message and an exit code.

    `PIPEPLAN_TRACEBACK=1` lets the traceback of a fault of this program through, for a bug report.
    """

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            result = command(*args, **kwargs)
            # Here and not at interpreter exit, where a closed pipe could only be complained about.
            sys.stdout.flush()
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except KeyboardInterrupt:
            complain("interrupted")
            raise typer.Exit(exit_code()) from None
        except BrokenPipeError:
            _discard_stdout()
            raise typer.Exit(EXIT_PIPE) from None
        except PipeplanError as error:
            complain(str(error))
            raise typer.Exit(_code(error)) from None
        except ModuleNotFoundError as error:
            # An extra of the base install, or a fault: who names the module tells which.
            if (error.name or "").partition(".")[0] != "torch":
                _confess(error)
            complain(
                "this needs PyTorch, which is not installed here: pip install 'pipeplan[torch]'"
            )
            raise typer.Exit(EXIT_BAD_INPUT) from None
        except OSError as error:
            raise typer.Exit(refused(error)) from None
        except Exception as error:
            if os.environ.get("PIPEPLAN_TRACEBACK") == "1":
                raise
            _confess(error)
        return result

    return wrapper  # type: ignore[return-value]  # functools.wraps keeps the signature


def refused(error: OSError) -> int:
    """Say what the system would not do (a full disk behind stdout), and give the exit code."""
    if os.environ.get("PIPEPLAN_TRACEBACK") == "1":
        raise error
    _discard_stdout()
    complain(f"{error.filename or 'standard output'}: {error.strerror or error}")
    return EXIT_BAD_INPUT


def _code(error: PipeplanError) -> int:
    if isinstance(error, NoPlanError):
        return EXIT_NO_PLAN
    return EXIT_FALSE if isinstance(error, BackendBugError) else EXIT_BAD_INPUT


def _discard_stdout() -> None:
    """Whoever read our output has gone: what is still buffered must not raise again at exit."""
    with suppress(io.UnsupportedOperation):  # A stdout that is no file has nothing to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _confess(error: Exception) -> NoReturn:
    first = str(error).strip().split("\n", 1)[0][:300]
    complain(
        f"this is a fault of pipeplan, not of your input: {type(error).__name__}: {first}\n"
        "Please report it with the command line; PIPEPLAN_TRACEBACK=1 shows where it happened."
    )
    raise typer.Exit(EXIT_FALSE)
