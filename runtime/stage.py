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

    @property
    def device(self) -> torch.device:
        """Where the stage's tensors are; the default device for a stage without any."""
        for tensor in (*self.parameters(), *self.buffers()):
            return tensor.device
        return torch.get_default_device()

    def original_name(self, own: str) -> str:
        """Name in the original's state dict of an entry of this stage's own."""
        head, dot, rest = own.partition(".")
        return f"{self.ORIGINAL[head]}{dot}{rest}"

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load a stage's own state, or this stage's part of the original's whole state dict.

        Raises RuntimeError, as torch does, where entries are missing or of other shapes.
        """
        own = self.state_dict(keep_vars=True)
        if own and not own.keys() <= state_dict.keys():
            originals = {name: self.original_name(name) for name in own}
            if originals.keys() and set(originals.values()) <= state_dict.keys():
                state_dict = {name: state_dict[original] for name, original in originals.items()}
        elif own:
            state_dict = {name: state_dict[name] for name in own}
        return super().load_state_dict(state_dict, strict, assign)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Written by the generator."""
        raise NotImplementedError
