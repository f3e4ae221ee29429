"""Quality of the devices that a pod is bound with, for logs and metrics."""

from typing import TYPE_CHECKING, Final

from api.units import part_of
from pool.placement.topology import TopologyQuality, quality_of, topology_of
from scheduler.outcome import PlacementQuality

if TYPE_CHECKING:
    from pool.index.figures import IndexFigures
    from pool.reservations.reservation import Reservation

_QUALITIES: Final = {
    TopologyQuality.ISLAND: PlacementQuality.ONE_ISLAND,
    TopologyQuality.NUMA_NODE: PlacementQuality.ONE_NUMA_NODE,
    TopologyQuality.SPLIT: PlacementQuality.SPLIT,
    TopologyQuality.UNKNOWN: PlacementQuality.UNKNOWN,
}


def placement_quality(reservation: "Reservation", index: "IndexFigures") -> PlacementQuality:
    """Return how the devices of a reservation with units are connected."""
    names = {
        name
        for unit in reservation.units
        for name in index.devices.with_part(part_of(unit))[:1]  # its owner
    }
    if len(names) == 1 or reservation.node is None:
        return PlacementQuality.SINGLE
    devices = [entry.facts for entry in index.devices_on(reservation.pool, reservation.node)]
    mask = sum(1 << position for position, item in enumerate(devices) if item.name in names)
    return _QUALITIES[quality_of(topology_of(devices), mask)]
