"""What recurrent layers compute, from their sizes: no two backends run them as the same operators.

A layer multiplies all its inputs at once, then takes one step after the other, each reading the
recurrent weights. The backward pass does twice as much: for the inputs, and for the weights.
"""

# ruff: noqa: TID253
from collections.abc import Iterator

from torch import nn

from pipeplan.models.capture import CapturedNode
from pipeplan.models.profiler.operators import OperatorCost

__all__ = ["recurrent_costs"]


def recurrent_costs(
    module: nn.RNNBase, node: CapturedNode
) -> tuple[list[OperatorCost], list[OperatorCost]]:
    """Operators of the forward and the backward pass of one call; no other ones count."""
    forward = list(_forward(module, node))
    backward = [
        OperatorCost(cost.name, 2 * cost.flops, 2 * cost.bytes, cost.dtype) for cost in forward
    ]
    return forward, backward


def _forward(module: nn.RNNBase, node: CapturedNode) -> Iterator[OperatorCost]:
    output = node.outputs[0]
    batched = len(output.shape) == 3
    steps = output.shape[1] if batched and module.batch_first else output.shape[0]
    rows = 1
    for size in output.shape[:-1]:
        rows *= size
    batch = rows // max(1, steps)
    item = max(1, output.bytes // max(1, rows * output.shape[-1]))
    gates = {"LSTM": 4, "GRU": 3}.get(module.mode, 1) * module.hidden_size
    state = module.proj_size or module.hidden_size
    directions = 2 if module.bidirectional else 1
    for height in range(module.num_layers):
        inputs = module.input_size if height == 0 else directions * state
        for _ in range(directions):
            weights = inputs * gates
            moved = item * (rows * (inputs + gates) + weights)
            yield OperatorCost("recurrent_inputs", 2 * rows * weights, moved, output.dtype)
            weights = state * gates + (module.hidden_size * state if module.proj_size else 0)
            moved = item * (weights + batch * (2 * gates + 4 * state))
            step = OperatorCost("recurrent_step", 2 * batch * weights, moved, output.dtype)
            yield from [step] * steps
