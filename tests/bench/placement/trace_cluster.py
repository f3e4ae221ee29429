"""The cluster of a trace: pools, nodes with free devices, and the workload with its target."""

from typing import TYPE_CHECKING

import msgspec

from api.kinds.gpupool import SlicePlacement
from pool.placement.simulation.model import PoolSize, SimulatedPod

if TYPE_CHECKING:
    from pool.placement.fragmentation.target_workload import TargetWorkload


class SimulatedPool(msgspec.Struct, frozen=True):
    """A pool: how many units a device has, and how the units of one pod may lie."""

    name: str
    units_per_device: int = 1
    """1: whole devices. Time slices or MIG instances otherwise."""
    placement: SlicePlacement = SlicePlacement.SAME_DEVICE
    """SameDevice: up to `units_per_device` units lie on one device, more must be whole free devices (a pool of
    whole devices is of this kind). DistinctDevices: any units of the node will do (time slices, MIG).
    """


class SimulatedDevice(msgspec.Struct, frozen=True):
    """A device of a node."""

    pool: str
    """Name of its pool."""
    capacity: int = 1
    """Units; at most the pool's `units_per_device`."""
    free: int = 1
    """Units that no pod has at the start; what others have never ends."""


class SimulatedNode(msgspec.Struct, frozen=True):
    """A node at the start."""

    name: str
    devices: tuple[SimulatedDevice, ...] = ()
    """By position; the devices of several pools may be mixed."""
    cpu_milli: int | None = None
    """Free processor time; None: unknown, and never the limit."""
    memory_mib: int | None = None
    """Free memory; None: unknown, and never the limit."""
    pods: int | None = None
    """How many more pods it takes; None: any number."""
    model: str = ""
    """Device model, or any name of a class of nodes that pods may demand (`SimulatedPod.models`)."""


class Cluster(msgspec.Struct, frozen=True):
    """Nodes and the pools of their devices."""

    pools: tuple[SimulatedPool, ...]
    nodes: tuple[SimulatedNode, ...]
    """In the order that decides among equally good nodes: the first wins."""

    def sizes(self) -> "list[PoolSize]":
        """Return the size of each pool."""
        return [self._size(pool) for pool in self.pools]

    def _size(self, pool: SimulatedPool) -> "PoolSize":
        by_node = [
            [device for device in node.devices if device.pool == pool.name] for node in self.nodes
        ]
        units = [sum(device.capacity for device in devices) for devices in by_node]
        devices = [device for item in by_node for device in item]
        return PoolSize(
            name=pool.name,
            units_per_device=pool.units_per_device,
            devices=len(devices),
            units=sum(units),
            largest_node=max(units, default=0),
            taken_devices=sum(1 - item.free / item.capacity for item in devices if item.capacity),
        )


class Workload(msgspec.Struct, frozen=True):
    """Pods in the order of their arrival."""

    pods: tuple[SimulatedPod, ...]
    """Sorted by `arrival_s`; pods that arrive together are placed in this order."""
    targets: "dict[str, TargetWorkload]" = {}
    """By pool: the demand by which fragmentation is measured and LeastFragmentation decides; a pool that is not
    in it is measured by the pods of this workload.
    """
