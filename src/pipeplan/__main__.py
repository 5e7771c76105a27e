"""`python -m pipeplan`: the same as the command `pipeplan`."""

from pipeplan.cli.entry import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
