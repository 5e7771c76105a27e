"""Nested arguments and results: tuples, lists, dicts and slices, with something at their leaves."""

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["leaves", "map_leaves", "with_paths"]


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """The same structure with `function` applied to whatever is not a container.

    Named tuples keep their type; sizes (torch.Size) become plain tuples.
    """
    if isinstance(value, tuple):
        items = [map_leaves(function, item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [map_leaves(function, item) for item in value]
    if isinstance(value, dict):
        return {key: map_leaves(function, item) for key, item in value.items()}
    if isinstance(value, slice):
        ends = (value.start, value.stop, value.step)
        return slice(*(map_leaves(function, end) for end in ends))
    return function(value)


def leaves(value: Any) -> Iterator[Any]:
    """Whatever is not a container, from left to right."""
    return (leaf for _, leaf in with_paths(value))


def with_paths(
    value: Any, path: tuple[int | str, ...] = ()
) -> Iterator[tuple[tuple[int | str, ...], Any]]:
    """Leaves with the indices and keys that lead to them."""
    if isinstance(value, tuple | list):
        for i, item in enumerate(value):
            yield from with_paths(item, (*path, i))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from with_paths(item, (*path, key))
    elif isinstance(value, slice):
        yield from with_paths((value.start, value.stop, value.step), path)
    else:
        yield path, value
