"""Python names for values and modules whose own names may be anything, and harmless comments."""

import keyword
import re
from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["MODULE_NAMES", "attribute_names", "comment", "value_names"]

_LONGEST: Final = 60


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_RESERVED: Final = _words(
    "F Tensor dict float gnmt int list math nn operator original self slice torch tuple"
)

MODULE_NAMES: Final = _words(
    """
    INDEX INPUTS ORIGINAL RECEIVES RETURNS SENDS T_destination add_module apply bfloat16 buffers
    call_super_init children compile cpu cuda device double dump_patches eval extra_repr float
    forward get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict modules
    mtia named_buffers named_children named_modules named_parameters original_name parameters
    precision register_backward_hook register_buffer register_forward_hook
    register_forward_pre_hook register_full_backward_hook register_full_backward_pre_hook
    register_load_state_dict_post_hook register_load_state_dict_pre_hook register_module
    register_parameter register_state_dict_post_hook register_state_dict_pre_hook requires_grad_
    set_extra_state set_submodule share_memory state_dict tie to to_empty train training type xpu
    zero_grad
    """
)
"""Attributes of a stage's module that no layer may hide."""


def value_names(ids: Iterable[str]) -> Mapping[str, str]:
    """A distinct local name for each id."""
    return _names(ids, _RESERVED)


def attribute_names(ids: Iterable[str]) -> Mapping[str, str]:
    """A distinct attribute name for each id."""
    return _names(ids, MODULE_NAMES | _RESERVED)


def _names(ids: Iterable[str], reserved: frozenset[str]) -> dict[str, str]:
    taken: set[str] = set(reserved)
    out: dict[str, str] = {}
    for given in ids:
        if given in out:
            continue
        name = re.sub(r"[^A-Za-z0-9_]", "_", given)[:_LONGEST].strip("_") or "value"
        if name[0].isdigit():
            name = f"_{name}"
        if keyword.iskeyword(name) or keyword.issoftkeyword(name):
            name = f"{name}_"
        distinct, count = name, 1
        while distinct in taken:
            count += 1
            distinct = f"{name}_{count}"
        taken.add(distinct)
        out[given] = distinct
    return out


def comment(text: str, limit: int = 100) -> str:
    """A text as it may stand in a comment or docstring: one short line of plain ASCII, in which
    nothing can end a string."""
    plain = text.encode("ascii", "backslashreplace").decode()
    plain = "".join(x if x.isprintable() else "?" for x in plain)
    plain = plain.replace("\\", "/").replace('"', "'")
    return plain if len(plain) <= limit else f"{plain[: limit - 3]}..."
