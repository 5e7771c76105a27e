"""The capture of a module: first without memory, then, where its code needs values, for real."""

# ruff: noqa: TID253
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from pipeplan.core.errors import PipeplanError
from pipeplan.models.capture.effects import groups_of
from pipeplan.models.capture.graph import CapturedGraph, CapturedInput, CapturedNode, Ref
from pipeplan.models.capture.notebook import spec_of
from pipeplan.models.capture.recorder import KeepWholeError, Recorder
from pipeplan.models.capture.skeleton import fake_inputs, fake_mode, preserved, skeleton
from pipeplan.models.capture.values import map_leaves, with_paths

__all__ = ["CaptureError", "ExampleInputs", "capture", "split_inputs"]

ExampleInputs = Any
"""A tensor, a tuple or list of positional arguments, or a dict of arguments by name."""

_MAX_WHOLE: Final = 200


class CaptureError(PipeplanError):
    """A model cannot be turned into a graph; the message says why and what would help."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    recorder: Recorder
    inputs: tuple[CapturedInput, ...]
    output: Any
    needs_values: bool


def split_inputs(inputs: ExampleInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named arguments of the model; raises CaptureError for anything else."""
    if isinstance(inputs, Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple | list):
        return tuple(inputs), {}
    raise CaptureError(
        f"example inputs are of type {type(inputs).__name__}; give a tuple of the model's arguments"
    )


def capture(
    module: nn.Module, example_inputs: ExampleInputs, *, keep_whole: Sequence[str] = ()
) -> CapturedGraph:
    """Run the module once on the example inputs and return its calls.

    `keep_whole` names modules (by path) to keep as one layer. Modules whose code cannot be followed
    are kept whole too, and `messages` says so. The module is left as it was.
    Raises CaptureError where the model fails on its own example, or returns no tensor.
    """
    args, kwargs = split_inputs(example_inputs)
    known = {path for path, _ in module.named_modules()}
    for path in keep_whole:
        if path not in known or not path:
            raise CaptureError(f"there is no module {path!r} to keep whole")
    whole = dict.fromkeys(keep_whole, "as asked")
    messages: list[str] = []
    attempt = _without_memory(module, args, kwargs, whole, messages)
    if isinstance(attempt, str):
        attempt = _for_real(module, args, kwargs, whole, messages, attempt)
    messages = [
        *(f"{path} is kept whole: {why}" for path, why in whole.items() if path not in keep_whole),
        *messages,
    ]
    return _finish(module, attempt, tuple(messages))


def _without_memory(
    module: nn.Module, args: Any, kwargs: Any, whole: dict[str, str], messages: list[str]
) -> _Attempt | str:
    """An attempt that worked, or why there is none; any failure may be for want of values."""
    while len(whole) < _MAX_WHOLE:
        mode = fake_mode()
        copy = skeleton(module, mode)
        made = fake_inputs((args, kwargs), mode)
        try:
            with mode:
                return _run(copy, made[0], made[1], whole, fixed_values=False, needs_values=False)
        except KeepWholeError as error:
            if not error.scope:
                return error.reason
            whole[error.scope] = error.reason
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
            if not whole:
                messages.append(f"captured with its own tensors, for without memory: {reason}")
            return reason
    return "too many modules would have to be kept whole"


def _for_real(
    module: nn.Module,
    args: Any,
    kwargs: Any,
    whole: dict[str, str],
    messages: list[str],
    reason: str,
) -> _Attempt:
    tensors = [*module.parameters(), *module.buffers()]
    if any(tensor.is_meta for tensor in tensors):
        raise CaptureError(
            "the model was built without memory (meta device), and cannot be followed so: "
            f"{reason}; build it with its weights"
        )
    fixed = False
    while len(whole) < _MAX_WHOLE:
        try:
            with preserved(module):
                attempt = _run(module, args, kwargs, whole, fixed_values=fixed, needs_values=True)
        except KeepWholeError as error:
            if error.scope:
                whole[error.scope] = error.reason
                continue
            if fixed:
                raise CaptureError(f"the model cannot be captured: {error.reason}") from None
            fixed = True
        except Exception as error:
            raise CaptureError(
                f"the model fails on its example inputs: {type(error).__name__}: {error}"
            ) from error
        else:
            messages += [
                f"{what} was read: the branch that the example took is what was captured"
                for what in dict.fromkeys(attempt.recorder.fixed)
            ]
            return attempt
    raise CaptureError(f"more than {_MAX_WHOLE} modules would have to be kept whole")


def _run(
    module: nn.Module,
    args: Any,
    kwargs: Any,
    whole: Mapping[str, str],
    *,
    fixed_values: bool,
    needs_values: bool,
) -> _Attempt:
    # Inputs are copied, because a model may overwrite them.
    args, kwargs = map_leaves(
        lambda x: x.detach().clone().requires_grad_(x.requires_grad) if _is_tensor(x) else x,
        (args, kwargs),
    )
    named = _input_names(module, args, kwargs)
    recorder = Recorder(
        module,
        {name: tensor for name, _, tensor in named},
        whole=whole,
        fixed_values=fixed_values,
    )
    try:
        with torch.enable_grad(), _functions_seen_by(recorder), recorder:
            result = module(*args, **kwargs)
    finally:
        recorder.remove_hooks()
    inputs = tuple(CapturedInput(name, path, spec_of(tensor)) for name, path, tensor in named)
    return _Attempt(recorder, inputs, recorder.result_of(result), needs_values)


@contextmanager
def _functions_seen_by(recorder: Recorder) -> Iterator[None]:
    """Custom autograd functions reach no torch function mode: their one entrance is watched."""
    original: Any = torch.autograd.Function.__dict__["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.refuse_function()
        return original.__get__(None, cls)(*args, **kwargs)

    setattr(torch.autograd.Function, "apply", classmethod(apply))  # noqa: B010
    try:
        yield
    finally:
        setattr(torch.autograd.Function, "apply", original)  # noqa: B010


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _input_names(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[tuple[str, tuple[int | str, ...], Tensor]]:
    """Each input tensor with its argument's name and its path in (args, kwargs)."""
    taken = {path for path, _ in module.named_modules()}
    names: list[str] = []
    for parameter in inspect.signature(module.forward).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    found: list[tuple[str, tuple[int | str, ...], Tensor]] = []
    for path, leaf in with_paths((args, dict(kwargs))):
        if isinstance(leaf, Tensor):
            where = path[1]
            if path[0] == 0 and isinstance(where, int):
                where = names[where] if where < len(names) else f"arg{where}"
            inner = "".join(f"[{step}]" for step in path[2:])
            name = f"{where}{inner}"
            # Layers are named after modules, and ids must differ.
            found.append((f"{name}_input" if name in taken else name, path, leaf))
    return found


def _finish(module: nn.Module, attempt: _Attempt, messages: tuple[str, ...]) -> CapturedGraph:
    notes = attempt.recorder.notes
    nodes = _pruned(notes.nodes, attempt.output)
    if not nodes:
        raise CaptureError("the model makes no call that can be placed")
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return CapturedGraph(
        nodes=nodes,
        inputs=attempt.inputs,
        output=attempt.output,
        training=module.training,
        tied={found[0]: tuple(found) for found in names.values() if len(found) > 1},
        together=groups_of(nodes, tuple(notes.memories.values())),
        messages=messages,
        needs_values=attempt.needs_values,
    )


def _pruned(nodes: Sequence[CapturedNode], output: Any) -> tuple[CapturedNode, ...]:
    """Without the items of tuples that nothing reads."""
    used = {ref.name for node in nodes for ref in node.refs}
    used |= {leaf.name for _, leaf in with_paths(output) if isinstance(leaf, Ref)}
    return tuple(node for node in nodes if node.kind != "item" or node.id in used)
