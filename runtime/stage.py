"""What every generated stage is: a module that knows what it receives, sends and holds."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

__all__ = ["StageModule"]


class StageModule(nn.Module):
    """Base of the class `Stage` in each generated stage_N.py.

    The forward takes the tensors of RECEIVES, then those of INPUTS, and returns those of SENDS, or
    of RETURNS in the last stage. ORIGINAL maps the own name of each module and tensor to its name
    in the original's state dict.
    """

    INDEX: ClassVar[int]
    RECEIVES: ClassVar[tuple[str, ...]]
    INPUTS: ClassVar[tuple[str, ...]]
    SENDS: ClassVar[tuple[str, ...]]
    RETURNS: ClassVar[tuple[str, ...]]
    ORIGINAL: ClassVar[Mapping[str, str]]

    def __init__(self) -> None:
        super().__init__()
        self._like: torch.Tensor
        # Empty: it follows `.to(...)`, so that a stage without weights knows where it is, too.
        self.register_buffer("_like", torch.empty(0), persistent=False)

    @property
    def device(self) -> torch.device:
        """Where the stage's tensors are made."""
        return self._like.device

    def precision(self, captured: torch.dtype) -> torch.dtype:
        """A floating type as captured, or float64 where the whole stage was made double.

        A capture cannot tell `x.dtype` from a type written out; for a run in double precision,
        which is made to check results, either has to be double.
        """
        return torch.float64 if self._like.dtype == torch.float64 else captured

    def original_name(self, own: str) -> str:
        """Name in the original's state dict of an entry of this stage's own."""
        head, dot, rest = own.partition(".")
        return f"{self.ORIGINAL[head]}{dot}{rest}"

    def tie(self, name: str, other: str) -> None:
        """Make the parameter of one name the one of another."""
        owner, _, attribute = name.rpartition(".")
        setattr(self.get_submodule(owner), attribute, self.get_parameter(other))

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load a stage's own state, or this stage's part of the original's whole state dict.

        Raises RuntimeError, as torch does, where entries are missing or of other shapes.
        """
        own = self.state_dict(keep_vars=True)
        originals = {name: self.original_name(name) for name in own}
        if own.keys() <= state_dict.keys():
            state_dict = {name: state_dict[name] for name in own}
        elif set(originals.values()) <= state_dict.keys():
            state_dict = {name: state_dict[original] for name, original in originals.items()}
        return super().load_state_dict(state_dict, strict, assign)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Written by the generator."""
        raise NotImplementedError
