"""Runs a solver in a thread, so that Ctrl-C is heard while it works."""

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from pipeplan.solver.clock import Clock

__all__ = ["any_left_behind", "run_interruptible"]

_POLL_S: Final = 0.1
_NAME: Final = "solver"

T = TypeVar("T")


def run_interruptible(
    work: Callable[[], T],
    stop: Callable[[], None],
    *,
    patience_s: float,
    limit_s: float | None = None,
) -> tuple[T | None, bool]:
    """What `work` returns, and whether Ctrl-C stopped it.

    On Ctrl-C `stop` is called, again and again, for one that has not started yet hears nothing; so
    it is for one that is still at work `patience_s` after its own limit of `limit_s`. A solver that
    does not listen for `patience_s` is left behind (its thread ends with the process), and the
    result is None. Exceptions of `work` are raised here.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body, name=_NAME, daemon=True)
    late = Clock(None if limit_s is None else limit_s + patience_s)
    interrupted = False
    try:
        thread.start()
        while thread.is_alive() and not late.over:
            thread.join(_POLL_S)
    except KeyboardInterrupt:
        interrupted = True
    patience = Clock(patience_s)
    while thread.is_alive() and not patience.over:
        stop()
        thread.join(_POLL_S)
    if errors:
        raise errors[0]
    return (results[0] if results else None), interrupted


def any_left_behind() -> bool:
    """Whether a solver still runs in this process that did not listen. An orderly exit would take
    away what it uses, and the process would abort."""
    return any(thread.name == _NAME for thread in threading.enumerate())
