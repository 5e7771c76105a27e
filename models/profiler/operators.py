"""Counts what each low-level operator computes and moves, and turns it into time on a device.

An operator takes launch + max(flops / (0.7 * peak), bytes / (0.8 * bandwidth)): the roofline, with
shares of the peaks that large operators reach in practice. Views, and the making of empty memory,
take nothing. Plain 3x3 convolutions in float32, on a device without TF32, count for fewer products
than they have, because cuDNN runs them as Winograd transforms.
"""

# ruff: noqa: TID253
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from pipeplan.models.capture.values import leaves
from pipeplan.models.profiler.devices import Device

__all__ = ["ASSUMPTIONS", "OperatorCost", "OperatorCounter", "time_ms"]

_COMPUTE_SHARE: Final = 0.7
_BANDWIDTH_SHARE: Final = 0.8
_LAUNCH_MS: Final = 0.005
# The transform saves 2.25 of the products, and spends some of it on the transforms themselves.
_WINOGRAD: Final = 1.6

ASSUMPTIONS: Final = {
    "compute_share": _COMPUTE_SHARE,
    "bandwidth_share": _BANDWIDTH_SHARE,
    "launch_ms": _LAUNCH_MS,
    "winograd": _WINOGRAD,
}

_FREE: Final = ("empty", "new_empty", "detach", "lift_fresh", "alias", "_unsafe_view", "device")
# These read the rows that they return, not the whole table.
_GATHERS: Final = ("embedding", "gather", "index", "index_select")


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """Floating-point operations of one operator, and the bytes that it reads and writes."""

    name: str
    flops: int
    bytes: int
    dtype: str
    is_plain_3x3: bool = False

    @property
    def is_convolution(self) -> bool:
        """Whether it may run in TF32."""
        return "convolution" in self.name


class OperatorCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the operators that run while it is active; inside a fake mode, if there is one."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.costs: list[OperatorCost] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operator and note it, unless it is free."""
        given = dict(kwargs or {})
        result = func(*args, **given)
        name = func._schema.name.removeprefix("aten::").removeprefix("prim::")
        if name.startswith(_FREE):
            return result
        read = _tensors((args, given))
        written = _tensors(result)
        if not written or (not func._schema.is_mutable and _only_views(read, written)):
            return result
        moved = sum(map(_bytes, written))
        moved += moved if name in _GATHERS else sum(map(_bytes, read))
        count = flop_registry.get(func._overloadpacket)
        flops = int(count(*args, **given, out_val=result)) if count else 0
        plain = "convolution" in name and _is_plain_3x3(func, args)
        self.costs.append(OperatorCost(name, flops, moved, _dtype(read or written), plain))
        return result


def time_ms(costs: Iterable[OperatorCost], device: Device) -> float:
    """Milliseconds of some operators one after the other."""
    total = 0.0
    for cost in costs:
        peak = device.peak(cost.dtype, convolution=cost.is_convolution)
        compute = cost.flops / (_COMPUTE_SHARE * peak)
        if cost.is_plain_3x3 and cost.dtype == "float32" and not device.has_tf32:
            compute /= _WINOGRAD
        memory = cost.bytes / (_BANDWIDTH_SHARE * device.bandwidth_bytes_per_s)
        total += _LAUNCH_MS + 1000 * max(compute, memory)
    return total


def _is_plain_3x3(func: Any, args: tuple[Any, ...]) -> bool:
    """Stride, dilation and groups of one, not transposed; of either pass."""
    given = dict(zip((a.name for a in func._schema.arguments), args, strict=False))
    weight = given.get("weight")
    return (
        isinstance(weight, Tensor)
        and tuple(weight.shape[2:]) == (3, 3)
        and set(given.get("stride", ())) == {1}
        and set(given.get("dilation", ())) == {1}
        and not given.get("transposed", False)
        and given.get("groups", 1) == 1
    )


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in leaves(value) if isinstance(leaf, Tensor)]


def _bytes(tensor: Tensor) -> int:
    """Bytes moved; an expanded tensor is read once."""
    own = int(tensor.numel()) * tensor.element_size()
    return min(own, int(tensor.untyped_storage().nbytes()))


def _dtype(tensors: list[Tensor]) -> str:
    names = [str(t.dtype).removeprefix("torch.") for t in tensors if t.is_floating_point()]
    return names[0] if names else "float32"


def _only_views(read: list[Tensor], written: list[Tensor]) -> bool:
    memory: Callable[[Tensor], int] = lambda t: int(t.untyped_storage()._cdata)  # noqa: E731
    known = set(map(memory, read))
    return all(memory(tensor) in known for tensor in written)
