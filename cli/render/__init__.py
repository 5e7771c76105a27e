"""What is printed, as pure functions from data to rich renderables; only `terminal` writes."""

__all__: list[str] = []
