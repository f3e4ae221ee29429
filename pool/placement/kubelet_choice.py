"""The devices that kubelet gives where it knows their NUMA nodes (`pool.placement.kubelet_hints`).

kubelet chooses the NUMA nodes of one container after the other and never looks ahead; among the devices of these NUMA
nodes it takes those that the pod was bound with. A pod is therefore bound with the best of exactly these devices, and
a node fits where kubelet finds a place for every container.
"""

from itertools import combinations
from typing import TYPE_CHECKING, Final

from api.kinds.gpunodeinventory import TopologyManagerScope
from api.kinds.gpupool import DeviceTopology
from pool.demand import reused_units
from pool.errors import InvariantViolatedError
from pool.model import ContainerRole
from pool.placement.compliance import units_by_numa_node
from pool.placement.distinct_devices import take_distinct
from pool.placement.kubelet_hints import Unaligned, next_numa_nodes
from pool.placement.same_device import Unservable, groups_of, plan_same_device
from pool.placement.topology import is_aligned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pool.placement.device_rules import Counts, DeviceRules

    Containers = Sequence[tuple[ContainerRole, int]]
    Choice = list[list[int]]
    """Positions of each container's new units."""

MOST_NUMA_NODES: Final = 8
"""Most NUMA nodes of which sets are tried: 255 of them."""


def choose_as_kubelet(
    devices: "DeviceRules",
    free: "Counts",
    containers: "Containers",
    *,
    preference: "Sequence[int]",
) -> "Choice | None":
    """Choose new units for every container; None where kubelet or the pool's rules find no place for one."""
    if devices.slices and any(role is ContainerRole.INIT for role, _ in containers):
        return _with_handed_on_units(devices, free, containers, preference=preference)
    admission = _Admission(devices, free, containers)
    choice: Choice = []
    for at, (role, units) in enumerate(containers):
        allowed = admission.allowed(at)
        if allowed is None:
            return None
        if devices.slices:
            left = [item if allowed >> on & 1 else 0 for on, item in enumerate(admission.left)]
            planned = choose_on_same_devices(devices, left, [(role, units)], preference=preference)
            fresh = None if planned is None else planned[0]
        else:
            kept = admission.kept(at)
            fresh = take_distinct(
                devices,
                list(admission.left),
                units - len(kept),
                preference=preference,
                allowed=allowed,
                beside=kept,
            )
        if fresh is None:
            return None
        choice.append(fresh)
        admission.take(at, fresh)
    mask = sum({1 << at for fresh in choice for at in fresh})
    return (
        None if devices.is_required_aligned and not is_aligned(devices.topology, mask) else choice
    )


class _Admission:
    """One pod, container by container."""

    def __init__(self, devices: "DeviceRules", free: "Counts", containers: "Containers") -> None:
        if devices.kubelet is None:
            raise InvariantViolatedError("kubelet has no policy, and chooses no NUMA nodes")
        self.left = list(free)
        self._kubelet = devices.kubelet
        self._devices = devices
        self._containers = containers
        self._reused = list(reused_units(containers))
        self._reusable: list[int] = []
        # Positions of the units of init containers.
        self._of_pod: int | None = None
        # The mask for all containers, with scope pod.

    def allowed(self, at: int) -> int | None:
        """Return the mask of the devices from which kubelet takes the container's; None where it rejects the pod."""
        units = self._containers[at][1]
        if self._kubelet.scope is TopologyManagerScope.POD:
            if self._of_pod is not None:
                return self._of_pod
            units = sum(units for _, units in self._containers) - sum(self._reused)
        numa = self._devices.topology.numa
        reusable = [self._reusable.count(position) for position in range(len(numa))]
        nodes = next_numa_nodes(
            self._kubelet,
            units_by_numa_node(self._devices.capacity, numa),
            units_by_numa_node(self.left, numa),
            units=units,
            reusable=units_by_numa_node(reusable, numa),
        )
        if isinstance(nodes, Unaligned):
            return None
        if nodes is None:
            self._of_pod = (1 << len(numa)) - 1
        else:
            self._of_pod = sum(1 << on for on, node in enumerate(numa) if node in nodes)
        return self._of_pod

    def kept(self, at: int) -> list[int]:
        """Return the positions of the units that kubelet hands on to the container."""
        return self._reusable[: self._reused[at]]

    def take(self, at: int, fresh: "Sequence[int]") -> None:
        """Give the container these new units."""
        for position in fresh:
            self.left[position] -= 1
        if self._containers[at][0] is ContainerRole.INIT:
            self._reusable += fresh
        else:
            self._reusable = self._reusable[self._reused[at] :]


def _with_handed_on_units(
    devices: "DeviceRules",
    free: "Counts",
    containers: "Containers",
    *,
    preference: "Sequence[int]",
) -> "Choice | None":
    """Choose for a pod with init containers, whose units and those of later containers are on one device."""
    for region in _numa_regions(devices):
        left = [item if region >> at & 1 else 0 for at, item in enumerate(free)]
        choice = choose_on_same_devices(devices, left, containers, preference=preference)
        if choice is not None and _is_kubelets(choice, _Admission(devices, free, containers)):
            return choice
    return None


def _is_kubelets(choice: "Choice", admission: _Admission) -> bool:
    for at, fresh in enumerate(choice):
        allowed = admission.allowed(at)
        if allowed is None or any(not allowed >> position & 1 for position in fresh):
            return False
        admission.take(at, fresh)
    return True


def _numa_regions(devices: "DeviceRules") -> "Iterator[int]":
    """Yield the devices of NUMA nodes, fewest first, then all."""
    nodes = devices.topology.numa_nodes[:MOST_NUMA_NODES]
    for count in range(1, len(nodes) + 1):
        yield from map(sum, combinations(nodes, count))
    yield (1 << len(devices.capacity)) - 1


def choose_on_same_devices(
    devices: "DeviceRules",
    free: "Sequence[int]",
    containers: "Containers",
    *,
    preference: "Sequence[int]",
) -> "Choice | None":
    """Choose one device for each container's units, or whole devices, whatever kubelet's policy is."""
    groups = groups_of(tuple(containers), devices.slices)
    if isinstance(groups, Unservable):
        return None
    taken = plan_same_device(
        groups,
        free,
        strategy=devices.strategy,
        preference=preference,
        topology=None if devices.device_topology is DeviceTopology.NONE else devices.topology,
        aligned_only=devices.is_required_aligned,
    )
    if taken is None:
        return None
    return [[at for at, count in item for _ in range(count)] for item in taken]
