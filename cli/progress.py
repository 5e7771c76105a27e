"""Progress on stderr: of a long solve only where someone is watching, of a run of many always."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from pipeplan.core.units import format_ms
from pipeplan.solver.outcome import Progress, ProgressEvent

__all__ = ["announce", "counting", "progress_text", "reporting"]

_DELAY_S: Final = 1.0
"""What takes less needs no progress line."""


def announce(text: str) -> None:
    """One line on stderr about a long run, whoever reads it."""
    print("".join(x if x.isprintable() else "?" for x in text), file=sys.stderr, flush=True)


@contextmanager
def reporting(title: str, *, quiet: bool = False) -> Iterator[Progress | None]:
    """Yield what a solver calls with its progress; None where stderr is no terminal or `quiet`."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    line = _Line(title)
    try:
        yield line.update
    finally:
        line.stop()


@contextmanager
def counting(title: str) -> Iterator[Callable[[int, int, str], None] | None]:
    """Yield what counts layers done on a progress bar; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(title), total=None)

        def update(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total)

        yield update


def progress_text(title: str, seconds: float, event: ProgressEvent | None) -> str:
    """The line: how long, the best plan and the bound so far."""
    parts = [f"{title}: {seconds:.0f} s"]
    if event is not None:
        if event.incumbent_ms is not None:
            parts.append(f"best plan {format_ms(event.incumbent_ms)}")
        if event.bound_ms is not None:
            parts.append(f"no plan below {format_ms(event.bound_ms)}")
        if event.text:
            parts.append("".join(x if x.isprintable() else "?" for x in event.text)[:60])
    known = event is not None and event.incumbent_ms is not None
    return ", ".join([*parts, "Ctrl-C takes the best so far" if known else "Ctrl-C ends it"])


class _Line:
    """A status line that appears after a second; the solver's thread only leaves notes for it."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.event: ProgressEvent | None = None
        self.started = time.monotonic()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._show, daemon=True)
        self.thread.start()

    def update(self, event: ProgressEvent) -> None:
        """Note the search's state."""
        self.event = event

    def stop(self) -> None:
        """Take the line away."""
        self.over.set()
        self.thread.join()

    def _show(self) -> None:
        if self.over.wait(_DELAY_S):
            return
        from rich.status import Status
        from rich.text import Text

        from pipeplan.cli.render.terminal import console

        def line() -> Text:
            return Text(
                progress_text(self.title, time.monotonic() - self.started, self.event),
                no_wrap=True,
                overflow="ellipsis",
            )

        with Status(line(), console=console(sys.stderr), refresh_per_second=4) as status:
            while not self.over.wait(0.25):
                status.update(line())
