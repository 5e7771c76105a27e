"""The model that a package was generated from, made again by its factory."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from pipeplan.models.profiler.factory import build_model, load_factory

__all__ = ["original_and_inputs", "original_model"]


def original_and_inputs(factory: str, sizes: Mapping[str, Any]) -> tuple[nn.Module, Any]:
    """A new (module, example inputs) from MODULE:FACTORY; raises FactoryError."""
    return build_model(load_factory(factory), sizes=sizes)


def original_model(factory: str, sizes: Mapping[str, Any]) -> nn.Module:
    """A new instance of the original; stages take out of it what no constructor call describes."""
    return original_and_inputs(factory, sizes)[0]
