"""Keys of what changed in the index since the last reading."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from api.names import DeviceName, NodeName, PoolName


@dataclass(frozen=True, slots=True)
class Changes:
    """Changed keys: a hint about what to look at, never a fact."""

    devices: "frozenset[DeviceName]"
    """Devices whose facts, units or holders changed, or that are gone."""
    pools: "frozenset[PoolName]"
    """Pools of which some unit, device or fact changed."""
    nodes: "frozenset[NodeName]"
    """Nodes on which a pool won or lost a device, or the node's object changed."""


@final
class ChangeLog:
    """Collects changes until they are taken."""

    def __init__(self) -> None:
        self.is_followed = False
        """Whether a reader takes the changes, as a leader does. Otherwise names of deleted objects are not kept."""
        self.devices: set[DeviceName] = set()
        self.pools: set[PoolName] = set()
        self.nodes: set[NodeName] = set()

    def touch_pool(self, name: "PoolName") -> None:
        """Record a change of a pool's object in something that the index does not keep."""
        self.pools.add(name)

    def touch_device(self, name: "DeviceName") -> None:
        """Record a change of a device's object in something that the index does not keep."""
        self.devices.add(name)

    def take(self) -> Changes:
        """Return the changes since the last call; from now on they are followed."""
        self.is_followed = True
        changes = Changes(frozenset(self.devices), frozenset(self.pools), frozenset(self.nodes))
        self.devices.clear()
        self.pools.clear()
        self.nodes.clear()
        return changes

    def take_nodes(self) -> "frozenset[NodeName]":
        """Return the changed nodes since the last call of this or of `take`."""
        nodes = frozenset(self.nodes)
        self.nodes.clear()
        return nodes

    def leave(self) -> None:
        """Drop all changes; they are not followed until the next `take`."""
        self.take()
        self.is_followed = False
