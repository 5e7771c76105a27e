"""Runs a solver in a thread, so that Ctrl-C is heard while it works."""

import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["run_interruptible"]

T = TypeVar("T")


def run_interruptible(
    work: Callable[[], T], stop: Callable[[], None], *, patience_s: float
) -> tuple[T | None, bool]:
    """What `work` returns, and whether Ctrl-C stopped it.

    On Ctrl-C `stop` is called; a solver that does not listen for `patience_s` is left behind (its
    thread ends with the process), and the result is None. Exceptions of `work` are raised here.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body, daemon=True)
    interrupted = False
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.1)
    except KeyboardInterrupt:
        interrupted = True
        stop()
        thread.join(patience_s)
    if errors:
        raise errors[0]
    return (results[0] if results else None), interrupted
