"""Which captured nodes must share a device because of memory or weights, not of data flow alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeplan.models.capture.graph import CapturedNode

__all__ = ["Group", "Memory", "Use", "groups_of"]

Group = tuple[tuple[str, ...], str]


@dataclass(frozen=True, slots=True)
class Use:
    """A node reads a memory by some names; it may overwrite it, and may give it new names."""

    node: str
    through: tuple[str, ...]
    writes: bool
    names: tuple[str, ...]


@dataclass
class Memory:
    """One tensor's memory: the names it had first, and its uses in the order of the run."""

    names: tuple[str, ...]
    uses: list[Use] = field(default_factory=list)

    def order_matters(self) -> bool:
        """Whether a reader, in another stage than the one that overwrites, would see other values.

        A chain such as convolution, ReLU in place, view, linear needs no care: each reads what the
        one before it left. A reader before an overwrite, or one through an older view, does.
        """
        if not any(use.writes for use in self.uses):
            return False
        fresh = set(self.names)
        idle = True
        for use in self.uses:
            if not fresh.issuperset(use.through) or (use.writes and not idle):
                return True
            fresh = set(use.names) if use.writes else fresh.union(use.names)
            idle = use.writes
        return False


def groups_of(nodes: Sequence[CapturedNode], memories: Sequence[Memory]) -> tuple[Group, ...]:
    """Tuples with their items, memory overwritten under a reader, tied weights, and constants."""
    groups: list[Group] = []
    items: dict[str, list[str]] = {}
    owners: dict[str, list[str]] = {}
    for node in nodes:
        if node.kind == "item":
            items.setdefault(node.args[0].name, []).append(node.id)
        for name in node.parameters:
            owners.setdefault(name, []).append(node.id)
    groups += [((producer, *ids), "a tuple and its items") for producer, ids in items.items()]
    for memory in memories:
        if memory.order_matters():
            users = tuple(dict.fromkeys(use.node for use in memory.uses))
            groups.append((users, "memory overwritten in place"))
    for name, users_of in owners.items():
        users = tuple(dict.fromkeys(users_of))
        if len(users) > 1:
            groups.append((users, f"tied weights {name}"))
    constants = {node.id for node in nodes if node.is_constant}
    readers: dict[str, list[str]] = {}
    for node in nodes:
        for ref in node.refs:
            if ref.kind == "node" and ref.name in constants:
                readers.setdefault(ref.name, []).append(node.id)
    groups += [
        ((constant, *ids), "constant with its consumer")
        for constant, ids in readers.items()
        if len(ids) == 1
    ]
    return tuple(groups)
