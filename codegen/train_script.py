"""train.py: the one file of a package that people edit, for their own data, loss and optimizer."""

from pipeplan.codegen.names import value_names
from pipeplan.codegen.program import Program
from pipeplan.codegen.shapes import InputShape

__all__ = ["train_script"]

_SCRIPT = '''"""Train this pipeline; the commands are in README.md. Edit it: the rest is generated.

Data here are made up, the same for each step and micro-batch on every rank. To train on your own,
let `inputs` return a micro-batch's tensors by name and `labels` what `loss` takes.
"""

from pathlib import Path

import torch
from torch import Tensor

from pipeplan.runtime import synthetic
from pipeplan.runtime.launch import Recipe, main

# Shape, dtype and range of each input of the network, for one micro-batch.{guessed}
INPUTS = {{
{inputs}
}}


def inputs(step: int, micro_batch: int) -> dict[str, Tensor]:
    """The network's inputs, by name; asked for by whichever stage reads them."""
    return synthetic.inputs(INPUTS, step, micro_batch)


def labels(step: int, micro_batch: int, outputs: tuple[Tensor, ...]) -> object:
    """What the last stage compares with; `outputs` tell made-up labels their shape."""
    return synthetic.labels(outputs, step, micro_batch)


def loss(outputs: tuple[Tensor, ...], labels: object) -> Tensor:
    """Mean over the micro-batch; the step's loss is the mean over its micro-batches."""
    return synthetic.cross_entropy(outputs, labels)


def optimizer(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """One a rank, for the parameters of its stage."""
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


if __name__ == "__main__":
    main(Path(__file__).parent, Recipe(inputs, labels, loss, optimizer))
'''


def train_script(program: Program, shapes: tuple[InputShape, ...]) -> str:
    """Source of train.py."""
    names = value_names([x.id for x in program.inputs] + [x.id for x in program.operations])
    lines = []
    for item, shape in zip(program.inputs, shapes, strict=True):
        entry = f"synthetic.Input({shape.shape!r}, {shape.dtype!r}, {shape.low}, {shape.high})"
        lines.append(f"    {names[item.id]!r}: {entry},".replace("'", '"'))
    guessed = any(x.guessed for x in shapes)
    note = " Shapes are a guess:\n# the profile records bytes alone." if guessed else ""
    return _SCRIPT.format(inputs="\n".join(lines), guessed=note)
