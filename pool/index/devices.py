"""Devices with the masks of their claimed units, found by name, by UUID and by node.

`pool.index.device_index` writes them.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

from api.units import part_of
from pool.layout import NO_UNITS, Layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from api.names import DeviceName, NodeName, UnitId
    from pool.index.claims import Claims
    from pool.model import DeviceFacts


@dataclass(slots=True)
class DeviceEntry:
    """A device and its claimed units, as bit masks by slot."""

    facts: "DeviceFacts"
    layout: Layout = NO_UNITS
    observed: int = 0
    assumed: int = 0
    confirmed: int = 0
    """The part of `assumed` whose pods the API server has stored."""
    is_duplicate: bool = False
    """Another device owns a UUID of it (`rank`): no unit of this one is allocated."""
    is_new: bool = False
    """It came into its pool a moment ago, and kubelet may not have its units yet: other devices go first."""
    is_withheld: bool = False
    """It is to leave its pool, which its object does not say yet."""
    is_usable: bool = field(init=False)
    """Whether units of the device may be allocated at all. Read for each device of a node at each decision: whoever
    changes what decides it calls `update_usable`."""

    def __post_init__(self) -> None:
        self.update_usable()

    def update_usable(self) -> None:
        facts = self.facts
        self.is_usable = not (
            facts.is_faulted
            or facts.is_draining
            or self.is_withheld
            or self.is_duplicate
            or self.layout.differs
        )

    @property
    def rank(self) -> "tuple[bool, str, DeviceName]":
        """Sort key of devices that claim one UUID: the least owns it.

        A device in a pool comes first: pods may have its units.
        """
        return (self.facts.pool is None, self.facts.created, self.facts.name)

    @property
    def is_draining(self) -> bool:
        """Whether the device leaves its pool: no new unit of it is allocated."""
        return self.is_withheld or self.facts.is_draining

    @property
    def taken(self) -> int:
        return self.observed | self.assumed

    @property
    def free(self) -> int:
        """Mask of units that may be allocated; 0 on a device that is not usable."""
        return self.layout.full & ~self.taken if self.is_usable else 0

    def of_profile(self, profile: str) -> "DeviceEntry":
        """Return the device as pods of one MIG profile see it: the units of other profiles are not theirs.

        To be read and not kept. A unit has the same slot in both, so that masks of one mean the same in the other.
        """
        layout = self.layout.of_profile(profile)
        return replace(
            self,
            layout=layout,
            observed=self.observed & layout.full,
            assumed=self.assumed & layout.full,
            confirmed=self.confirmed & layout.full,
        )

    def mask_of(self, claims: "Claims[Any]") -> int:
        """Recompute the mask of units that these claims have."""
        mask = 0
        for part in self.parts:
            for units in claims.units_on(part):
                mask |= self.layout.mask_of(units)
        return mask

    @property
    def parts(self) -> "Iterator[str]":
        """UUIDs under which pods may have units of this device: its own and its MIG instances'."""
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
        # UUID of a device or MIG instance -> devices, its owner first; two only while a device
        # moves between slots, or by a wrong inventory
        self._names_by_node: dict[NodeName, set[DeviceName]] = {}

    def __getitem__(self, name: "DeviceName") -> DeviceEntry:
        return self._by_name[name]

    def get(self, name: "DeviceName") -> DeviceEntry | None:
        return self._by_name.get(name)

    def named(self, names: "Iterable[DeviceName]") -> list[DeviceEntry]:
        return list(map(self._by_name.__getitem__, names))

    def all(self) -> "Iterable[DeviceEntry]":
        """Return all devices, to be read and not kept."""
        return self._by_name.values()

    def on_node(self, node: "NodeName") -> "AbstractSet[DeviceName]":
        """Return the devices of a node, whatever their pool."""
        return self._names_by_node.get(node, frozenset())

    def has_node(self, node: "NodeName") -> bool:
        return node in self._names_by_node

    def with_part(self, part: str) -> "tuple[DeviceName, ...]":
        """Return the devices that claim a UUID, their own or a MIG instance's; its owner first."""
        return self._names_by_part.get(part, ())

    def is_on(self, unit: "UnitId", node: "NodeName") -> bool:
        """Say whether the unit is of a device, or of a MIG instance, on the node."""
        names = self.with_part(part_of(unit))
        return any(self._by_name[name].facts.node == node for name in names)

    def owners(self, entry: DeviceEntry) -> "frozenset[DeviceName]":
        """Return the other devices that own a UUID which this one claims."""
        firsts = {self._names_by_part[part][0] for part in entry.parts}
        return frozenset(firsts - {entry.facts.name})

    def add(self, entry: DeviceEntry) -> list[DeviceEntry]:
        """Add a device; return those that become duplicates by it, or cease to be."""
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
        return self._update_duplicates(sharing)

    def remove(self, entry: DeviceEntry) -> list[DeviceEntry]:
        """Remove a device; return those that cease to be duplicates."""
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
        return self._update_duplicates(sharing)

    def _update_duplicates(self, names: "Iterable[DeviceName]") -> list[DeviceEntry]:
        """Recompute whether these are duplicates; return those that changed."""
        changed: list[DeviceEntry] = []
        for name in names:
            entry = self._by_name[name]
            is_duplicate = any(self._names_by_part[part][0] != name for part in entry.parts)
            if entry.is_duplicate is not is_duplicate:
                entry.is_duplicate = is_duplicate
                entry.update_usable()
                changed.append(entry)
        return changed
