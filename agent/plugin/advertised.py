"""What a node's device plugins offer: resource by resource, the units that kubelet may give out."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from api.kubelet.deviceplugin import HEALTHY, UNHEALTHY
from api.kubelet.proto.deviceplugin_pb2 import Device, NUMANode, TopologyInfo
from api.names import UnitId
from api.units import part_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.nodefiles.poolconfig import PoolConfig


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What one count of the resource means."""

    id: str
    device: str
    """UUID of the card that it is, or is a part of."""
    is_healthy: bool = True
    """False where its card is faulted or leaves the pool: kubelet gives it to nobody any more."""
    numa_node: int | None = None

    @property
    def part(self) -> str:
        """Return the UUID of the card or MIG instance that it is, or is a slice of."""
        return part_of(UnitId(self.id))

    def to_message(self) -> Device:
        """Return the entry for ListAndWatch."""
        node = self.numa_node
        return Device(
            ID=self.id,
            health=HEALTHY if self.is_healthy else UNHEALTHY,
            topology=None if node is None else TopologyInfo(nodes=[NUMANode(ID=node)]),
        )


Units = tuple[Unit, ...]
"""Of one resource, by id."""


@final
@dataclass(frozen=True, slots=True)
class AdvertisedUnits:
    """What one pool offers on this node."""

    pool: str
    resource: str
    units: Units


def offer_of(config: "PoolConfig", node: str) -> AdvertisedUnits:
    """Return what the pool offers on a node; no units where it has no card there."""
    units = [
        Unit(
            id=unit,
            device=device.uuid,
            is_healthy=not device.is_withheld,
            numa_node=device.numa_node,
        )
        for device in config.nodes.get(node, ())
        for unit in config.units_of(device)
    ]
    return AdvertisedUnits(
        config.pool, config.resource, tuple(sorted(units, key=lambda unit: unit.id))
    )


def as_seen(units: Units, fault_of: "Callable[[Unit], str]") -> Units:
    """Return the units, unhealthy where the node knows better than whoever listed them."""
    return tuple(
        replace(unit, is_healthy=False) if unit.is_healthy and fault_of(unit) else unit
        for unit in units
    )
