"""MILP backend through MathOpt: the same model with linear constraints alone."""

__all__: list[str] = []
