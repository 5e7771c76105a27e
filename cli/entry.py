"""The entry point of the command `pipeplan`, and of `python -m pipeplan`."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its code. Ctrl-C is one line also while it is loaded."""
    try:
        from pipeplan.cli.app import main as run
    except KeyboardInterrupt:
        sys.stderr.write("pipeplan: interrupted\n")
        raise SystemExit(130) from None
    run()
