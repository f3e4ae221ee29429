"""The choice of devices on one node: how many units each container gets of which device.

It works on numbers of free units by position (`pool.placement.device_rules`), and is the only place that decides
whether a node fits a pod and what a pod gets there, so that filter and bind cannot disagree. The pod's whole set of
devices is chosen first (`pool.placement.device_sets`), then divided over the containers. A container first reuses the
units of plain init containers before it, as in kubelet (`pool.demand`).
"""

import functools
import itertools
from typing import TYPE_CHECKING

from msgspec import structs

from api.kinds.gpunodeinventory import TopologyManagerPolicy
from api.kinds.gpupool import DeviceTopology
from pool.demand import reused_units
from pool.model import ContainerRole
from pool.placement.aligned_sets import aligned_regions
from pool.placement.compliance import kubelet_admits, units_by_numa_node, with_reused
from pool.placement.device_sets import best_set
from pool.placement.distinct_devices import take_distinct
from pool.placement.kubelet_choice import (
    MOST_NUMA_NODES,
    choose_as_kubelet,
    choose_on_same_devices,
)
from pool.placement.kubelet_hints import Unaligned, align
from pool.placement.topology import is_aligned, positions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pool.placement.device_rules import Counts, DeviceRules
    from pool.placement.unit_request import UnitRequest

    Containers = Sequence[tuple[ContainerRole, int]]
    Choice = list[list[int]]
    """Positions of each container's new units, in the order in which they are taken."""


def fits(devices: "DeviceRules", free: "Counts", request: "UnitRequest") -> bool:
    """Say whether units can be chosen."""
    if not devices.is_constrained:
        return sum(free) >= request.units
    return chosen_set(devices, free, request) is not None


def is_split(devices: "DeviceRules", free: "Counts", request: "UnitRequest") -> bool:
    """Say whether a pod would get devices that are not aligned, though some topology is known."""
    if request.units == 1 or not devices.has_preference:
        return False
    mask = chosen_set(devices, free, request)
    return mask is not None and not is_aligned(devices.topology, mask)


@functools.lru_cache(maxsize=1 << 14)
def chosen_set(devices: "DeviceRules", free: "Counts", request: "UnitRequest") -> int | None:
    """Return the mask of the devices that would be chosen; nodes that are alike are asked about once."""
    containers = request.containers or ((ContainerRole.MAIN, request.units),)
    choice = choose(devices, free, containers)
    return None if choice is None else sum({1 << at for fresh in choice for at in fresh})


def choose(
    devices: "DeviceRules",
    free: "Counts",
    containers: "Containers",
    *,
    preference: "Sequence[int] | None" = None,
    idle: int | None = None,
) -> "Choice | None":
    """Choose new units for every container; None where the rules leave none.

    Args:
        devices: the devices of the node.
        free: units of each that may be taken.
        containers: role and units in kubelet's order.
        preference: positions by the pool's strategy, the preferred first, which orders sets of equal quality.
        idle: mask of the devices of which sets are kept whole for later pods; all with free units unless given.
    """
    order = range(len(free)) if preference is None else preference
    if devices.is_kubelets_choice:
        return choose_as_kubelet(devices, free, containers, preference=order)
    if devices.slices:
        return _on_same_devices(devices, free, containers, preference=order)
    if len(containers) == 1 and devices.kubelet is None:  # most pods
        found = _distinct(devices, free, containers[0][1], preference=order, idle=idle)
        if found is not None:
            return [found]
    choice = _Search(devices, containers, order).first(free, idle)
    kubelet = devices.kubelet
    if choice is None and kubelet and kubelet.policy is TopologyManagerPolicy.BEST_EFFORT:
        # kubelet rejects no pod. NUMA nodes that `align` chose may lack the units that containers before took there.
        return choose(devices.without_kubelet(), free, containers, preference=order, idle=idle)
    return choice


def _distinct(
    devices: "DeviceRules",
    free: "Counts",
    count: int,
    *,
    preference: "Sequence[int]",
    idle: int | None,
) -> list[int] | None:
    """Return the best set of so many devices, in order of preference; None where there is none.

    It is what `_Search` finds first for a single container, in a third of the time.
    """
    if not devices.has_preference and not devices.is_required_aligned:
        found = [at for at in preference if free[at]][:count]
        return found if len(found) == count else None
    mask = sum(1 << at for at, units in enumerate(free) if units)
    best = best_set(
        devices.topology,
        mask,
        count,
        idle=idle,
        preference=preference,
        aligned_only=devices.is_required_aligned,
    )
    return None if best is None else [at for at in preference if best >> at & 1]


def _on_same_devices(
    devices: "DeviceRules",
    free: "Counts",
    containers: "Containers",
    *,
    preference: "Sequence[int]",
) -> "Choice | None":
    """Choose one device for each container's units, or whole devices, that kubelet allows."""
    for region in _numa_regions(devices):
        left = [count if region >> at & 1 else 0 for at, count in enumerate(free)]
        choice = choose_on_same_devices(devices, left, containers, preference=preference)
        if choice is None:
            continue
        if kubelet_admits(devices, containers, list(with_reused(containers, choice))):
            return choice
    if devices.kubelet is not None and devices.device_topology is DeviceTopology.NONE:
        # The pool does not ask for aligned containers, but kubelet does.
        aligned = structs.replace(devices, device_topology=DeviceTopology.PREFERRED)
        return _on_same_devices(aligned, free, containers, preference=preference)
    return None


def _numa_regions(devices: "DeviceRules") -> "Iterator[int]":
    """Yield all devices, then, where kubelet has a policy, those of NUMA nodes, which leave out devices without one."""
    yield (1 << len(devices.capacity)) - 1
    if devices.kubelet is not None:
        nodes = devices.topology.numa_nodes[:MOST_NUMA_NODES]
        for count in range(1, len(nodes) + 1):
            yield from map(sum, itertools.combinations(nodes, count))


class _Search:
    """Tries sets of devices for one pod, the best first."""

    def __init__(
        self, devices: "DeviceRules", containers: "Containers", preference: "Sequence[int]"
    ) -> None:
        self._devices = devices
        self._topology = devices.topology
        self._containers = containers
        self._preference = preference
        self._reused = list(reused_units(containers))
        self._units = sum(units for _, units in containers) - sum(self._reused)

    def first(self, free: "Counts", idle: int | None) -> "Choice | None":
        mask = sum(1 << at for at, count in enumerate(free) if count)
        for set_ in self._small_sets(free, mask, idle):
            choice = self._divide(free, set_)
            if choice is not None and self._is_distinct(choice):
                return choice
        for region in self._regions(free, mask):
            choice = self._divide(free, region)
            if choice is not None:
                return choice
        return None

    def _small_sets(self, free: "Counts", mask: int, idle: int | None) -> "Iterator[int]":
        """Yield the best set of each size, from the smallest on which each container may have distinct devices."""
        is_required = self._devices.is_required_aligned
        if not self._devices.has_preference and not is_required:
            return
        fewest = max(units for _, units in self._containers)
        if max(free, default=0) <= 1:
            fewest = self._units
        for count in range(min(fewest, mask.bit_count()), mask.bit_count() + 1):
            found = best_set(
                self._topology,
                mask,
                count,
                idle=idle,
                preference=self._preference,
                aligned_only=is_required,
            )
            if found is None:
                return
            yield found

    def _regions(self, free: "Counts", mask: int) -> "Iterable[int]":
        """Return the sets of which every allowed set is a part, those with the most devices first.

        A container gets several units of one device where they have too few devices.
        """
        if not self._devices.is_required_aligned:
            return (mask,)
        regions = [
            *aligned_regions(self._topology, mask),
            *(1 << position for position in positions(mask)),
        ]
        wide = (region for region in regions if _units_of(free, region) >= self._units)
        return sorted(wide, key=lambda item: -item.bit_count())

    def _divide(self, free: "Counts", devices: int) -> "Choice | None":
        """Give every container units of these devices."""
        if _units_of(free, devices) < self._units:
            return None
        left = [count if devices >> at & 1 else 0 for at, count in enumerate(free)]
        allowed = self._allowed(left)
        if allowed is None:
            return None
        choice: Choice = []
        reusable: list[int] = []
        for (role, units), reused, mask in zip(
            self._containers, self._reused, allowed, strict=True
        ):
            kept = reusable[:reused]
            fresh = take_distinct(
                self._devices,
                left,
                units - reused,
                preference=self._preference,
                allowed=mask,
                beside=kept,
            )
            if fresh is None:
                return None
            choice.append(fresh)
            if role is ContainerRole.INIT:
                reusable += fresh
            else:
                reusable = reusable[reused:]
        return choice

    def _allowed(self, left: "Sequence[int]") -> "Sequence[int] | None":
        """Return the mask of devices that kubelet lets each container have; None where it rejects the pod."""
        every = (1 << len(left)) - 1
        if self._devices.kubelet is None:
            return [every] * len(self._containers)
        numa = self._topology.numa
        capacity, free = (
            units_by_numa_node(self._devices.capacity, numa),
            units_by_numa_node(left, numa),
        )
        order = dict.fromkeys(
            node for at in self._preference if (node := numa[at]) is not None and left[at]
        )
        aligned = align(
            self._devices.kubelet,
            capacity,
            free,
            containers=self._containers,
            order=[
                *order,
                *sorted(node for node in capacity if node not in order and node is not None),
            ],
        )
        if isinstance(aligned, Unaligned):
            return None
        return [
            every
            if nodes is None
            else sum(1 << at for at, node in enumerate(numa) if node in nodes)
            for nodes in aligned
        ]

    def _is_distinct(self, choice: "Choice") -> bool:
        """Say whether no container has two new units of one device."""
        return all(len(set(fresh)) == len(fresh) for fresh in choice)


def _units_of(free: "Sequence[int]", devices: int) -> int:
    return sum(free[at] for at in positions(devices))
