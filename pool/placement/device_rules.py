"""What decides which sets of a node's devices a pod may have, apart from the units that are free.

Positions are those of the pool's devices on the node, in the order of their names.
"""

import functools
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from api.kinds.gpunodeinventory import TopologyManagerPolicy
from api.kinds.gpupool import DeviceTopology, SlicePlacement, Strategy
from pool.model import KubeletTopology
from pool.placement.topology import Topology, topology_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pool.model import DeviceFacts, PoolFacts

Counts = tuple[int, ...]
"""Units by position."""


class DeviceRules(msgspec.Struct, frozen=True, cache_hash=True):
    """Devices of one pool on one node, and the rules for sets of them; equal nodes share one object."""

    topology: Topology
    capacity: Counts
    """Units of each device, healthy or not, taken or not."""
    device_topology: DeviceTopology
    strategy: Strategy
    slices: int = 0
    """With slicePlacement SameDevice the slices of a device; otherwise 0."""
    kubelet: KubeletTopology | None = None
    """None where kubelet has no policy, or it is unknown."""

    @property
    def is_required_aligned(self) -> bool:
        return self.device_topology is DeviceTopology.REQUIRED

    @property
    def is_constrained(self) -> bool:
        """Whether a pod may not fit though there are enough free units."""
        return bool(self.slices) or self.is_required_aligned or self.kubelet is not None

    @property
    def is_kubelets_choice(self) -> bool:
        """Whether kubelet chooses the NUMA nodes."""
        return self.kubelet is not None and self.kubelet.knows_numa_nodes

    def without_kubelet(self) -> "DeviceRules":
        """Return the value for a kubelet without a policy."""
        return self if self.kubelet is None else structs.replace(self, kubelet=None)

    def without_choice_of_kubelet(self) -> "DeviceRules":
        """Return the value for a kubelet of the same policy that gives what pods are bound with."""
        if self.kubelet is None or not self.kubelet.knows_numa_nodes:
            return self
        kubelet = structs.replace(self.kubelet, knows_numa_nodes=False)
        return structs.replace(self, kubelet=kubelet)

    @property
    def prefers_aligned(self) -> bool:
        """Whether nodes differ in the connections of the devices that a pod would get."""
        return self.device_topology is DeviceTopology.PREFERRED and self.topology.is_known

    @property
    def has_preference(self) -> bool:
        """Whether some sets of devices are better than others by their topology."""
        return self.device_topology is not DeviceTopology.NONE and self.topology.is_known


def device_rules(
    pool: "PoolFacts",
    devices: "Sequence[DeviceFacts]",
    capacity: Counts,
    *,
    kubelet: KubeletTopology | None = None,
) -> DeviceRules:
    """Return the value for a pool's devices on a node, given by name."""
    if kubelet is not None and kubelet.policy is TopologyManagerPolicy.NONE:
        kubelet = None
    is_same_device = pool.slice_placement is SlicePlacement.SAME_DEVICE
    slices = pool.slices_per_device if is_same_device else 0
    return _intern(
        DeviceRules(
            topology_of(devices), capacity, pool.device_topology, pool.strategy, slices, kubelet
        )
    )


@functools.lru_cache(maxsize=1024)
def _intern(found: DeviceRules) -> DeviceRules:
    return found
