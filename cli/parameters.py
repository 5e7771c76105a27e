"""Parameters that several commands share: declared once as the fields of a dataclass.

    @expanded
    def command(question: Question, stages: ...) -> None: ...

has the fields of `Question` as parameters of its command line, and is called with a `Question`.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints

__all__ = ["expanded"]


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each dataclass parameter of a command by the fields of the dataclass."""
    hints = get_type_hints(command, include_extras=True)
    shown: list[inspect.Parameter] = []
    groups: dict[str, type[Any]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if not (isinstance(kind, type) and is_dataclass(kind)):
            shown.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[name] = kind
        field_hints = get_type_hints(kind, include_extras=True)
        for field in fields(kind):
            default = field.default
            if default is MISSING:
                default = (
                    inspect.Parameter.empty
                    if field.default_factory is MISSING
                    else field.default_factory()
                )
            shown.append(
                inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=default,
                    annotation=field_hints[field.name],
                )
            )

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    del wrapper.__wrapped__  # Its signature is not the one to show.
    wrapper.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {x.name: x.annotation for x in shown}
    return wrapper
