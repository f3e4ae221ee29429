"""Units by device on one node, for pods that need more than a number of free units, and why a pod does not fit there.

Only nodes on which sets of devices are constrained have `UnitCounts`: by the pool's slicePlacement or deviceTopology, or
by the policy of the node's kubelet.
"""

import functools
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from api.kinds.gpupool import DeviceTopology
from pool.placement.aligned_sets import aligned_regions
from pool.placement.device_choice import fits
from pool.placement.topology import positions
from pool.refusal import NodeReason

if TYPE_CHECKING:
    from pool.placement.device_rules import Counts, DeviceRules
    from pool.placement.unit_request import UnitRequest


class UnitCounts(msgspec.Struct, frozen=True, gc=False):
    """Numbers of units of each device, by its position."""

    devices: "DeviceRules"
    free: "Counts"
    """Units without a claim."""
    available: "Counts"
    """Units that a pod that exists may get: also those of unconfirmed reservations."""
    healthy: "Counts"
    """Units of healthy devices, taken or not."""


class UnitShortage(msgspec.Struct, frozen=True):
    """Why enough free units do not do."""

    reason: NodeReason
    largest: int
    """The most units that one device, or one aligned set of devices, has: free ones, or healthy ones where no
    eviction helps.
    """
    policy: str = ""
    """Topology policy of kubelet, where it decides."""


def fault_of(unit_counts: UnitCounts, request: "UnitRequest") -> UnitShortage | None:
    """Return why a pod that exists cannot be placed there, or None when it can."""
    if fits(unit_counts.devices, unit_counts.available, request):
        return None
    return _fault(unit_counts, request)


@functools.lru_cache(maxsize=1 << 12)
def _fault(unit_counts: UnitCounts, request: "UnitRequest") -> UnitShortage:
    devices, available, healthy = unit_counts.devices, unit_counts.available, unit_counts.healthy
    is_resolvable = fits(devices, healthy, request)
    units = available if is_resolvable else healthy
    if is_resolvable and fits(devices.without_choice_of_kubelet(), units, request):
        return UnitShortage(NodeReason.KUBELET_CHOOSES, most_aligned(devices, units))
    if devices.kubelet is not None and fits(devices.without_kubelet(), units, request):
        return UnitShortage(
            NodeReason.KUBELET_WOULD_REJECT if is_resolvable else NodeReason.KUBELET_REJECTS,
            most_aligned(devices, units),
            devices.kubelet.policy.value,
        )
    if devices.slices and not fits(
        structs.replace(devices, kubelet=None, device_topology=DeviceTopology.NONE), units, request
    ):
        return UnitShortage(
            NodeReason.NO_DEVICE_WITH_CAPACITY if is_resolvable else NodeReason.TOO_FEW_DEVICES,
            max(units, default=0),
        )
    return UnitShortage(
        NodeReason.NOT_ALIGNED if is_resolvable else NodeReason.CANNOT_ALIGN,
        most_aligned(devices, units),
    )


def most_aligned(devices: "DeviceRules", units: "Counts") -> int:
    """Return the most of these units that are on one NUMA node, in one island, or on one device."""
    mask = sum(1 << at for at, count in enumerate(units) if count)
    regions = aligned_regions(devices.topology, mask)
    return max(
        (sum(units[at] for at in positions(region)) for region in regions),
        default=0,
    ) or max(units, default=0)
