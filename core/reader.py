"""Typed access to parsed JSON: every complaint names the place and shows the value."""

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from pipeplan.core.errors import SourceError, shown

__all__ = ["Reader"]

_MAX_WHOLE: Final = 2**62
_ABSENT: Final = object()


class Reader:
    """One JSON object at a named place; raises the given kind of error where it is not as asked.

    A field may be left out where the method is given a default, which then is the answer.
    """

    __slots__ = ("data", "error", "where")

    def __init__(self, data: Any, where: str, error: type[SourceError]) -> None:
        self.where = where
        self.error = error
        if not isinstance(data, dict):
            self.fail("this is not an object", data)
        self.data: Mapping[str, Any] = data

    def fail(self, message: str, value: object = _ABSENT) -> NoReturn:
        """Raise the reader's error, with the place and the value at fault."""
        text = None if value is _ABSENT else value if isinstance(value, str) else shown(value)
        raise self.error(f"{self.where}: {message}", text=text)

    def only(self, *known: str) -> None:
        """Fail where a field is none of these: a misspelt one would be taken as left out."""
        for key in self.data:
            if key not in known:
                self.fail(f"unknown field; known are {', '.join(known)}", key)

    def _get(self, key: str, kinds: tuple[type, ...], what: str, default: Any) -> Any:
        value = self.data.get(key, default)
        if value is _ABSENT:
            self.fail(f"{key} is missing")
        if value is default:
            return value
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            self.fail(f"{key} is not {what}", value)
        return value

    def text(self, key: str, default: Any = _ABSENT) -> str:
        """A text."""
        return str(self._get(key, (str,), "text", default))

    def optional_text(self, key: str) -> str | None:
        """A text, or None where the field is null or left out."""
        return None if self.data.get(key) is None else self.text(key)

    def integer(self, key: str, default: Any = _ABSENT) -> int:
        """A whole number from -2**62 to 2**62."""
        return self._within(int(self._get(key, (int,), "a whole number", default)), key)

    def optional_integer(self, key: str) -> int | None:
        """A whole number, or None where the field is null or left out."""
        return None if self.data.get(key) is None else self.integer(key)

    def whole(self, key: str, default: Any = _ABSENT) -> int:
        """A whole number, also where it is written as 1e9 or 64.0."""
        value = self._get(key, (int, float), "a number", default)
        if isinstance(value, float):
            if not value.is_integer():
                self.fail(f"{key} is not a whole number", value)
            value = int(value)
        return self._within(value, key)

    def _within(self, value: int, key: str) -> int:
        if abs(value) > _MAX_WHOLE:
            self.fail(f"{key} is out of range", value)
        return value

    def number(self, key: str) -> float:
        """A number, as a float."""
        value = self._get(key, (int, float), "a number", _ABSENT)
        try:
            return float(value)
        except OverflowError:
            self.fail(f"{key} is out of range", value)

    def optional_number(self, key: str) -> float | None:
        """A number, or None where the field is null or left out."""
        return None if self.data.get(key) is None else self.number(key)

    def flag(self, key: str) -> bool:
        """True or false."""
        return bool(self._get(key, (bool,), "true or false", _ABSENT))

    def items(self, key: str, default: Any = _ABSENT) -> list[Any]:
        """A list of anything."""
        return list(self._get(key, (list,), "a list", default))

    def texts(self, key: str, default: Any = _ABSENT) -> list[str]:
        """A list of texts."""
        items = self.items(key, default)
        if not all(isinstance(x, str) for x in items):
            self.fail(f"{key} is not a list of texts", items)
        return items

    def integers(self, key: str) -> list[int]:
        """A list of whole numbers."""
        items = self.items(key)
        if not all(isinstance(x, int) and not isinstance(x, bool) for x in items):
            self.fail(f"{key} is not a list of whole numbers", items)
        return items

    def mapping(self, key: str, default: Any = _ABSENT) -> dict[str, Any]:
        """An object, as it is."""
        return dict(self._get(key, (dict,), "an object", default))

    def object(self, key: str) -> "Reader":
        """A reader of the object in a field."""
        return Reader(self._get(key, (dict,), "an object", _ABSENT), self._at(key), self.error)

    def objects(self, key: str, default: Any = _ABSENT) -> list["Reader"]:
        """Readers of the objects in a list."""
        return [
            Reader(x, f"{self._at(key)}[{i}]", self.error)
            for i, x in enumerate(self.items(key, default))
        ]

    def _at(self, key: str) -> str:
        return f"{self.where}: {key}"
