"""The units that a node's device plugins advertise to kubelet, by resource."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from api.kinds.gpupool import SlicePlacement
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
    """One count of the resource: a device, a MIG instance or a slice."""

    id: str
    device: str
    """UUID of the device that it is, or is a part of."""
    is_healthy: bool = True
    """False where its device is faulted or leaves the pool: kubelet does not allocate it any more."""
    numa_node: int | None = None
    is_numa_node_reported: bool = False
    """Whether kubelet is told (`agent.plugin.numa_hints`)."""

    @property
    def part(self) -> str:
        """Return the UUID of the device or MIG instance that it is, or is a slice of."""
        return part_of(UnitId(self.id))

    def to_message(self) -> Device:
        """Return the entry for ListAndWatch."""
        node = self.numa_node if self.is_numa_node_reported else None
        return Device(
            ID=self.id,
            health=HEALTHY if self.is_healthy else UNHEALTHY,
            topology=None if node is None else TopologyInfo(nodes=[NUMANode(ID=node)]),
        )


_PLACEMENTS: Final = {placement.value: placement for placement in SlicePlacement}
Units = tuple[Unit, ...]
"""Units of one resource, by id."""


@final
@dataclass(frozen=True, slots=True)
class AdvertisedUnits:
    """The units of one resource of a pool on this node."""

    pool: str
    resource: str
    units: Units
    slice_placement: SlicePlacement = SlicePlacement.DISTINCT_DEVICES


def advertised_units(config: "PoolConfig", node: str) -> list[AdvertisedUnits]:
    """Return the units of the pool on a node by resource; none of its resource where it has no device there."""
    units: dict[str, list[Unit]] = {}
    for device in config.nodes.get(node, ()):
        for resource, ids in config.units_by_resource(device).items():
            units.setdefault(resource, []).extend(
                Unit(
                    id=unit,
                    device=device.uuid,
                    is_healthy=not device.is_withheld,
                    numa_node=device.numa_node,
                )
                for unit in ids
            )
    return [
        AdvertisedUnits(
            config.pool,
            resource,
            tuple(sorted(found, key=lambda unit: unit.id)),
            _PLACEMENTS.get(config.slice_placement, SlicePlacement.DISTINCT_DEVICES),
        )
        for resource, found in (units or {config.resource: []}).items()
    ]


def with_numa_nodes(units: Units) -> Units:
    """Return the units so that kubelet is told their NUMA nodes."""
    return tuple(replace(unit, is_numa_node_reported=True) for unit in units)


def with_health(units: Units, fault_of: "Callable[[Unit], str]") -> Units:
    """Return the units, unhealthy where the node reports a fault of the device."""
    return tuple(
        replace(unit, is_healthy=False) if unit.is_healthy and fault_of(unit) else unit
        for unit in units
    )
