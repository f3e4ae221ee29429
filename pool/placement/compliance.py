"""Whether units that were chosen comply with the rules for sets of devices (`pool.placement.device_rules`)."""

from collections import Counter
from typing import TYPE_CHECKING

from api.kinds.gpunodeinventory import TopologyManagerScope
from pool.demand import reused_units
from pool.model import ContainerRole
from pool.placement.kubelet_hints import most_numa_nodes
from pool.placement.topology import is_aligned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pool.placement.device_rules import DeviceRules

    Containers = Sequence[tuple[ContainerRole, int]]
    """Roles and units in kubelet's order."""


def complies(
    devices: "DeviceRules", containers: "Containers", sets: "Sequence[Sequence[int]]"
) -> bool:
    """Say whether units chosen before comply with the rules as they are now.

    `sets` are the positions of each container's units, one for each unit.
    """
    if devices.slices and not all(_is_on_same_device(devices, set_) for set_ in sets):
        return False
    if devices.is_required_aligned:
        mask = sum(1 << at for at in {at for set_ in sets for at in set_})
        if not is_aligned(devices.topology, mask):
            return False
    return kubelet_admits(devices, containers, sets)


def _is_on_same_device(devices: "DeviceRules", positions: "Sequence[int]") -> bool:
    """Say whether a container's units are on one device, or are whole devices."""
    used = len(set(positions))
    return used <= 1 or used * devices.slices == len(positions)


def kubelet_admits(
    devices: "DeviceRules", containers: "Containers", sets: "Sequence[Sequence[int]]"
) -> bool:
    """Say whether each container's devices, or with scope pod the pod's, are on as few NUMA nodes as kubelet demands."""
    kubelet = devices.kubelet
    if kubelet is None or not devices.topology.numa_nodes:
        return True
    numa = devices.topology.numa
    capacity = units_by_numa_node(devices.capacity, numa)
    if kubelet.scope is TopologyManagerScope.POD:
        shared = sum(reused_units(containers))
        asked = [(sum(units for _, units in containers) - shared, set().union(*sets))]
    else:
        asked = [(units, set(item)) for (_, units), item in zip(containers, sets, strict=True)]
    for units, item in asked:
        most = most_numa_nodes(kubelet.policy, capacity, units)
        nodes = {numa[at] for at in item}
        if most is not None and (None in nodes or len(nodes) > most):
            return False
    return True


def with_reused(
    containers: "Containers", choice: "Sequence[Sequence[int]]"
) -> "Iterator[list[int]]":
    """Yield the devices of each container's units, with those that kubelet hands on to it."""
    reusable: list[int] = []
    for (role, units), fresh in zip(containers, choice, strict=True):
        kept = reusable[: units - len(fresh)]
        yield [*kept, *fresh]
        reusable = [*reusable, *fresh] if role is ContainerRole.INIT else reusable[len(kept) :]


def units_by_numa_node(
    units: "Sequence[int]", numa: "Sequence[int | None]"
) -> "Counter[int | None]":
    found: Counter[int | None] = Counter()
    for count, node in zip(units, numa, strict=True):
        found[node] += count
    return found
