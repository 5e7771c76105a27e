"""How long the command line takes to start, and which modules it loads for that.

    python benchmarks/startup.py [RUNS]

Median of RUNS (7) fresh processes each; the first of them, which warms the file cache, is left out.
"""

import importlib.util
import statistics
import subprocess
import sys
import time
from typing import Final

HEAVY: Final = ("numpy", "networkx", "ortools", "pandas", "torch", "rich.console")
CASES: Final = {
    "python -c pass": ["-c", "pass"],
    "import typer": ["-c", "import typer"],
    "import pipeplan": ["-c", "import pipeplan"],
    "pipeplan --version": ["-m", "pipeplan", "--version"],
    "pipeplan --help": ["-m", "pipeplan", "--help"],
    "pipeplan solve --help": ["-m", "pipeplan", "solve", "--help"],
    "pipeplan profiles": ["-m", "pipeplan", "profiles"],
}


def seconds(arguments: list[str], runs: int) -> float:
    """Median wall time of a process, in seconds."""
    taken = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[1:])


def modules(arguments: list[str]) -> set[str]:
    """Modules loaded when the process ends."""
    if arguments[0] == "-m":
        name, rest = arguments[1], arguments[2:]
        start = f"import runpy; sys.argv = {[name, *rest]!r}\n"
        start += f"runpy.run_module({name!r}, run_name='__main__')"
    else:
        start = arguments[1]
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('MODULES', *sys.modules, file=sys.stderr))\n" + start
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(out.stderr.rpartition("MODULES")[2].split())


def main() -> None:
    """Print the table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    if importlib.util.find_spec("pipeplan") is None:
        sys.exit("pipeplan is not installed here")
    print(f"Python {sys.version.split()[0]}, median of {runs}")
    print(f"{'command':<24}{'ms':>8}{'modules':>9}  heavy ones")
    for name, arguments in CASES.items():
        found = modules(arguments)
        heavy = ", ".join(x for x in HEAVY if x in found) or "-"
        print(f"{name:<24}{seconds(arguments, runs) * 1e3:>8.0f}{len(found):>9}  {heavy}")


if __name__ == "__main__":
    main()
