"""One self-contained HTML page about a plan."""

__all__: list[str] = []
