"""Recorded answers, one file an instance: what `pipeplan regress` compares with."""

__all__: list[str] = []
