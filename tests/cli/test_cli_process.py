"""The command line as a process: pipes, signals, modules."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


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
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as child:
        fifo.read_text(encoding="utf-8")
        time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert (out, err.decode()) == (b"", "pipeplan: interrupted\n")


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
