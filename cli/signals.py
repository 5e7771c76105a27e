"""Ctrl-C and SIGTERM: the first ends a search and keeps its best plan, the second ends everything.

`main` hands the process's signals over (`take_over`); whoever calls a command from a program keeps
its own handling.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, NoReturn

__all__ = ["exit_code", "leave", "searching", "take_over"]

_SHOW_CURSOR: Final = b"\x1b[?25h"
_AGAIN_S: Final = 0.05
_DEFAULTS: Final = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


class _Signals:
    def __init__(self) -> None:
        self.owned = False
        self.installed = False
        self.searching = False
        self.received: list[int] = []
        self.usual_hook = sys.unraisablehook

    def install(self) -> None:
        """Handle what would end the process; what it was started to ignore stays ignored."""
        for number, default in _DEFAULTS.items():
            if signal.getsignal(number) == default:
                signal.signal(number, self.handle)
        self.usual_hook, sys.unraisablehook = sys.unraisablehook, self.unraisable
        self.installed = True

    def handle(self, number: int, frame: FrameType | None) -> None:
        """End the search; let an answer that is being written be; the second time, exit."""
        self.received.append(number)
        if len(self.received) > 1:
            _exit_at_once(exit_code())
        if self.searching:
            raise KeyboardInterrupt

    def unraisable(self, what: "sys.UnraisableHookArgs") -> None:
        """What Python cannot raise, such as in a destructor: a lost signal is sent again."""
        if what.exc_type is KeyboardInterrupt and self.searching and self.received:
            number = self.received.pop()
            threading.Timer(_AGAIN_S, os.kill, (os.getpid(), number)).start()
        else:
            self.usual_hook(what)


_signals = _Signals()


def take_over() -> None:
    """From here on the process's signals are those of this command line."""
    _signals.owned = True


def exit_code() -> int:
    """As a shell reports a program ended by the signal that came: 130 for Ctrl-C."""
    return 128 + (_signals.received[0] if _signals.received else signal.SIGINT)


@contextmanager
def searching() -> Iterator[None]:
    """Within, a first signal raises KeyboardInterrupt; from then on, and after, it lets the command
    write its answer, and another one ends the process.

    Raises KeyboardInterrupt where one came since an earlier search.
    """
    if not _signals.owned or threading.current_thread() is not threading.main_thread():
        yield
        return
    if _signals.received:
        raise KeyboardInterrupt
    _signals.searching = True
    if not _signals.installed:
        _signals.install()
    try:
        yield
    finally:
        _signals.searching = False


def leave(code: str | int | None) -> NoReturn:
    """Exit with a code, like `sys.exit`, also past solvers that did not end when told to, and past
    Python, which remembers a KeyboardInterrupt that was handled but came through an `exec` (of an
    import, say) and then ends as if killed by it."""
    from pipeplan.solver.backends.interruptible import any_left_behind

    if isinstance(code, str) or not (_signals.received or any_left_behind()):
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code or 0)


def _exit_at_once(code: int) -> NoReturn:
    """Leave without waiting for anyone: solvers' threads may not listen."""
    if os.isatty(2):
        os.write(2, _SHOW_CURSOR)  # A progress line may have hidden it.
    os.write(2, b"pipeplan: interrupted\n")
    os._exit(code)
