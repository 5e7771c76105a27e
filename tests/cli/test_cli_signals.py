"""Ctrl-C and SIGTERM, real signals to real processes: at chosen moments, and once from outside."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from pipeplan.models.formats import write_graph_txt
from pipeplan.models.synthetic import random_dag

QUESTION: Final = ("-n", "4", "4", "-b", "1GB/s", "100MB/s", "--workers", "1", "--json")
SEARCH: Final = "pipeplan.solver.layout_search"
MOMENTS: Final = (
    ("cpsat", "pipeplan.solver.api", "_outcome"),
    ("cpsat", SEARCH, "linear_plan"),
    ("cpsat", SEARCH, "_Search._relax"),
    ("cpsat", "pipeplan.solver.backends.cpsat.constraints", "Constraints.add"),
    ("cpsat", "ortools.sat.python.cp_model", "CpSolver.solve"),
    ("milp", "ortools.math_opt.python.mathopt", "solve"),
    ("auto", "pipeplan.solver.backends.dp.backend", "enumerate_ideals"),
    ("auto", "pipeplan.solver.backends.dp.sample", "improved_plan"),
    ("exhaustive", "pipeplan.solver.backends.exhaustive", "_ideals_between"),
)
HIT: Final = """
import importlib, os, signal, sys
def hit(module, path, number):
    owner = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    right = getattr(owner, name)
    def wrapper(*args, **rest):
        setattr(owner, name, right)
        os.kill(os.getpid(), number)
        return right(*args, **rest)
    setattr(owner, name, wrapper)
"""


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Branches enough that models need a while, and too many ideals for the dp."""
    path = tmp_path_factory.mktemp("signals") / "wide.graph.txt"
    write_graph_txt(random_dag(80, seed=5, skips=0.5, sources=8), path)
    return path


def environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "FORCE_COLOR")}


def solve(
    profile: Path,
    backend: str,
    *hits: tuple[str, str, int],
    flags: tuple[str, ...] = (),
    before: str = "",
) -> tuple[int, str, str]:
    """`pipeplan solve` in a process that gets a signal as it first calls something."""
    argv = ["pipeplan", "solve", str(profile), *QUESTION, "--backend", backend, *flags]
    code = HIT + before + "".join(f"hit({m!r}, {path!r}, {int(n)})\n" for m, path, n in hits)
    code += f"sys.argv = {argv!r}\nfrom pipeplan.cli.app import main\nmain()\n"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=300,
        check=False,
    )
    return ran.returncode, ran.stdout, ran.stderr


def interrupted_answer(code: int, out: str, err: str) -> dict[str, Any]:
    assert code == 0, err
    assert "Traceback" not in err
    answer: dict[str, Any] = json.loads(out)
    assert answer["plan"] is not None
    assert 0 < answer["bound_ms"] <= answer["objective_ms"]
    if answer["status"] == "OPTIMAL":
        assert answer["gap"] < 1e-5
    else:
        assert (answer["status"], answer["limit"]) == ("FEASIBLE", "interrupt")
        assert answer["gap"] > 0
    return answer


@pytest.mark.parametrize(("backend", "module", "called"), MOMENTS)
def test_ctrl_c_at_any_moment_gives_the_best_plan_so_far(
    profile: Path, backend: str, module: str, called: str
) -> None:
    interrupted_answer(*solve(profile, backend, (module, called, signal.SIGINT)))


def test_ctrl_c_in_the_search_of_the_dp(tmp_path: Path) -> None:
    path = tmp_path / "narrow.graph.txt"
    write_graph_txt(random_dag(30, seed=5), path)
    called = ("pipeplan.solver.backends.dp.joint_search", "_Driver.find", signal.SIGINT)
    assert interrupted_answer(*solve(path, "dp", called))["status"] == "FEASIBLE"


def test_ctrl_c_that_comes_through_an_exec_changes_no_exit_code(
    profile: Path, tmp_path: Path
) -> None:
    # As where it comes while a module is imported that makes dataclasses; `python -m` remembers it.
    argv = ["pipeplan", "solve", str(profile), *QUESTION, "--backend", "cpsat"]
    code = (
        "import os, signal, sys\n"
        "import pipeplan.solver.api as api\n"
        "api._outcome = lambda *_: exec('os.kill(os.getpid(), signal.SIGINT)')\n"
        f"sys.argv = {argv!r}\n"
        "from pipeplan.cli.app import main\n"
        "main()\n"
    )
    (tmp_path / "stopped.py").write_text(code, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "stopped"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=300,
        check=False,
    )
    answer = interrupted_answer(ran.returncode, ran.stdout, ran.stderr)
    assert answer["limit"] == "interrupt"


def test_ctrl_c_that_a_destructor_swallows_is_heard_all_the_same(profile: Path) -> None:
    before = (
        "import pipeplan.solver.api as api\n"
        "right = api._outcome\n"
        "class Held:\n"
        "    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "def outcome(*args):\n"
        "    Held()\n"
        "    return right(*args)\n"
        "api._outcome = outcome\n"
    )
    code, out, err = solve(profile, "cpsat", before=before)
    assert interrupted_answer(code, out, err)["limit"] == "interrupt"
    assert "Exception ignored" not in err


@pytest.mark.parametrize(
    "moment",
    [
        ("pipeplan.solver.api", "judge"),
        ("pipeplan.cli.answer", "plan_file"),
        ("pipeplan.cli.output", "print_json"),
    ],
)
def test_ctrl_c_after_the_search_lets_the_answer_be_written(
    profile: Path, moment: tuple[str, str]
) -> None:
    hit = (*moment, signal.SIGINT)
    code, out, err = solve(profile, "cpsat", hit, flags=("--time-limit", "1s"))
    assert code == 0, err
    answer = json.loads(out)
    assert answer["plan"] is not None
    # Of the search that was over, or, while its answer was still being checked, of the signal.
    assert answer["limit"] == ("interrupt" if moment[1] == "judge" else "time")


def test_sigterm_likewise(profile: Path) -> None:
    moment = ("ortools.sat.python.cp_model", "CpSolver.solve", signal.SIGTERM)
    assert interrupted_answer(*solve(profile, "cpsat", moment))["status"] == "FEASIBLE"


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_before_there_is_a_plan_it_ends_with_one_message(
    profile: Path, number: int, expected: int
) -> None:
    # With a forced cut, no plan is one that needs no search.
    code, out, err = solve(
        profile, "cpsat", (SEARCH, "linear_plan", number), flags=("--force-cut", "20")
    )
    assert code == expected
    assert err.splitlines()[-1] == "pipeplan: interrupted before there was a plan"
    answer = json.loads(out)
    assert (answer["status"], answer["limit"]) == ("NO_SOLUTION", "interrupt")
    assert answer["plan"] is None


@pytest.mark.parametrize("backend", ["cpsat", "milp"])
def test_a_second_one_ends_at_once(profile: Path, backend: str) -> None:
    first = {
        "cpsat": ("ortools.sat.python.cp_model", "CpSolver.solve", signal.SIGINT),
        "milp": ("ortools.math_opt.python.mathopt", "solve", signal.SIGINT),
    }[backend]
    second = {
        "cpsat": ("ortools.sat.python.cp_model", "CpSolver.stop_search", signal.SIGINT),
        "milp": (
            "ortools.util.python.solve_interrupter",
            "SolveInterrupter.interrupt",
            signal.SIGINT,
        ),
    }[backend]
    code, out, err = solve(profile, backend, first, second)
    assert code == 130
    assert out == ""
    assert err.splitlines()[-1] == "pipeplan: interrupted"


def test_an_ignored_signal_stays_ignored(profile: Path) -> None:
    ignoring = "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    moment = ("pipeplan.solver.api", "_outcome", signal.SIGINT)
    flags = ("--time-limit", "1s")
    code, out, err = solve(profile, "cpsat", moment, flags=flags, before=ignoring)
    assert code == 0, err
    assert json.loads(out)["limit"] != "interrupt"


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="the system has no terminals")
@pytest.mark.parametrize("backend", ["auto", "cpsat", "milp"])
def test_ctrl_c_from_outside_once_a_plan_is_shown(profile: Path, backend: str) -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "pipeplan", "solve", str(profile), *QUESTION]
    with subprocess.Popen(
        [*command, "--backend", backend],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**environment(), "TERM": "xterm", "COLUMNS": "200"},
    ) as child:
        os.close(theirs)
        seen = b""
        while b"best plan" not in seen:
            seen += os.read(ours, 4096)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=300)
    os.close(ours)
    interrupted_answer(child.returncode, out.decode(), "")
