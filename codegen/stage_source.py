"""The Python source of one stage's module.

Every piece of it is a literal written by this module, a name made by `codegen.names`, a dotted name
that a source checked against its whitelist, or the repr of a checked constant.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pipeplan.codegen.names import attribute_names, comment, value_names
from pipeplan.codegen.program import (
    Member,
    Operation,
    Place,
    Precision,
    Program,
    StateRef,
    StateTensor,
    TensorSpec,
    TorchConstant,
    TrainingFlag,
    ValueRef,
    leaves_in,
)
from pipeplan.codegen.stages import StageProgram

__all__ = ["describe", "stage_source", "stage_state"]

_WIDTH: Final = 96


class _Writer:
    """Names of one program, and what one stage is made of."""

    def __init__(self, program: Program, stage: StageProgram) -> None:
        self.program = program
        self.stage = stage
        self.values = value_names(
            [x.id for x in program.inputs] + [x.id for x in program.operations]
        )
        self.constants = {x.id: x.target for x in program.operations if x.form == "constant"}
        self.attributes = attribute_names([*program.members, *_state_keys(program.state)])
        self.members = _members_of(program, stage)
        self.state = _state_of(program, stage)

    def argument(self, value: Any) -> str:
        """Source of an argument."""
        match value:
            case ValueRef(id=name):
                if name in self.constants:
                    return self.constants[name]
                own = name in self.stage.copied
                return f"{self.values[name]}_copy" if own else self.values[name]
            case StateRef(name=name):
                return f"self.{self.attributes[_state_key(name)]}"
            case TrainingFlag():
                return "self.training"
            case TorchConstant(name=name):
                return name
            case Precision(name=name):
                return f"self.precision({name})"
            case Place():
                return "self.device"
            case None | bool() | int():
                return repr(value)
            case float():
                return repr(value) if math.isfinite(value) else f'float("{value!r}")'
            case str():
                return _quoted(value)
            case tuple():
                inner = ", ".join(map(self.argument, value))
                return f"({inner},)" if len(value) == 1 else f"({inner})"
            case list():
                return f"[{', '.join(map(self.argument, value))}]"
            case slice():
                parts = (value.start, value.stop, value.step)
                return f"slice({', '.join(map(self.argument, parts))})"
            case dict():
                pairs = (f"{_quoted(key)}: {self.argument(x)}" for key, x in value.items())
                return f"{{{', '.join(pairs)}}}"
        assert value is Ellipsis, f"no source for a {type(value).__name__}"
        return "..."

    def call(self, op: Operation) -> str:
        """Source of an operation's value."""
        args = [self.argument(x) for x in op.args]
        if op.id in self.stage.guarded:
            # The value overwritten is sent as it was.
            spared = {self.values[x] for x in op.mutates}
            args = [f"{x}.clone()" if x in spared else x for x in args]
        given = [*args, *(f"{key}={self.argument(x)}" for key, x in op.kwargs.items())]
        inner = ", ".join(given)
        match op.form:
            case "module":
                return f"self.{self.attributes[op.target]}({inner})"
            case "function":
                return f"{op.target}({inner})"
            case "method":
                return f"{_operand(args[0])}.{op.target}({', '.join(given[1:])})"
            case "infix":
                return f" {op.target} ".join(map(_term, args))
            case "prefix":
                return f"{op.target}{_operand(args[0])}"
            case "subscript":
                steps = "".join(f"[{_index(x, self)}]" for x in op.args[1:])
                return f"{_operand(args[0])}{steps}"
            case "property":
                return f"{_operand(args[0])}.{op.target}"
        assert op.form == "alias", op.form
        return args[0]


def _operand(text: str) -> str:
    """A text that stands for one operand: a negative number or an expression gets parentheses."""
    plain = text.replace("_", "").replace(".", "").isalnum()
    return text if plain and not text[0].isdigit() else f"({text})"


def _term(text: str) -> str:
    """A text as an operand of an operator, where plain numbers need no parentheses."""
    return text if text.replace(".", "", 1).isdigit() else _operand(text)


def _index(index: Any, writer: _Writer) -> str:
    if not isinstance(index, tuple):
        return _slice(index, writer)
    return ", ".join(_slice(x, writer) for x in index) + ("," if len(index) == 1 else "")


def _slice(index: Any, writer: _Writer) -> str:
    if not isinstance(index, slice):
        return writer.argument(index)
    start, stop, step = (
        "" if x is None else writer.argument(x) for x in (index.start, index.stop, index.step)
    )
    return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"


def _quoted(text: str) -> str:
    plain = ascii(text)
    return f'"{plain[1:-1]}"' if plain[0] == "'" and '"' not in plain else plain


def _state_key(name: str) -> str:
    return f"state {name}"


def _state_keys(names: Iterable[str]) -> list[str]:
    return [_state_key(name) for name in names]


def _members_of(program: Program, stage: StageProgram) -> list[Member]:
    """Modules that the stage calls, once each, in the order of their first call."""
    keys = dict.fromkeys(op.target for op in stage.operations if op.form == "module")
    return [program.members[key] for key in keys]


def _state_of(program: Program, stage: StageProgram) -> list[StateTensor]:
    names = dict.fromkeys(
        leaf.name
        for op in stage.operations
        for leaf in leaves_in((op.args, dict(op.kwargs)))
        if isinstance(leaf, StateRef)
    )
    return [program.state[name] for name in names]


def stage_state(program: Program, stage: StageProgram) -> dict[str, str]:
    """Own name of each module and tensor of a stage, to its name in the original's state dict."""
    writer = _Writer(program, stage)
    modules = {writer.attributes[x.key]: x.path for x in writer.members}
    tensors = {
        writer.attributes[_state_key(x.name)]: x.name
        for x in writer.state
        if x.kind != "constant" and x.persistent
    }
    return modules | tensors


def stage_source(
    program: Program, stage: StageProgram, *, stages: int, ranks: str, tensors: Mapping[str, str]
) -> str:
    """A module of Python that defines the class `Stage`.

    `ranks` says in words where it runs; `tensors` describes each value that is read or sent.
    """
    writer = _Writer(program, stage)
    lines = _header(writer, stages, ranks)
    lines += _constructor(writer)
    lines += _forward(writer, tensors)
    return "\n".join(lines) + "\n"


def _span(layers: tuple[str, ...]) -> str:
    first, last = comment(layers[0], 60), comment(layers[-1], 60)
    return f"layer {first}" if len(layers) == 1 else f"{len(layers)} layers, {first} to {last}"


def _header(writer: _Writer, stages: int, ranks: str) -> list[str]:
    stage, program = writer.stage, writer.program
    sources = [x for op in stage.operations for x in (op.target,)]
    uses_gnmt = any(
        x.constructor is not None and x.constructor[0].startswith("gnmt.") for x in writer.members
    )
    uses_functional = any(x.startswith("F.") for x in sources)
    uses_torch = (
        writer.state
        or any(x.startswith("torch.") for x in sources)
        or any(
            isinstance(leaf, TorchConstant | Precision)
            for op in stage.operations
            for leaf in leaves_in((op.args, dict(op.kwargs)))
        )
    )
    uses_nn = any(x.constructor is not None for x in writer.members) or writer.state
    lines = [f'"""Stage {stage.index} of {stages}: {_span(stage.layers)}; on {ranks}."""', ""]
    if uses_torch:
        lines.append("import torch")
    if uses_functional:
        lines.append("import torch.nn.functional as F")
    lines.append("from torch import Tensor, nn" if uses_nn else "from torch import Tensor")
    lines.append("")
    if uses_gnmt:
        lines.append("from pipeplan.runtime import gnmt")
    if _taken(writer):
        lines.append("from pipeplan.runtime.original import original_model")
    lines += ["from pipeplan.runtime.stage import StageModule", "", ""]
    lines.append("class Stage(StageModule):")
    lines.append(f'    """{_span(stage.layers)}."""')
    lines.append("")
    lines.append(f"    INDEX = {stage.index}")
    for title, ids in (
        ("RECEIVES", stage.receives),
        ("INPUTS", stage.inputs),
        ("SENDS", stage.sends),
        ("RETURNS", stage.returns),
    ):
        lines += _fill(f"    {title} = (", [_quoted(writer.values[x]) for x in ids], ")", tail=True)
    original = stage_state(program, stage)
    lines.append("    # Own name of each module and tensor: its name in the original's state dict.")
    pairs = [f"{_quoted(own)}: {_quoted(name)}" for own, name in original.items()]
    lines += _fill("    ORIGINAL = {", pairs, "}")
    return lines


def _taken(writer: _Writer) -> bool:
    """Whether something comes out of the model that the factory builds."""
    return any(x.constructor is None for x in writer.members) or any(
        x.kind == "constant" or not x.persistent for x in writer.state
    )


def _constructor(writer: _Writer) -> list[str]:
    if not writer.members and not writer.state:
        return []
    lines = ["", "    def __init__(self) -> None:", "        super().__init__()"]
    if _taken(writer):
        factory = _quoted(writer.program.factory)
        sizes = writer.argument(dict(writer.program.sizes))
        lines.append(f"        original = original_model({factory}, {sizes})")
    for member in writer.members:
        name = writer.attributes[member.key]
        if member.constructor is None:
            source = f"original.get_submodule({_quoted(member.path)})"
        else:
            source = _built(member, writer)
        lines += _statement(f"        self.{name} = {source}")
    for tensor in writer.state:
        lines += _statement(f"        {_registered(tensor, writer)}")
    lines += [f"        {x}" for x in _ties(writer)]
    return lines


def _built(member: Member, writer: _Writer) -> str:
    assert member.constructor is not None
    name, args, kwargs = member.constructor
    given = [writer.argument(x) for x in args]
    given += [_built(x, writer) for x in member.children]
    given += [f"{key}={writer.argument(x)}" for key, x in kwargs.items()]
    return f"{name}({', '.join(given)})"


def _registered(tensor: StateTensor, writer: _Writer) -> str:
    name = writer.attributes[_state_key(tensor.name)]
    if tensor.kind == "constant" or not tensor.persistent:
        owner, _, attribute = tensor.name.rpartition(".")
        source = f"getattr(original.get_submodule({_quoted(owner)}), {_quoted(attribute)})"
        return f"self.register_buffer({_quoted(name)}, {source}, persistent=False)"
    shape = writer.argument(tensor.spec.shape or ())
    empty = f"torch.zeros({shape}, dtype=torch.{tensor.spec.dtype or 'float32'})"
    if tensor.kind == "parameter":
        trained = "" if tensor.spec.requires_grad is not False else ", requires_grad=False"
        return f"self.{name} = nn.Parameter({empty}{trained})"
    return f"self.register_buffer({_quoted(name)}, {empty})"


def _own_places(writer: _Writer) -> dict[str, str]:
    """Own name of each tied parameter of the stage, by its names in the original."""
    places = {}
    prefixes = {f"{x.path}.": writer.attributes[x.key] for x in writer.members}
    for names in writer.program.tied.values():
        for name in names:
            for prefix, attribute in prefixes.items():
                if name.startswith(prefix):
                    places[name] = f"{attribute}.{name[len(prefix) :]}"
    for tensor in writer.state:
        places[tensor.name] = writer.attributes[_state_key(tensor.name)]
    return places


def _ties(writer: _Writer) -> list[str]:
    """Statements that make tied parameters of the stage one again."""
    places = _own_places(writer)
    lines: list[str] = []
    for names in writer.program.tied.values():
        here = list(dict.fromkeys(places[x] for x in names if x in places))
        lines += [f"self.tie({_quoted(other)}, {_quoted(here[0])})" for other in here[1:]]
    return lines


def _forward(writer: _Writer, tensors: Mapping[str, str]) -> list[str]:
    stage = writer.stage
    given = [*stage.receives, *stage.inputs]
    lines = [""]
    parameters = ["self", *(f"{writer.values[x]}: Tensor" for x in given)]
    lines += _fill("    def forward(", parameters, ") -> tuple[Tensor, ...]:")
    for title, ids in (("received", stage.receives), ("input", stage.inputs)):
        lines += [f"        # {title} {writer.values[x]}: {tensors[x]}" for x in ids]
    for value in given:
        if value in stage.copied:
            lines.append(f"        {writer.values[value]}_copy = {writer.values[value]}.clone()")
    for op in stage.operations:
        if op.form == "constant":
            continue
        if op.note:
            lines.append(f"        # {comment(op.note)}")
        if op.returns is None:
            lines += _statement(f"        {writer.values[op.id]} = {writer.call(op)}")
        else:
            lines += _statement(f"        {writer.call(op)}")
            lines.append(f"        {writer.values[op.id]} = {writer.argument(op.args[op.returns])}")
    sent = stage.returns if stage.returns else stage.sends
    title = "returned" if stage.returns else "sent"
    lines += [f"        # {title} {writer.values[x]}: {tensors[x]}" for x in sent]
    lines += _fill("        return (", [writer.values[x] for x in sent], ")", tail=True)
    return lines


def _fill(start: str, items: list[str], end: str, *, tail: bool = False) -> list[str]:
    """Items in brackets on one line, or on as many as they need; `tail` makes one item a tuple."""
    comma = "," if tail and len(items) == 1 else ""
    whole = f"{start}{', '.join(items)}{comma}{end}"
    if len(whole) <= _WIDTH:
        return [whole]
    indent = " " * (len(start) - len(start.lstrip()))
    lines = [start]
    row = ""
    for item in items:
        piece = f"{item},"
        if row and len(indent) + 4 + len(row) + 1 + len(piece) > _WIDTH:
            lines.append(f"{indent}    {row}")
            row = ""
        row = f"{row} {piece}" if row else piece
    return [*lines, f"{indent}    {row}", f"{indent}{end}"]


def _statement(line: str) -> list[str]:
    """A statement that ends in a call, broken at the commas of its arguments where it is long."""
    opening = _opening(line) if len(line) > _WIDTH and line.endswith(")") else 0
    # A comma before the closing bracket is harmless in a call alone.
    if not opening or not (line[opening - 1].isalnum() or line[opening - 1] == "_"):
        return [line]
    inner = line[opening + 1 : -1]
    return _fill(line[: opening + 1], inner.split(", "), line[-1])


def _opening(line: str) -> int:
    """Where the bracket that the last character closes was opened."""
    depth = 0
    for at in range(len(line) - 1, -1, -1):
        if line[at] in ")]}":
            depth += 1
        elif line[at] in "([{":
            depth -= 1
            if depth == 0:
                return at
    raise AssertionError("brackets do not match")


def describe(spec: TensorSpec | None) -> str:
    """What is known of a tensor, for a comment."""
    return "shape not recorded" if spec is None else comment(str(spec))
