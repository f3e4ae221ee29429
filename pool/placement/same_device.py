"""SameDevice: the units of a container lie on one device, or are whole devices.

A container asks for up to `slicesPerDevice` units, which one device gives, or for a multiple of that, which is as many
whole devices. kubelet hands the units of plain init containers on (`pool.demand`), and containers that share units
share the device: `groups_of` turns a pod into groups of units, each with a device of its own choice or with whole
devices. What is left is bin packing, exact up to `MOST_EXACT` groups on shared devices.

kubelet alone decides which units it hands on: all of them to a container that asks for as many or more, else any of
them. Units that are handed on still lie on one device where the init container's did. A container is not served if
kubelet would choose some of the units of several devices for it. Which slices of its device a container has is
kubelet's choice.
"""

import functools
from typing import TYPE_CHECKING, Final, final

import msgspec

from api.kinds.gpupool import Strategy
from pool.model import ContainerRole
from pool.placement.aligned_sets import aligned_regions
from pool.placement.device_sets import best_set
from pool.placement.topology import positions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pool.placement.topology import Topology

Asked = tuple[tuple[ContainerRole, int], ...]
"""Role and units of each container, in kubelet's order."""

MOST_EXACT: Final = 8
"""Groups on shared devices up to which every packing is tried; pods have one or two."""


def is_valid_size(units: int, slices: int) -> bool:
    """Say whether a container can have so many units of devices with `slices` units."""
    return units > 0 and (units <= slices or units % slices == 0)


def nearest_sizes(units: int, slices: int) -> tuple[int, ...]:
    """Return the valid sizes next to one, or the size itself if it is valid."""
    if units <= slices:
        return (max(1, units),)
    below = units - units % slices
    return (units,) if below == units else (below, below + slices)


class Group(msgspec.Struct, frozen=True):
    """Units of a pod whose devices are one choice."""

    units: int
    devices: int
    """Whole devices; 0 where the units are a part of one device."""


class Groups(msgspec.Struct, frozen=True, cache_hash=True):
    """A pod's groups and the containers in them."""

    slices: int
    """Units of a device."""
    groups: tuple[Group, ...]
    parts: tuple[tuple[int, int], ...]
    """Parts: for each container its group, and the units that no container before it has had."""


class Unservable(msgspec.Struct, frozen=True):
    """No node can ever serve a container of the pod."""

    container: int
    """Its index. Either its size is not valid, or kubelet would hand it a part of several devices, or a part of one
    device that cannot be completed to its size.
    """


@functools.lru_cache(maxsize=4096)
def groups_of(containers: Asked, slices: int) -> Groups | Unservable:
    """Return the groups of a pod, in the order in which kubelet needs them."""
    groups: list[Group] = []
    parts: list[tuple[int, int]] = []
    handed_on = group = (
        0  # units of init containers that kubelet can hand on; they are of one group
    )
    for index, (role, units) in enumerate(containers):
        taken = units - min(handed_on, units)
        if not handed_on:
            group = len(groups)
            groups.append(Group(0, 0))
        grown = _extended_group(groups[group], units, (handed_on, slices))
        if grown is None:
            return Unservable(index)
        groups[group] = grown
        parts.append((group, taken))
        if role is ContainerRole.INIT:
            handed_on = max(handed_on, units)
        else:
            handed_on -= units - taken
    return Groups(slices, tuple(groups), tuple(parts))


def _extended_group(group: Group, units: int, bounds: tuple[int, int]) -> Group | None:
    """Return the group with a container of so many units; None where it cannot be served.

    `bounds` are the units handed on to the container, which are of the group, and the units of a device.
    """
    handed_on, slices = bounds
    if not is_valid_size(units, slices):
        return None
    if units < handed_on:
        return group if group.devices <= 1 or units == 1 else None
    total = group.units + units - handed_on
    if total > slices and total != units:
        return None
    return Group(total, total // slices if total % slices == 0 else 0)


Taken = tuple[tuple[int, int], ...]
"""Positions of devices, and the units taken of each."""


def plan_same_device(
    groups: Groups,
    free: "Sequence[int]",
    *,
    strategy: Strategy,
    preference: "Sequence[int]" = (),
    topology: "Topology | None" = None,
    aligned_only: bool = False,
) -> tuple[Taken, ...] | None:
    """Choose the devices of a pod's groups; None where no choice exists.

    A part of a device is taken where the least is left over (Spread: the most), the largest first; whole devices are
    the best set of idle ones. A pod with several groups is placed on one device if it can be, else on the aligned set
    with the fewest free units, else anywhere.

    Args:
        groups: of the pod (`groups_of`).
        free: units by position that may be taken; all of a device's are an idle device.
        strategy: of the pool.
        preference: positions, the preferred first, which decides among equal devices.
        topology: of the devices; None where it does not matter.
        aligned_only: only one device, one NUMA node or one island for the whole pod.

    Returns:
        For each container what it takes beside the units that kubelet hands on to it.
    """
    order = (*preference, *(at for at in range(len(free)) if at not in preference))
    choice = _Choice(
        groups.slices,
        order,
        topology,
        aligned_only=aligned_only,
        is_spread=strategy is Strategy.SPREAD,
    )
    for region in _regions(groups.groups, free, choice):
        inside = [units if region >> at & 1 else 0 for at, units in enumerate(free)]
        chosen = _choose(groups.groups, inside, choice)
        if chosen is not None:
            return tuple(_taken_units(groups, chosen))
    return None


class _Choice(msgspec.Struct, frozen=True):
    slices: int
    order: tuple[int, ...]
    """All positions, the preferred first."""
    topology: "Topology | None"
    aligned_only: bool
    is_spread: bool


def _regions(groups: "Sequence[Group]", free: "Sequence[int]", choice: _Choice) -> "Iterator[int]":
    """Yield the sets of devices on which to place the whole pod, the best first."""
    everything = sum(1 << at for at, units in enumerate(free) if units)
    topology = choice.topology
    if topology is not None and len(groups) > 1:
        requested = sum(group.units for group in groups)
        devices = [1 << at for at in choice.order if free[at] >= requested]
        devices.sort(key=lambda device: free[device.bit_length() - 1])
        several = sorted(
            aligned_regions(topology, everything),
            key=lambda region: sum(free[at] for at in positions(region)),
        )
        yield from (*several, *devices) if choice.is_spread else (*devices, *several)
    if topology is None or len(groups) == 1 or not choice.aligned_only:
        yield everything


def _choose(
    groups: "Sequence[Group]", free: list[int], choice: _Choice
) -> dict[int, tuple[int, ...]] | None:
    """Return the devices of each group, by its index."""
    idle = sum(1 << at for at, units in enumerate(free) if units == choice.slices)
    whole = _best_idle(idle, sum(group.devices for group in groups), choice)
    if whole is None:
        return None
    chosen: dict[int, tuple[int, ...]] = {}
    largest_first = sorted(range(len(groups)), key=lambda at: -groups[at].units)
    for index in largest_first:
        part = _best_idle(whole, groups[index].devices, choice)
        if part:
            whole ^= part
            chosen[index] = tuple(positions(part))
    for devices in chosen.values():
        for at in devices:
            free[at] = 0
    shared = [index for index in largest_first if not groups[index].devices]
    packed = _Packing([groups[index].units for index in shared], free, choice).pack()
    if packed is None:
        return None
    return chosen | {index: (at,) for index, at in zip(shared, packed, strict=True)}


def _best_idle(idle: int, count: int, choice: _Choice) -> int | None:
    if choice.topology is not None:
        return best_set(
            choice.topology,
            idle,
            count,
            preference=choice.order,
            aligned_only=choice.aligned_only,
        )
    ordered = [1 << at for at in choice.order if idle >> at & 1]
    return sum(ordered[:count]) if len(ordered) >= count else None


@final
class _Packing:
    """Groups on shared devices, the largest first; each is tried where the least is left over, or the most."""

    def __init__(self, sizes: list[int], free: list[int], choice: _Choice) -> None:
        self._sizes = sizes
        self._free = free
        self._choice = choice
        self._chosen: list[int] = []
        self._failed: set[tuple[int, ...]] = set()  # rests, sorted, after the group index

    def pack(self) -> list[int] | None:
        """Return the device of each group."""
        return self._chosen if self._place_from(0) else None

    def _place_from(self, index: int) -> bool:
        if index == len(self._sizes):
            return True
        state = (index, *sorted(self._free))
        if sum(self._sizes[index:]) > sum(self._free) or state in self._failed:
            return False
        for at in self._candidates(self._sizes[index]):
            self._free[at] -= self._sizes[index]
            self._chosen.append(at)
            if self._place_from(index + 1):
                return True
            self._chosen.pop()
            self._free[at] += self._sizes[index]
        self._failed.add(state)
        return False

    def _candidates(self, size: int) -> list[int]:
        """Return a device of each rest that suffices; only the first where not every packing is tried.

        Where one fits exactly, no other is worth trying: the groups that another packing has there fit in its place.
        """
        found: dict[int, int] = {}
        for at in self._choice.order:
            if self._free[at] >= size:
                found.setdefault(self._free[at], at)
        free = sorted(found, reverse=self._choice.is_spread)
        if len(self._sizes) > MOST_EXACT or (free and free[0] == size):
            free = free[:1]
        return [found[remaining] for remaining in free]


def _taken_units(groups: Groups, chosen: "Mapping[int, Sequence[int]]") -> "Iterator[Taken]":
    """Yield what each container takes: a group's units fill its devices in order."""
    used = [0] * len(groups.groups)
    for group, units in groups.parts:
        end = used[group] + units
        taken: list[tuple[int, int]] = []
        while used[group] < end:
            at, offset = divmod(used[group], groups.slices)
            count = min(end - used[group], groups.slices - offset)
            taken.append((chosen[group][at], count))
            used[group] += count
        yield tuple(taken)
