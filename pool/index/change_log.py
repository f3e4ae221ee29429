"""What changed in the index since somebody last asked."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from api.names import DeviceName, NodeName, PoolName


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed since somebody last asked; a hint about what to look at, never a actual."""

    devices: "frozenset[DeviceName]"
    """Devices whose facts, units or holders changed, or that are gone."""
    pools: "frozenset[PoolName]"
    """Pools of which some unit, device or fact changed."""
    nodes: "frozenset[NodeName]"
    """Nodes on which a pool won or lost a device, or the node's object changed."""


@final
class ChangeLog:
    """Gathers changes until they are taken."""

    def __init__(self) -> None:
        self.is_followed = False
        """Whether somebody takes the changes, as leaders do. Otherwise names of what is gone are not kept."""
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
        """Return what was gathered since the last call; somebody follows from now on."""
        self.is_followed = True
        changes = Changes(frozenset(self.devices), frozenset(self.pools), frozenset(self.nodes))
        self.devices.clear()
        self.pools.clear()
        self.nodes.clear()
        return changes

    def leave(self) -> None:
        """Drop everything: nobody takes changes any more, until somebody does again."""
        self.take()
        self.is_followed = False
