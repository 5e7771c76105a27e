"""One module a command: each holds a function `command`, whose parameters are the command line."""

__all__: list[str] = []
