"""SameDevice by trying everything: which devices kubelet may give to the containers of a pod."""

import functools
import itertools

from pool.model import ContainerRole

Containers = tuple[tuple[ContainerRole, int], ...]


@functools.lru_cache(maxsize=1 << 17)
def serves(containers: Containers, free: tuple[int, ...], slices: int) -> bool:
    """Whether all containers can have their units, each container's on one device or on whole devices."""
    return _serves(containers, free, (), slices)


def is_valid(devices: tuple[int, ...], slices: int) -> bool:
    """Whether a container with units of these devices, one entry a unit, has one device or whole ones."""
    counts = {devices.count(device) for device in devices}
    return len(set(devices)) == 1 or counts == {slices}


def _serves(
    containers: Containers, free: tuple[int, ...], handed_on: tuple[int, ...], slices: int
) -> bool:
    if not containers:
        return True
    (role, units), *others = containers
    remaining = tuple(others)
    if len(handed_on) > units:
        # kubelet takes any of them, so each choice must be right.
        picks = {
            tuple(sorted(combination)) for combination in itertools.combinations(handed_on, units)
        }
        return all(
            is_valid(pick, slices)
            and _serves(remaining, free, _left(handed_on, pick, role), slices)
            for pick in picks
        )
    requested = units - len(handed_on)
    for fresh in itertools.combinations_with_replacement(range(len(free)), requested):
        has = (*handed_on, *fresh)
        if not is_valid(has, slices) or any(fresh.count(at) > free[at] for at in fresh):
            continue
        left = tuple(count - fresh.count(at) for at, count in enumerate(free))
        if _serves(remaining, left, has if role is ContainerRole.INIT else (), slices):
            return True
    return False


def _left(
    handed_on: tuple[int, ...], pick: tuple[int, ...], role: ContainerRole
) -> tuple[int, ...]:
    remaining = list(handed_on)
    if role is not ContainerRole.INIT:
        for at in pick:
            remaining.remove(at)
    return tuple(remaining)
