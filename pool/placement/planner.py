"""Placement: the node on which units are reserved, and the units of each container.

Plans read and return a value; `pool.allocation_state` carries them out in the same synchronous step.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from api.kinds.gpupool import Strategy
from pool.model import ContainerRole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from api.annotations import Devices
    from api.names import DeviceName, NodeName, PoolName, UnitId
    from pool.index.devices import DeviceEntry
    from pool.model import Constraints, Demand, NodeFacts
    from pool.refusal import NodeRefusal


class Placed(msgspec.Struct, frozen=True):
    """Units of one node for every container."""

    pool: "PoolName"
    node: "NodeName"
    devices: "Devices"


@dataclass(frozen=True, slots=True)
class PlacementRefused:
    """A node cannot take the pod."""

    node: "NodeName"
    refusal: "NodeRefusal"


@dataclass(slots=True)
class _Device:
    """A device while its units are being chosen."""

    ids: "tuple[UnitId, ...]"
    """By slot."""
    free: int
    """Mask of units that are left."""

    def has_any(self, units: "Sequence[UnitId]") -> bool:
        return not set(units).isdisjoint(self.ids)

    def take(self) -> "UnitId":
        slot = (self.free & -self.free).bit_length() - 1
        self.free &= self.free - 1
        return self.ids[slot]


_Ranked = tuple[bool, int, "DeviceName", int, "tuple[UnitId, ...]"]
"""Whether the device is new, its rank by strategy, its name, its free units, its units by slot. Names differ, so
nothing behind them is compared.
"""


def plan_devices(
    entries: "Sequence[DeviceEntry]",
    demand: "Demand",
    strategy: Strategy,
    *,
    own: "dict[DeviceName, int] | None" = None,
) -> "Devices | None":
    """Choose units for every container, as kubelet allocates them; None when there are too few.

    A container first reuses the units of plain init containers before it, as in kubelet (`pool.demand`), then takes
    new units: on distinct devices while there are any, fullest devices first (Spread: emptiest first).

    Args:
        entries: the pool's devices on the node, by name.
        demand: the pod's demand.
        strategy: the pool's.
        own: masks by device that the pod's own reservation has alone, which are free to it.
    """
    ranked = _ranked(entries, strategy, own or {})
    if len(demand.containers) == 1 and demand.units == 1:  # most pods
        return {demand.containers[0].name: (_gpu(min(ranked)).take(),)} if ranked else None
    gpus = list(map(_gpu, sorted(ranked)))
    devices: Devices = {}
    reusable: list[UnitId] = []
    for container in demand.containers:
        kept = reusable[: container.units]
        fresh = _take(gpus, container.units - len(kept), kept)
        if fresh is None:
            return None
        devices[container.name] = (*kept, *fresh)
        if container.role is ContainerRole.INIT:
            reusable += fresh
        else:
            reusable = reusable[len(kept) :]
    return devices


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


def may_go_to(node: "NodeFacts", constraints: "Constraints") -> bool:
    """Say whether a pod's selector, required affinity and tolerations allow a node.

    Only a hint for reserving: kube-scheduler decides.
    """
    selector, required = constraints.node_selector, constraints.required
    if selector and not selector.items() <= node.labels.items():
        return False
    if required is not None and not required.accepts(node.labels, node.name):
        return False
    return not node.taints or all(
        taint.effect == "PreferNoSchedule" or constraints.tolerated.cover(taint)
        for taint in node.taints
    )


def _ranked(
    entries: "Iterable[DeviceEntry]", strategy: Strategy, own: "dict[DeviceName, int]"
) -> list[_Ranked]:
    """Return the devices with free units, which sort into the order of allocation."""
    sign = 1 if strategy is Strategy.SPREAD else -1
    ranked: list[_Ranked] = []
    for entry in entries:
        name = entry.facts.name
        others = entry.observed | (entry.assumed & ~own.get(name, 0))
        free = entry.layout.full & ~others
        if free and entry.is_usable:
            ranked.append((entry.is_new, sign * others.bit_count(), name, free, entry.layout.ids))
    return ranked


def _gpu(ranked: _Ranked) -> _Device:
    *_, free, ids = ranked
    return _Device(ids, free)


def _take(
    gpus: "Sequence[_Device]", count: int, beside: "Sequence[UnitId]"
) -> "list[UnitId] | None":
    """Take units round by round: one from each device before a second from any."""
    taken: list[UnitId] = []
    fresh_devices = [gpu for gpu in gpus if not gpu.has_any(beside)] if beside else list(gpus)
    while len(taken) < count:
        before = len(taken)
        for gpu in fresh_devices:
            if gpu.free and len(taken) < count:
                taken.append(gpu.take())
        fresh_devices = list(gpus)
        if len(taken) == before and not any(gpu.free for gpu in gpus):
            return None
    return taken
