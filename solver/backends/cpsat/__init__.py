"""CP-SAT backend: the proof, on any graph."""

__all__: list[str] = []
