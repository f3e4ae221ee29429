"""The largest aligned sets of devices: what `Required` can get on a node.

A NUMA node's free devices are one; the islands of NVLink are the maximal cliques of its graph.
"""

import functools
from typing import TYPE_CHECKING, Final

from pool.placement.topology import positions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pool.placement.topology import Topology

MOST_EXACT: Final = 16
"""Devices of a node up to which the choice of sets is exact: 12,870 sets of 8. With more it is greedy."""


@functools.lru_cache(maxsize=1 << 14)
def largest_aligned(topology: "Topology", free: int) -> int:
    """Return the size of the largest aligned set of free devices; 0 without free ones.

    Exact for up to `MOST_EXACT` devices, and at most too small with more: `best_set` finds an aligned set of a size
    if and only if this is not less.
    """
    on_nodes = ((node & free).bit_count() for node in topology.numa_nodes)
    on_islands = (island.bit_count() for island in islands(topology, free))
    return max(1 if free else 0, *on_nodes, *on_islands)


def aligned_regions(topology: "Topology", within: int) -> tuple[int, ...]:
    """Return the maximal aligned sets of these devices, NUMA nodes first; single devices are not listed."""
    numa_nodes = [node & within for node in topology.numa_nodes]
    others = [
        island
        for island in islands(topology, within)
        if not any(island & ~node == 0 for node in numa_nodes)
    ]
    return tuple(mask for mask in (*numa_nodes, *sorted(others)) if mask & (mask - 1))


def islands(topology: "Topology", within: int) -> list[int]:
    """Return the maximal islands of these devices; beyond `MOST_EXACT` devices one of each device."""
    if len(topology.numa) > MOST_EXACT:
        return sorted({_grown_island(topology, position, within) for position in positions(within)})
    found: list[int] = []
    _extend(topology.nvlinks, (0, within, 0), found)
    return found


def _extend(nvlinks: "Sequence[int]", state: tuple[int, int, int], found: list[int]) -> None:
    """List the maximal islands around one (Bron and Kerbosch).

    `state` is the island and, of the devices that every member reaches, those to be tried and those already tried.
    """
    island, to_try, tried = state
    if not to_try and not tried:
        found.append(island)
        return
    pivot = max(positions(to_try | tried), key=lambda at: (to_try & nvlinks[at]).bit_count())
    for position in positions(to_try & ~nvlinks[pivot]):
        reached = nvlinks[position]
        _extend(nvlinks, (island | 1 << position, to_try & reached, tried & reached), found)
        to_try &= ~(1 << position)
        tried |= 1 << position


def _grown_island(topology: "Topology", position: int, within: int) -> int:
    island = 1 << position
    reached = within & topology.nvlinks[position]
    while reached:
        position = (reached & -reached).bit_length() - 1
        island |= 1 << position
        reached &= topology.nvlinks[position]
    return island
