"""Layouts of MIG instances: which profiles fit together on a device, and where. Pure.

A GPU instance takes a run of the device's memory slices, and begins at fixed ones; two instances share no slice.
`nvidia-smi mig -lgipp` prints these placements of each profile as NVML gives them
(nvmlDeviceGetGpuInstancePossiblePlacements), and NVIDIA's MIG User Guide has them in "Getting Started with MIG" and
"Supported MIG Profiles". They are those of a family of products, the same in all memory sizes, so that a product is
known by what its driver says: its profiles, and how many instances of each fit the empty device.

Instances that are there already can be given to the planner, which then only fills what is free.
"""

import functools
import itertools
from typing import TYPE_CHECKING, Final, NamedTuple

from api.mig.profile import compute_slices
from api.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Shares = tuple[tuple[str, int | None], ...]
"""(profile, number of its instances) of a layout; None for as many as fit beside the others."""
Capacities = tuple[tuple[str, int], ...]
"""(profile, number of its instances that fit the empty device), as a driver says."""

_DOUBLE_MEMORY: Final = (1, 4)
"""(compute slices, capacity) of a profile of one compute slice and two memory slices, beside seven of one."""
_STARTS: Final[dict[int, dict[int, tuple[int, tuple[int, ...]]]]] = {
    7: {
        1: (1, (0, 1, 2, 3, 4, 5, 6)),
        2: (2, (0, 2, 4)),
        3: (4, (0, 4)),
        4: (4, (0,)),
        7: (8, (0,)),
    },
    4: {1: (1, (0, 1, 2, 3)), 2: (2, (0, 2)), 4: (4, (0,))},
    2: {1: (1, (0, 1)), 2: (2, (0,))},
}
"""Compute slices of the device (7: A100, A800, H100, H800, H20, GH200, H200, B200, GB200, B300, GB300; 4: A30, RTX PRO
6000; 2: RTX PRO 4500) -> compute slices of the profile -> memory slices, and those at which it may begin."""
_DOUBLE_STARTS: Final = (2, (0, 2, 4, 6))


def layout_text(shares: Shares) -> str:
    """Return the text of a layout, such as `1 of 3g.40gb, 1g.10gb`."""
    return listed(f"{count} of {profile}" if count else profile for profile, count in shares)


class InstancePlacement(NamedTuple):
    """A GPU instance on its device."""

    profile: str
    start: int
    """Its first memory slice."""
    size: int
    """Number of its memory slices."""

    @property
    def mask(self) -> int:
        return ((1 << self.size) - 1) << self.start


def placements_of(profile: str, capacities: Capacities) -> tuple[InstancePlacement, ...]:
    """Return where an instance may lie on the empty device; none where the profile or the product is not known."""
    capacity, slices = dict(capacities).get(profile, 0), compute_slices(profile)
    family = _STARTS.get(max((compute_slices(name) or 0 for name, _ in capacities), default=0))
    if family is None or slices not in family or not capacity:
        return ()
    size, starts = family[slices]
    if family is _STARTS[7] and (slices, capacity) == _DOUBLE_MEMORY:
        size, starts = _DOUBLE_STARTS
    return tuple(InstancePlacement(profile, start, size) for start in starts)


@functools.lru_cache(maxsize=256)
def instances_of(shares: Shares, capacities: Capacities) -> tuple[int, ...] | None:
    """Return the number of instances of each share; None where the device cannot hold the layout.

    The share without a number gets at least one.
    """
    if len(shares) == 1 and shares[0][1] is None:  # whatever the product
        count = dict(capacities).get(shares[0][0], 0)
        return (count,) if count else None
    for counts in _counts(shares, capacities):
        if min(counts) and _fits(shares, counts, capacities):
            return counts
    return None


def nearest_layout(shares: Shares, capacities: Capacities) -> str:
    """Return the text of the layout that has the most of what was asked for by number, then the most compute slices.

    A profile that the device lacks stands for its own one of as many compute slices. Empty where nothing fits.
    """
    capacity_by_profile = dict(capacities)
    own = {compute_slices(name): name for name in sorted(capacity_by_profile, reverse=True)}
    asked = tuple(
        (name, count)
        for profile, count in shares
        if (
            name := profile
            if profile in capacity_by_profile
            else own.get(compute_slices(profile), "")
        )
    )
    options = itertools.product(
        *(
            range(min(count or capacity_by_profile[profile], capacity_by_profile[profile]) + 1)
            for profile, count in asked
        )
    )
    fitting = [counts for counts in options if any(counts) and _fits(asked, counts, capacities)]
    if not fitting:
        return ""
    numbered = tuple((profile if count else "", count) for profile, count in asked)
    best = max(
        fitting, key=lambda counts: (_slices(numbered, counts), _slices(asked, counts), counts)
    )
    return layout_text(
        tuple((profile, count) for (profile, _), count in zip(asked, best, strict=True) if count)
    )


def plan_layout(
    shares: Shares, capacities: Capacities, present: "Iterable[InstancePlacement]" = ()
) -> tuple[InstancePlacement, ...] | None:
    """Return the instances that a device lacks for a layout, the largest first; None where they do not fit.

    Args:
        shares: the layout.
        capacities: of the device.
        present: the instances that it has and keeps; those beyond the layout only use their space.
    """
    counts, kept = instances_of(shares, capacities), tuple(present)
    if counts is None:
        return None
    have = [placement.profile for placement in kept]
    missing = [
        profile
        for (profile, _), count in zip(shares, counts, strict=True)
        for _ in range(count - have.count(profile))
    ]
    taken = functools.reduce(lambda mask, placement: mask | placement.mask, kept, 0)
    return _place(_by_size(missing, capacities), capacities, taken)


def _counts(shares: Shares, capacities: Capacities) -> "Iterator[tuple[int, ...]]":
    """Yield the numbers of instances that a layout means, the most of the share without one first."""
    capacity_by_profile = dict(capacities)
    most = max(
        (capacity_by_profile.get(profile, 0) for profile, count in shares if count is None),
        default=0,
    )
    for number in range(most, -1, -1):
        yield tuple(number if count is None else count for _, count in shares)


def _fits(shares: Shares, counts: tuple[int, ...], capacities: Capacities) -> bool:
    capacity_by_profile = dict(capacities)
    numbers = [(profile, count) for (profile, _), count in zip(shares, counts, strict=True)]
    if any(count > capacity_by_profile.get(profile, 0) for profile, count in numbers):
        return False
    requested = [profile for profile, count in numbers for _ in range(count)]
    if not _engines_suffice(requested):
        return False
    return _place(_by_size(requested, capacities), capacities, 0) is not None


def _engines_suffice(profiles: list[str]) -> bool:
    """Say whether the media engines suffice: `+me` has those that a device has once, `+me.all` every one."""
    with_engines = sum("+me" in profile for profile in profiles)
    takes_all = any("+me.all" in profile for profile in profiles)
    others = sum("-me" not in profile for profile in profiles) - 1
    return with_engines <= 1 and not (takes_all and others)


def _by_size(profiles: list[str], capacities: Capacities) -> tuple[str, ...]:
    """Return the profiles with the fewest places first: they leave the least choice."""
    return tuple(
        sorted(profiles, key=lambda profile: (len(placements_of(profile, capacities)), profile))
    )


@functools.lru_cache(maxsize=4096)
def _place(
    profiles: tuple[str, ...], capacities: Capacities, taken: int
) -> tuple[InstancePlacement, ...] | None:
    """Return a placement for each profile beside the memory slices that are taken; None where there is none."""
    if not profiles:
        return ()
    for placement in reversed(placements_of(profiles[0], capacities)):
        if not placement.mask & taken:
            others = _place(profiles[1:], capacities, taken | placement.mask)
            if others is not None:
                return (placement, *others)
    return None


def _slices(shares: Shares, counts: tuple[int, ...]) -> int:
    return sum(
        count * (compute_slices(profile) or 0)
        for (profile, _), count in zip(shares, counts, strict=True)
    )
