"""The cards: each with who holds its units, found by name, by UUID and by node.

Kept by `pool.index`, which knows pools, nodes and claims.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from pool.units import NO_UNITS, Layout, part_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from api.names import DeviceName, NodeName, UnitId
    from pool.claims import Claims
    from pool.model import DeviceFacts


@dataclass(slots=True)
class DeviceEntry:
    """A device and who holds its units, as bit masks by slot."""

    facts: "DeviceFacts"
    layout: Layout = NO_UNITS
    observed: int = 0
    assumed: int = 0
    is_ambiguous: bool = False
    """Another device claims the same UUID: one of the two is not where it says, so neither is given out."""
    is_withheld: bool = False
    """It is to leave its pool: known to us before its object says so."""

    @property
    def is_usable(self) -> bool:
        """Say whether units of the card may be given out at all."""
        return not (self.facts.is_faulted or self.is_draining or self.is_ambiguous)

    @property
    def is_draining(self) -> bool:
        """Say whether the card leaves its pool: nothing new is placed on it."""
        return self.is_withheld or self.facts.is_draining

    @property
    def taken(self) -> int:
        """Return the mask of units that anybody holds."""
        return self.observed | self.assumed

    @property
    def free(self) -> int:
        """Return the mask of units that may be given out; 0 on a card that is not usable."""
        return self.layout.full & ~self.taken if self.is_usable else 0

    def mask_of(self, claims: "Claims[Any]") -> int:
        """Return the units of the card that somebody claims, recomputed from all claims on it."""
        mask = 0
        bit_of = self.layout.mask_of
        for part in self.parts:
            for units in claims.units_on(part):
                for unit in units:
                    mask |= bit_of(unit)
        return mask

    @property
    def parts(self) -> "Iterator[str]":
        """Yield the UUIDs under which pods may hold something of this card."""
        if self.facts.uuid:
            yield self.facts.uuid
        for _, uuid in self.facts.mig_instances:
            if uuid:
                yield uuid


@final
class Devices:
    """Devices by name, and their names by UUID and by node."""

    def __init__(self) -> None:
        self._by_name: dict[DeviceName, DeviceEntry] = {}
        self._names_by_part: dict[str, tuple[DeviceName, ...]] = {}
        # UUID of a card or MIG instance -> devices; two only while a card moves between slots, or by
        # a wrong inventory
        self._names_by_node: dict[NodeName, set[DeviceName]] = {}

    def __getitem__(self, name: "DeviceName") -> DeviceEntry:
        return self._by_name[name]

    def get(self, name: "DeviceName") -> DeviceEntry | None:
        """Return a device."""
        return self._by_name.get(name)

    def all(self) -> "Iterable[DeviceEntry]":
        """Return all devices. Read them, don't keep them."""
        return self._by_name.values()

    def on_node(self, node: "NodeName") -> "AbstractSet[DeviceName]":
        """Return the devices of a node, whatever their pool."""
        return self._names_by_node.get(node, frozenset())

    def has_node(self, node: "NodeName") -> bool:
        """Say whether a device is there."""
        return node in self._names_by_node

    def with_part(self, part: str) -> "tuple[DeviceName, ...]":
        """Return the devices that claim a UUID, their own or a MIG instance's."""
        return self._names_by_part.get(part, ())

    def of_unit(self, unit: "UnitId") -> DeviceEntry | None:
        """Return the device that a unit belongs to: the first by name, should two claim it."""
        names = self._names_by_part.get(part_of(unit))
        return self._by_name[min(names)] if names else None

    def add(self, entry: DeviceEntry) -> list[DeviceEntry]:
        """Take in a device; return those whose ambiguity this changes."""
        facts = entry.facts
        self._by_name[facts.name] = entry
        sharing: set[DeviceName] = set()
        for part in set(entry.parts):
            names = (*self._names_by_part.get(part, ()), facts.name)
            self._names_by_part[part] = names
            if len(names) > 1:
                sharing.update(names)
        self._names_by_node.setdefault(facts.node, set()).add(facts.name)
        return self._judge(sharing)

    def remove(self, entry: DeviceEntry) -> list[DeviceEntry]:
        """Forget a device; return the others whose ambiguity this changes."""
        facts = entry.facts
        del self._by_name[facts.name]
        sharing: set[DeviceName] = set()
        for part in set(entry.parts):
            names = tuple(name for name in self._names_by_part[part] if name != facts.name)
            if names:
                self._names_by_part[part] = names
                sharing.update(names)
            else:
                del self._names_by_part[part]
        siblings = self._names_by_node[facts.node]
        siblings.remove(facts.name)
        if not siblings:
            del self._names_by_node[facts.node]
        return self._judge(sharing)

    def _judge(self, names: "Iterable[DeviceName]") -> list[DeviceEntry]:
        """Decide anew whether these devices share a UUID with another."""
        changed: list[DeviceEntry] = []
        for name in names:
            entry = self._by_name[name]
            is_ambiguous = any(len(self._names_by_part[part]) > 1 for part in entry.parts)
            if entry.is_ambiguous is not is_ambiguous:
                entry.is_ambiguous = is_ambiguous
                changed.append(entry)
        return changed
