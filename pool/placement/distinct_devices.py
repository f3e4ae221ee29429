"""DistinctDevices: units round by round, one of each device before a second of any."""

from typing import TYPE_CHECKING

from pool.placement.device_sets import best_set

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pool.placement.device_rules import DeviceRules


def take_distinct(
    devices: "DeviceRules",
    left: list[int],
    count: int,
    *,
    preference: "Sequence[int]",
    allowed: int,
    beside: "Sequence[int]" = (),
) -> list[int] | None:
    """Take units of the best devices, new ones first; None where there are too few.

    Args:
        devices: the devices of the node.
        left: units of each that may be taken; reduced by those that are.
        count: units to take.
        preference: positions, the preferred first.
        allowed: mask of the devices to take from.
        beside: positions of units that the container has already.
    """
    order = [at for at in preference if allowed >> at & 1 and left[at]]
    first = [at for at in order if at not in beside]
    if 0 < count < len(first) and devices.has_preference:
        mask = sum(1 << at for at in first)
        best = best_set(devices.topology, mask, count, preference=preference)
        first = [at for at in first if best is None or best >> at & 1]
    taken: list[int] = []
    while len(taken) < count:
        before = len(taken)
        for at in first:
            if left[at] and len(taken) < count:
                taken.append(at)
                left[at] -= 1
        if len(taken) == before and not any(left[at] for at in order):
            return None
        first = order
    return taken
