"""The best set of devices on one node: bit masks by position, as in `pool.placement.topology`.

The quality of a set, best first: one NUMA node, every pair connected by NVLink, the sum of the connections (NVLinks,
then PCIe levels), fewest NUMA nodes. Of sets of equal quality the best is the one that keeps the rest whole: from the
idle devices it leaves
    the most disjoint sets of 8 devices on one NUMA node, then of 4, then of 2,
    then the largest sum of connections, so that a single device breaks no NVLink pair while there is another,
    then the most devices.
What is still equal is decided by the caller's preference, then by position: the set wins that has the first position
in which two sets differ.

Devices that are connected alike are interchangeable (`_alike`). A question is answered once for all choices among
such devices: an NVSwitch box of 8 devices has 25 states, one with four NVLink bridges 81. So answers are kept, and
only the caller's preference is applied to each.
"""

import functools
import itertools
import operator
from typing import TYPE_CHECKING, Final, NamedTuple

from pool.placement.aligned_sets import MOST_EXACT, islands
from pool.placement.topology import is_island, is_on_one_numa_node, positions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pool.placement.topology import Topology

_KEPT_WHOLE: Final = (8, 4, 2)
"""Sizes of sets that are kept, the most valuable first."""


class Quality(NamedTuple):
    """Rank of a set; the largest is the best."""

    is_on_one_numa_node: bool
    is_island: bool
    links: int
    """Sum of the weights of all pairs."""
    numa_nodes: int
    """Number of NUMA nodes, negative; a device without one counts as a node of its own."""


_ONE_DEVICE: Final = Quality(is_on_one_numa_node=True, is_island=True, links=0, numa_nodes=-1)


def best_set(
    topology: "Topology",
    free: int,
    count: int,
    *,
    idle: int | None = None,
    preference: "Sequence[int]" = (),
    aligned_only: bool = False,
) -> int | None:
    """Return the best set of `count` free devices; None where there are too few, or no aligned ones.

    Exact for up to `MOST_EXACT` devices. On a node with more it is greedy: on the NUMA node with the fewest free
    devices that suffice, else in an island, else anywhere, the device first that is connected best to those before
    it, then the one with the strongest connection; `aligned_only` may then miss an island that overlaps others.

    Args:
        topology: of the pool's devices on the node.
        free: devices of which units may be taken.
        count: devices requested.
        idle: devices of which no unit is taken, whose sets are kept whole; all free ones unless given. A device that
            shares its units goes before an idle one of equal quality; with 0 the preference alone decides among
            sets of equal quality.
        preference: positions, the preferred first; those that it lacks follow by number.
        aligned_only: only a set on one NUMA node, an island, or one device.
    """
    if count > free.bit_count():
        return None
    kept = free if idle is None else free & idle
    order = _order(preference, free)
    if len(topology.numa) > MOST_EXACT:
        return _greedy_set(topology, free, count, idle=kept, order=order, aligned_only=aligned_only)
    alike = _alike(topology)
    free_key = idle_key = 0
    for devices, first in alike.classes:
        free_key |= first[(devices & free).bit_count()]
        idle_key |= first[(devices & kept).bit_count()]
    best = _best_choices(topology, count, (free_key, idle_key))
    if aligned_only and not best.is_aligned:
        return None
    # Of devices that are alike those that share their units are taken first.
    members = order if kept == free else sorted(order, key=lambda at: kept >> at & 1)
    return _preferred(alike, best.taken, order=order, members=members)


_State = tuple[int, int]
"""Free devices, idle devices: of each class the first ones are idle, and the next are free."""

_Remaining = tuple[int, ...]


class _Choices(NamedTuple):
    """Sets that are equal but for the caller's preference."""

    is_aligned: bool
    taken: "Sequence[tuple[int, ...]]"
    """Numbers of devices taken of each class of `_alike`, for each set."""


class _DeviceClasses(NamedTuple):
    """The classes of interchangeable devices."""

    classes: tuple[tuple[int, tuple[int, ...]], ...]
    """Mask of each class, and the masks of its first 0, 1, 2 … devices."""
    class_of: tuple[int, ...]
    """Number of the class of each device."""


@functools.lru_cache(maxsize=256)
def _alike(topology: "Topology") -> _DeviceClasses:
    """Return the classes of interchangeable devices.

    Two devices are alike if they are on one NUMA node and connected to every other device in the same way. Exchanging
    two of them changes no connection, so being alike is transitive.
    """
    classes: list[list[int]] = []
    for position in range(len(topology.numa)):
        for members in classes:
            if _are_alike(topology, position, members[0]):
                members.append(position)
                break
        else:
            classes.append([position])
    found = []
    for members in classes:
        first = tuple(itertools.accumulate((1 << position for position in members), initial=0))
        found.append((first[-1], first))
    numbers = {at: number for number, members in enumerate(classes) for at in members}
    return _DeviceClasses(tuple(found), tuple(numbers[at] for at in range(len(topology.numa))))


def _are_alike(topology: "Topology", first: int, second: int) -> bool:
    rows = zip(topology.links[first], topology.links[second], strict=True)
    return topology.numa[first] == topology.numa[second] and all(
        left == right for at, (left, right) in enumerate(rows) if at not in {first, second}
    )


@functools.lru_cache(maxsize=1 << 14)
def _best_choices(topology: "Topology", count: int, state: _State) -> _Choices:
    """Return the sets of best quality that keep the most whole."""
    splits = list(_splits(topology, count, state))
    qualities = [_quality(topology, mask) for mask, _ in splits]
    best = max(qualities)
    found = [split for split, quality in zip(splits, qualities, strict=True) if quality == best]
    if len(found) > 1:
        free = [_value_of_remaining(topology, left) for _, left in found]
        most = max(free)
        found = [split for split, remaining in zip(found, free, strict=True) if remaining == most]
    classes = [devices for devices, _ in _alike(topology).classes]
    taken = [tuple([(mask & devices).bit_count() for devices in classes]) for mask, _ in found]
    return _Choices(best.is_on_one_numa_node or best.is_island, taken)


def _splits(topology: "Topology", count: int, state: _State) -> "Iterator[tuple[int, int]]":
    """Yield the sets of so many devices, and for each the idle devices that it leaves.

    Of devices that are alike those that share their units are taken before idle ones, which keeps more whole. Where
    NUMA nodes have enough free devices, only their sets are listed: they are better than all others.
    """
    free, idle = state
    regions = [node & free for node in topology.numa_nodes if (node & free).bit_count() >= count]
    if count < 2 or not regions:
        regions = [free]
    classes = _alike(topology).classes
    for region in regions:
        found = [(count, 0, idle & ~region)]
        unit_counts = region.bit_count()
        for devices, first in classes:
            members = devices & region
            if not members:
                continue
            inside = members.bit_count()
            unit_counts -= inside
            most = min(inside, count)
            if members & idle == members:  # most often; the same in less time
                options = [(item, first[item], first[inside - item]) for item in range(most + 1)]
            else:
                busy = inside - (members & idle).bit_count()
                options = [
                    (item, first[item], first[inside - max(item, busy)]) for item in range(most + 1)
                ]
            found = [
                (shortfall - item, mask | taken, left | kept)
                for shortfall, mask, left in found
                for item, taken, kept in options
                if 0 <= shortfall - item <= unit_counts
            ]
        for _, mask, left in found:
            yield mask, left


@functools.lru_cache(maxsize=1 << 15)
def _quality(topology: "Topology", mask: int) -> Quality:
    members = list(positions(mask))
    if len(members) < 2:
        return _ONE_DEVICE
    nodes = {-1 - at if (node := topology.numa[at]) is None else node for at in members}
    return Quality(
        is_on_one_numa_node(topology, mask),
        is_island(topology, mask),
        _links(topology, mask),
        -len(nodes),
    )


@functools.lru_cache(maxsize=1 << 15)
def _links(topology: "Topology", mask: int) -> int:
    """Return the sum of the weights of all pairs: those of the first device, and those of the others."""
    others = mask & (mask - 1)
    if not others:
        return 0
    row = topology.links[(mask ^ others).bit_length() - 1]
    return sum(row[at] for at in positions(others)) + _links(topology, others)


@functools.lru_cache(maxsize=1 << 15)
def _value_of_remaining(topology: "Topology", left: int) -> _Remaining:
    """Return what idle devices are worth: disjoint sets on one NUMA node by size, connections, their number."""
    by_node = [(node & left).bit_count() for node in topology.numa_nodes]
    sets = (sum(number // size for number in by_node) for size in _KEPT_WHOLE)
    return (*sets, _links(topology, left), left.bit_count())


def _preferred(
    alike: _DeviceClasses,
    taken: "Sequence[tuple[int, ...]]",
    *,
    order: "Sequence[int]",
    members: "Iterable[int]",
) -> int:
    """Return the set that the order of positions prefers, of these numbers of devices of each class.

    Args:
        alike: the classes.
        taken: for each set the number of devices of each class.
        order: the free devices, the preferred first.
        members: the same, in the order in which those of a class are taken.
    """
    bits = [1 << at for at in range(len(alike.class_of))]
    if len(taken) > 1:
        # Sets of one size: the largest number has the first position in which two of them differ.
        for rank, at in enumerate(reversed(order)):
            bits[at] = 1 << rank
    sums: list[list[int]] = [[0] for _ in alike.classes]
    # Of the first 0, 1, 2 … devices of each class.
    for at in members:
        class_sums = sums[alike.class_of[at]]
        class_sums.append(class_sums[-1] + bits[at])
    best = max(sum(map(operator.getitem, sums, numbers)) for numbers in taken)
    return best if len(taken) == 1 else sum(1 << at for at in order if best & bits[at])


def _order(preference: "Sequence[int]", free: int) -> "Sequence[int]":
    """Return the free positions, the preferred first."""
    order = [at for at in preference if free >> at & 1]
    if len(order) < free.bit_count():
        order += [at for at in positions(free) if at not in order]
    return order


def _greedy_set(
    topology: "Topology",
    free: int,
    count: int,
    *,
    idle: int,
    order: "Sequence[int]",
    aligned_only: bool,
) -> int | None:
    regions = [node & free for node in topology.numa_nodes if (node & free).bit_count() >= count]
    if not regions:
        regions = [island for island in islands(topology, free) if island.bit_count() >= count]
    if not regions and aligned_only and count > 1:
        return None
    region = min(regions, key=int.bit_count) if regions and count > 1 else free
    rank = {position: (bool(idle >> position & 1), at) for at, position in enumerate(order)}
    members = list(positions(region)) if count > 1 else []
    strongest = [max((row[at] for at in members), default=0) for row in topology.links]
    chosen, links = 0, [0] * len(topology.numa)
    for _ in range(count):
        best = min(
            positions(region & ~chosen), key=lambda at: (-links[at], -strongest[at], rank[at])
        )
        chosen |= 1 << best
        links = list(map(operator.add, links, topology.links[best]))
    return chosen
