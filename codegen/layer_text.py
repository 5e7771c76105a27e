"""The text of a layer, as a module's repr or a profiler writes it, parsed without running anything.

    LAYER    = NAME | NAME "(" ")" | NAME "(" LITERALS ")" | NAME "(" CHILDREN ")"
    CHILDREN = ("(" KEY "):" LAYER)+
    LITERALS = what Python's own parser takes for the arguments of a call, of which only numbers,
               None, True, False, short plain words in quotes, tuples and lists of those, and the
               bare word `inplace` are let through; for `__getitem__` also slices and `...`

A profile is untrusted: `ast` only reads, lengths and depths are bounded before it does, and
whatever is not on the list is an error with its position.
"""

import ast
import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["MAX_TEXT", "BadTextError", "LayerText", "parse_layer_text"]

MAX_TEXT: Final = 10_000
"""Bound on the characters of a layer's text; the longest of the published profiles has 340."""

_MAX_ARGUMENTS: Final = 2_000
_MAX_DEPTH: Final = 12
_MAX_INTEGER: Final = 2**40
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}")
_CHILD: Final = re.compile(r"\s*\((?P<key>[A-Za-z0-9_]{1,80})\):\s*")
_WORD: Final = re.compile(r"[A-Za-z_-]{1,24}")
_CALL: Final = "f("


class BadTextError(ValueError):
    """A text outside the grammar; `position` counts characters from 0."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.message = message
        self.position = position


@dataclass(frozen=True, slots=True)
class LayerText:
    """A parsed text: the name, its literal arguments, and its children where it is a container.

    `bare` is true where no parentheses followed the name. The word `inplace` standing alone is the
    keyword inplace=True. Lists become tuples; slices are `slice` objects.
    """

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    children: tuple[tuple[str, "LayerText"], ...] = ()
    bare: bool = False

    def keywords(self) -> dict[str, Any]:
        """Keyword arguments; empty where there are none."""
        return dict(self.kwargs or {})

    def child(self, key: str) -> "LayerText | None":
        """The child of that key."""
        return next((text for found, text in self.children if found == key), None)


def parse_layer_text(text: str) -> LayerText:
    """Parse a whole text; raises BadTextError."""
    if len(text) > MAX_TEXT:
        raise BadTextError(
            f"the text has {len(text)} characters; at most {MAX_TEXT} are read", MAX_TEXT
        )
    parsed, end = _layer(text, 0, 0)
    if text[end:].strip():
        raise BadTextError("something follows the layer", end)
    return parsed


def _layer(text: str, start: int, depth: int) -> tuple[LayerText, int]:
    """The layer that begins at `start`, and where it ends."""
    if depth > _MAX_DEPTH:
        raise BadTextError(f"layers are nested more than {_MAX_DEPTH} deep", start)
    match = _NAME.match(text, start)
    if match is None:
        raise BadTextError("a layer starts with its name", start)
    name, at = match.group(), match.end()
    if at == len(text) or text[at] != "(":
        return LayerText(name, bare=True), at
    inside = at + 1
    child = _CHILD.match(text, inside)
    if child is not None:
        children: list[tuple[str, LayerText]] = []
        at = inside
        while child is not None:
            parsed, at = _layer(text, child.end(), depth + 1)
            if any(key == child["key"] for key, _ in children):
                raise BadTextError(f"child {child['key']} appears twice", child.start())
            children.append((child["key"], parsed))
            child = _CHILD.match(text, at)
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text) or text[at] != ")":
            raise BadTextError("a child layer or a closing parenthesis was expected", at)
        return LayerText(name, children=tuple(children)), at + 1
    end = _closing(text, inside)
    args, kwargs = _arguments(text, inside, end, slices=name == "__getitem__")
    return LayerText(name, args, kwargs), end + 1


def _closing(text: str, start: int) -> int:
    """Where the parenthesis opened before `start` closes; quotes are skipped."""
    depth, quote, at = 1, "", start
    while at < len(text):
        character = text[at]
        if quote:
            if character == "\\":
                raise BadTextError("a quoted word holds a backslash", at)
            if character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
            if depth > _MAX_DEPTH:
                raise BadTextError(f"parentheses are nested more than {_MAX_DEPTH} deep", at)
        elif character in ")]}":
            depth -= 1
            if depth == 0:
                return at
        at += 1
    raise BadTextError("a parenthesis is never closed", start - 1)


def _arguments(
    text: str, start: int, end: int, *, slices: bool
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if end - start > _MAX_ARGUMENTS:
        raise BadTextError(
            f"the arguments have {end - start} characters; at most {_MAX_ARGUMENTS} are read", start
        )
    source = text[start:end]
    if not source.isascii() or not source.isprintable():
        raise BadTextError("arguments are plain ASCII", start)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call = ast.parse(f"{_CALL}{source})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        offset = (getattr(error, "offset", None) or 1) - 1 - len(_CALL)
        position = start + min(max(offset, 0), end - start)
        raise BadTextError("this is not a list of arguments", position) from None
    # `)` and `(` in the source could end our own call and begin another.
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise BadTextError("this is not a list of arguments", start)

    def at(node: ast.AST) -> int:
        return start + getattr(node, "col_offset", len(_CALL)) - len(_CALL)

    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for node in call.args:
        if isinstance(node, ast.Name) and node.id == "inplace" and "inplace" not in kwargs:
            kwargs["inplace"] = True
        else:
            args.append(_literal(node, at, slices))
    for keyword in call.keywords:
        if keyword.arg is None:
            raise BadTextError("`**` is no argument", at(keyword))
        if keyword.arg in kwargs:
            raise BadTextError(f"{keyword.arg} is given twice", at(keyword))
        kwargs[keyword.arg] = _literal(keyword.value, at, slices)
    return tuple(args), kwargs


def _literal(node: ast.expr, at: Any, slices: bool) -> Any:
    """The value of a whitelisted literal; `at` gives a node's position in the text."""
    match node:
        case ast.Constant(value=None | bool()):
            return node.value
        case ast.Constant(value=int() | float() as number):
            return _bounded(number, at(node))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            if not isinstance(number, bool):
                return -_bounded(number, at(node))
        case ast.Constant(value=str(word)):
            if not _WORD.fullmatch(word):
                raise BadTextError("a quoted argument is one plain word", at(node))
            return word
        case ast.Constant(value=value) if value is Ellipsis and slices:
            return value
        case ast.Tuple() | ast.List():
            return tuple(_literal(item, at, slices) for item in node.elts)
        case ast.Call(func=ast.Name(id="slice"), args=[_, _, _], keywords=[]) if slices:
            return slice(*(_literal(item, at, False) for item in node.args))
    raise BadTextError("only numbers, None, True, False, words and tuples are arguments", at(node))


def _bounded(number: int | float, position: int) -> int | float:
    if not math.isfinite(number) or abs(number) > _MAX_INTEGER:
        raise BadTextError("a number is out of range", position)
    return number
