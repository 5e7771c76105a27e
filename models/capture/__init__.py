"""A module's calls as a graph whose node ids are the layer ids of its profile.

What `capture(module, example_inputs)` guarantees:

- **Nodes** come in the order in which they ran, with deterministic ids: a call of a torch.nn module
  has the module's path (`features.0`; `features.0_1` the second time), any other call has the path
  of the module whose code made it and the function's name (`blocks.3.add`, `blocks.3.add_1`).
- **Arguments** are as written: order, keywords, nesting, constants, slices, dtypes. Tensors among
  them are `Ref`s. Sizes read from tensors are plain numbers: the batch size is that of the example.
- **Tuples**: a call that yields several tensors is read only by its `item` nodes, one for each
  tensor in use; a `Ref` always stands for one tensor. Items and their call share a stage.
- **Mode**: a module's own `training` flag is left to the module; passed to a function as
  `training`, it becomes `TrainingFlag`. Python branches on `self.training` are those of the
  captured mode.
- **In place**: a call that overwrites a value is a node of its own, and later readers read it
  (`mutates`, `alias_of`). Where the order of reading and overwriting matters beyond that, the nodes
  are in one `together` group; inside a stage, run nodes in the order of the capture.
- **State**: parameters and buffers keep their qualified names. A parameter with several names has
  its first one everywhere; nodes that use it share a group. Buffers that a module updates itself
  (batch norm) stay with the module.
- **Constants**: `is_constant` nodes depend on nothing and may be remade in any stage.
- **Devices** that the code names, if they are the model's own, become `DeviceFlag`.
- **Gradients** are those of the calls. A module that computes without gradients what could have
  them, under autocast, or with its own backward (torch.autograd.Function) is kept whole.
- **Not captured**: hooks of modules that are entered, side effects such as prints.

This is not built on torch.export, which freezes the training mode into its operators and dissolves
modules, so that neither `train()`/`eval()` nor readable stage modules would survive; nor on
torch.fx, which cannot follow code that looks at shapes. Modules whose code depends on values are
kept whole.
"""

from pipeplan.models.capture.api import CaptureError, ExampleInputs, capture, split_inputs
from pipeplan.models.capture.graph import (
    CapturedGraph,
    CapturedInput,
    CapturedNode,
    DeviceFlag,
    Ref,
    TensorSpec,
    TrainingFlag,
)
from pipeplan.models.capture.replay import call_node, input_values, replay, state_value

__all__ = [
    "CaptureError",
    "CapturedGraph",
    "CapturedInput",
    "CapturedNode",
    "DeviceFlag",
    "ExampleInputs",
    "Ref",
    "TensorSpec",
    "TrainingFlag",
    "call_node",
    "capture",
    "input_values",
    "replay",
    "split_inputs",
    "state_value",
]
