"""Solvers in a thread: what is said to one that is late, and where its own printing goes."""

import ctypes
import os
import threading

import pytest

from pipeplan.solver.backends.interruptible import any_left_behind, run_interruptible
from pipeplan.solver.backends.stdout_aside import stdout_aside


def test_one_that_is_late_is_told_to_stop() -> None:
    told = threading.Event()

    def work() -> str:
        assert told.wait(60)
        return "stopped"

    assert run_interruptible(work, told.set, patience_s=30.0, limit_s=-29.9) == ("stopped", False)


def test_one_that_does_not_listen_is_left_behind() -> None:
    end = threading.Event()
    asked: list[int] = []

    def work() -> None:
        end.wait(60)

    try:
        found = run_interruptible(work, lambda: asked.append(1), patience_s=0.2, limit_s=0.1)
        assert found == (None, False)
        assert asked
        assert any_left_behind()
    finally:
        end.set()


@pytest.mark.skipif(os.name != "posix", reason="C's stream is reached by its name on POSIX")
def test_what_a_solver_prints_goes_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    library = ctypes.CDLL(None)
    print("before")
    with stdout_aside():
        library.printf(b"from C\n")
        os.write(1, b"to the descriptor\n")
    print("after")
    out, err = capfd.readouterr()
    assert out == "before\nafter\n"
    assert sorted(err.split("\n")) == ["", "from C", "to the descriptor"]
