"""The command line as a process: pipes, signals, modules."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def environment() -> dict[str, str]:
    """The environment of a child: no colours forced, no width inherited."""
    return {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "FORCE_COLOR")}


def test_a_closed_pipe_is_no_accident(chain: Path) -> None:
    command = [sys.executable, "-m", "pipeplan", "solve", str(chain), "-n", "2", "-b", "1GB/s"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        said = child.stderr.read().decode()
        child.wait(timeout=60)
    assert child.returncode == 141
    assert "Traceback" not in said
    assert "Exception" not in said


def interrupted_in_one_line(python: list[str], env: dict[str, str], ready: Path) -> None:
    """Send Ctrl-C to a process once it has opened a FIFO, and see it end as it should."""
    with subprocess.Popen(
        [sys.executable, *python], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    ) as child:
        ready.read_text(encoding="utf-8")
        time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert (out, err.decode()) == (b"", "pipeplan: interrupted\n")


def test_an_interrupt_is_one_line(tmp_path: Path) -> None:
    fifo = tmp_path / "ready"
    os.mkfifo(fifo)
    code = (
        "import sys, time\n"
        "import pipeplan.cli.inputs as inputs\n"
        "def wait(*_):\n"
        f"    open({str(fifo)!r}, 'w').close()\n"
        "    time.sleep(60)\n"
        "inputs.loaded_plan = wait\n"
        "sys.argv = ['pipeplan', 'show', 'x']\n"
        "from pipeplan.cli.app import main\n"
        "main()\n"
    )
    interrupted_in_one_line(["-c", code], environment(), fifo)


def test_an_interrupt_while_the_command_line_is_loaded_is_one_line(tmp_path: Path) -> None:
    fifo = tmp_path / "ready"
    os.mkfifo(fifo)
    # Stands before the real one, and takes its time.
    (tmp_path / "typer.py").write_text(
        f"import time\nopen({str(fifo)!r}, 'w').close()\ntime.sleep(60)\n"
    )
    slow = {**environment(), "PYTHONPATH": str(tmp_path)}
    interrupted_in_one_line(["-m", "pipeplan", "profiles"], slow, fifo)


def test_piped_output_has_no_codes_and_does_not_depend_on_the_run(chain: Path) -> None:
    command = [sys.executable, "-m", "pipeplan", "solve", str(chain), "-n", "2", "-b", "1GB/s"]
    outs = [
        subprocess.run(
            command,
            capture_output=True,
            check=True,
            env={**environment(), "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert outs[0] == outs[1]
    assert b"\x1b" not in outs[0]
    assert max(map(len, outs[0].decode().splitlines())) <= 110


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("watched", [True, False])
def test_progress_is_shown_where_someone_watches(
    monkeypatch: pytest.MonkeyPatch, watched: bool
) -> None:
    from pipeplan.cli import progress
    from pipeplan.solver.outcome import ProgressEvent

    stream = Terminal() if watched else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "_DELAY_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    with progress.reporting("dp") as report:
        assert (report is not None) == watched
        if report is not None:
            report(ProgressEvent(44.0, 40.0))
            deadline = time.monotonic() + 30
            while "no plan below 40.000 ms" not in stream.getvalue():
                assert time.monotonic() < deadline
                time.sleep(0.01)
    assert bool(stream.getvalue()) == watched


def test_what_ends_soon_needs_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeplan.cli import progress

    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "_DELAY_S", 60.0)
    with progress.reporting("dp"):
        pass
    assert stream.getvalue() == ""


def test_a_terminal_that_knows_ascii_alone(tmp_path: Path) -> None:
    layers = (
        "caf\u00e9\u4e2d -- Linear(8, 8) -- forward_compute_time=1.0, backward_compute_time=1.0, "
        "activation_size=4.0, parameter_size=0.0\n"
    )
    path = tmp_path / "p.txt"
    path.write_text(layers, encoding="utf-8")
    for flags in ((), ("--json",)):
        ran = subprocess.run(
            [sys.executable, "-m", "pipeplan", "solve", str(path), "-n", "2", "-b", "1", *flags],
            capture_output=True,
            env={**environment(), "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
            check=True,
        )
        text = ran.stdout.decode("ascii")
        if flags:
            layer = json.loads(text)["plan"]["stages"][0]["layers"]
            assert layer == ["caf\u00e9\u4e2d"]
        else:
            assert "caf\\xe9\\u4e2d" in text


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
@pytest.mark.parametrize("words", [["profiles"], ["--help"], ["show", "--help"]])
def test_a_full_disk_behind_stdout_is_one_line(words: list[str]) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "pipeplan", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=60,
            check=False,
        )
    assert ran.returncode == 2
    assert ran.stderr.decode() == "pipeplan: standard output: No space left on device\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_stream_that_was_closed_from_the_start_is_no_accident(closed: str) -> None:
    ran = subprocess.run(
        ["sh", "-c", f'"$0" -m pipeplan profiles --json {closed}', sys.executable],
        capture_output=True,
        env=environment(),
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0
    assert ran.stderr == b""


def test_an_interrupt_while_a_command_is_imported_is_one_line() -> None:
    code = (
        "import sys\n"
        "import pipeplan.cli.app as app\n"
        "def stopped(name):\n"
        "    raise KeyboardInterrupt\n"
        "app.import_module = stopped\n"
        "sys.argv = ['pipeplan', 'show', 'x']\n"
        "app.main()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env=environment(),
        timeout=60,
        check=False,
    )
    assert ran.returncode == 130
    assert ran.stderr.decode() == "pipeplan: interrupted\n"
