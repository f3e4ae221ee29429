"""Placement: the node on which units are reserved, and the units of each container.

Plans read and return a value; `pool.allocation_state` carries them out in the same synchronous step.
"""

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from api.kinds.gpupool import Strategy
from api.units import part_of
from pool.model import ContainerRole
from pool.placement.compliance import complies
from pool.placement.device_choice import choose
from pool.placement.device_sets import best_set

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from api.annotations import Devices
    from api.names import DeviceName, NodeName, PoolName, UnitId
    from pool.index.devices import DeviceEntry
    from pool.model import Constraints, Demand, NodeFacts
    from pool.placement.device_choice import Choice
    from pool.placement.device_rules import DeviceRules
    from pool.refusal import NodeRefusal


class Placed(msgspec.Struct, frozen=True):
    """Units of one node for every container."""

    pool: "PoolName"
    node: "NodeName"
    devices: "Devices"
    value_lost: int | None = None
    """Milli of devices by which the value of the node falls, where the strategy went by that."""


@dataclass(frozen=True, slots=True)
class PlacementRefused:
    """A node cannot take the pod."""

    node: "NodeName"
    refusal: "NodeRefusal"


class _Device(msgspec.Struct, gc=False):
    """A device while units are being chosen."""

    is_new: bool
    rank: int
    """Rank by strategy, lower is better."""
    position: int
    ids: "tuple[UnitId, ...]"
    """IDs by slot."""
    free: int
    """Mask of units that are left."""
    is_idle: bool

    def take(self) -> "UnitId":
        slot = (self.free & -self.free).bit_length() - 1
        self.free &= self.free - 1
        return self.ids[slot]


def plan_devices(
    entries: "Sequence[DeviceEntry]",
    demand: "Demand",
    devices: "DeviceRules",
    *,
    own: "dict[DeviceName, int] | None" = None,
) -> "Devices | None":
    """Choose units for every container, as kubelet allocates them; None when no units fit the demand.

    A container first reuses the units of plain init containers before it, as in kubelet (`pool.demand`), then takes
    new units, on distinct devices while there are any. The topology decides between devices, then the strategy:
    fullest devices first (Spread: emptiest first), then their names. Devices that came a moment ago are taken where
    the others do not suffice.

    Args:
        entries: the pool's devices on the node, by name.
        demand: the pod's demand.
        devices: the rules for sets of these devices.
        own: masks by device that the pod's own reservation has alone, which are free to it.
    """
    ranked = _ranked(entries, devices.strategy, own or {})
    if not ranked:
        return None
    if demand.units == 1 and len(demand.containers) == 1 and devices.kubelet is None:  # most pods
        return {demand.containers[0].name: (_best(ranked, devices).take(),)}
    choice = _choose(ranked, demand, devices)
    return None if choice is None else _named(choice, demand, ranked)


def _best(ranked: "Sequence[_Device]", devices: "DeviceRules") -> _Device:
    """Return the best device for one unit: among those that the strategy puts first, the topology decides."""
    best = ranked[0]
    if not best.is_idle or not devices.has_preference:
        return best
    ties = {
        item.position: item
        for item in ranked
        if (item.is_new, item.rank) == (best.is_new, best.rank)
    }
    mask = sum(1 << position for position in ties)
    chosen = best_set(devices.topology, mask, 1)
    return best if chosen is None else ties[chosen.bit_length() - 1]


def _choose(
    ranked: "Sequence[_Device]", demand: "Demand", devices: "DeviceRules"
) -> "Choice | None":
    idle = 0
    if devices.strategy is not Strategy.SPREAD or max(devices.capacity) == 1:
        # Otherwise idle devices come first, not last.
        for item in ranked:
            if item.is_idle:
                idle |= 1 << item.position
    containers = [(container.role, container.units) for container in demand.containers]
    preference = [item.position for item in ranked]
    attempts: tuple[Sequence[_Device], ...] = (ranked,)
    if ranked[-1].is_new and not ranked[0].is_new and not devices.is_kubelets_choice:
        # kubelet does not tell them apart.
        attempts = ([item for item in ranked if not item.is_new], ranked)
    for attempt in attempts:
        free = [0] * len(devices.capacity)
        for item in attempt:
            free[item.position] = item.free.bit_count()
        choice = choose(devices, tuple(free), containers, preference=preference, idle=idle)
        if choice is not None:
            return choice
    return None


def _named(choice: "Choice", demand: "Demand", ranked: "Sequence[_Device]") -> "Devices":
    """Take the chosen units, the lowest of each device first."""
    at = {item.position: item for item in ranked}
    named: Devices = {}
    reusable: list[UnitId] = []
    for container, fresh in zip(demand.containers, choice, strict=True):
        kept = reusable[: container.units]
        taken = [at[position].take() for position in fresh]
        named[container.name] = (*kept, *taken)
        if container.role is ContainerRole.INIT:
            reusable += taken
        else:
            reusable = reusable[len(kept) :]
    return named


def is_intact(
    devices: "Devices",
    masks: "dict[DeviceName, int]",
    entries: "Sequence[DeviceEntry]",
) -> bool:
    """Say whether a reservation's units all exist, are healthy and have no other owner.

    `masks` are the bits by device that the reservation has alone.
    """
    intact: set[UnitId] = set()
    for entry in entries:
        mask = masks.get(entry.facts.name, 0) if entry.is_usable else 0
        mask &= ~entry.observed
        intact.update(unit for slot, unit in enumerate(entry.layout.ids) if mask >> slot & 1)
    return all(unit in intact for units in devices.values() for unit in units)


def complies_with(
    rules: "DeviceRules",
    devices: "Devices",
    *,
    entries: "Sequence[DeviceEntry]",
    demand: "Demand",
) -> bool:
    """Say whether an intact reservation's units comply with the rules as they are now.

    A kubelet's policy, the connections of devices or the pool may have changed. Where kubelet chooses NUMA nodes, it
    goes by what is free now, so that units are always chosen again.
    """
    if rules.is_kubelets_choice:
        return False
    if not rules.is_constrained:
        return True
    position_of = {
        part: at for at, entry in enumerate(entries) if entry.is_usable for part in entry.parts
    }
    sets = [
        [position_of[part_of(unit)] for unit in devices.get(container.name, ())]
        for container in demand.containers
    ]
    return complies(rules, [(item.role, item.units) for item in demand.containers], sets)


def may_go_to(node: "NodeFacts", constraints: "Constraints") -> bool:
    """Say whether a pod's selector, required affinity and tolerations allow a node.

    Only a hint for reserving: kube-scheduler decides.
    """
    if not constraints.select(node.name, node.labels):
        return False
    return not node.taints or all(
        taint.effect == "PreferNoSchedule" or constraints.tolerated.cover(taint)
        for taint in node.taints
    )


def _ranked(
    entries: "Iterable[DeviceEntry]", strategy: Strategy, own: "dict[DeviceName, int]"
) -> list[_Device]:
    """Return the devices with free units in the order of allocation by strategy alone."""
    sign = 1 if strategy is Strategy.SPREAD else -1
    ranked: list[_Device] = []
    for position, entry in enumerate(entries):
        layout, others = entry.layout, entry.observed
        if entry.assumed:
            others |= entry.assumed & ~own.get(entry.facts.name, 0)
        free = layout.full & ~others
        if free and entry.is_usable:
            rank = sign * others.bit_count()
            ranked.append(_Device(entry.is_new, rank, position, layout.ids, free, not others))
    ranked.sort(key=_by_strategy)  # stable: devices that are alike stay in the order of their names
    return ranked


_by_strategy: Final = operator.attrgetter("is_new", "rank")
