"""The cards: each with who holds its units, found by name, by UUID and by node.

Kept by `pool.index.device_index`, which knows pools, nodes and claims.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from api.units import part_of
from pool.units import NO_UNITS, Layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from api.names import DeviceName, NodeName, UnitId
    from pool.index.claims import Claims
    from pool.model import DeviceFacts


@dataclass(slots=True)
class DeviceEntry:
    """A device and who holds its units, as bit masks by slot."""

    facts: "DeviceFacts"
    layout: Layout = NO_UNITS
    observed: int = 0
    assumed: int = 0
    confirmed: int = 0
    """The part of `assumed` that reservations of pods have which the API server is known to have stored."""
    is_duplicate: bool = False
    """Another device had a UUID of it first (`rank`): this one is not given out."""
    is_new: bool = False
    """It came into its pool a moment ago, and kubelet may not have its units yet: others are given out first."""
    is_withheld: bool = False
    """It is to leave its pool: known to us before its object says so."""

    @property
    def rank(self) -> "tuple[bool, str, DeviceName]":
        """Return what orders devices that claim one UUID: the least has it.

        One that is in a pool comes first: pods may have its units.
        """
        return (self.facts.pool is None, self.facts.created, self.facts.name)

    @property
    def is_usable(self) -> bool:
        """Say whether units of the card may be given out at all."""
        return not (self.facts.is_faulted or self.is_draining or self.is_duplicate)

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
        # UUID of a card or MIG instance -> devices, the one that has it first; two only while a card
        # moves between slots, or by a wrong inventory
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
        """Return the devices that claim a UUID, their own or a MIG instance's: first the one that has it."""
        return self._names_by_part.get(part, ())

    def of_unit(self, unit: "UnitId") -> DeviceEntry | None:
        """Return the device that a unit belongs to: the one that has it, should two claim it."""
        names = self._names_by_part.get(part_of(unit))
        return self._by_name[names[0]] if names else None

    def is_on(self, unit: "UnitId", node: "NodeName") -> bool:
        """Say whether the unit is of a device, or of a MIG instance, on the node."""
        names = self.with_part(part_of(unit))
        return any(self._by_name[name].facts.node == node for name in names)

    def owners(self, entry: DeviceEntry) -> "frozenset[DeviceName]":
        """Return the other devices that own a UUID which this one claims."""
        firsts = {self._names_by_part[part][0] for part in entry.parts}
        return frozenset(firsts - {entry.facts.name})

    def add(self, entry: DeviceEntry) -> list[DeviceEntry]:
        """Take in a device; return those that this makes duplicates, or no duplicates any more."""
        facts = entry.facts
        self._by_name[facts.name] = entry
        sharing: set[DeviceName] = set()
        for part in set(entry.parts):
            names = (*self._names_by_part.get(part, ()), facts.name)
            if len(names) > 1:
                names = tuple(sorted(names, key=lambda name: self._by_name[name].rank))
                sharing.update(names)
            self._names_by_part[part] = names
        self._names_by_node.setdefault(facts.node, set()).add(facts.name)
        return self._judge(sharing)

    def remove(self, entry: DeviceEntry) -> list[DeviceEntry]:
        """Forget a device; return those that are no duplicates any more."""
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
        """Decide anew whether another device has a UUID of these."""
        changed: list[DeviceEntry] = []
        for name in names:
            entry = self._by_name[name]
            is_duplicate = any(self._names_by_part[part][0] != name for part in entry.parts)
            if entry.is_duplicate is not is_duplicate:
                entry.is_duplicate = is_duplicate
                changed.append(entry)
        return changed
