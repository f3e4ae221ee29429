"""Topology of a pool's devices on one node, and the quality of a set of them.

A set of devices is a bit mask: position p, bit p, is the pool's p-th device of the node by name. `device_sets`
chooses sets.
"""

import functools
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from api.names import DeviceName
    from pool.model import DeviceFacts, DeviceLink

NVLINK: Final = 1 << 16
"""Weight of one NVLink: more than the PCIe levels of all pairs of a node with 128 devices."""
MOST_NVLINKS: Final = 255
"""Links of one pair that count; devices have 18. The bound keeps sums of a broken inventory small."""
_PCIE_LEVELS: Final = {"PIX": 5, "PXB": 4, "PHB": 3, "NODE": 2, "SYS": 1}
"""Weight of the nearest common part of the PCI topology; 0 is no known connection."""


class TopologyQuality(Enum):
    """How the devices of a set are connected, best first; one device alone is an island."""

    ISLAND = "island"
    """Every pair is connected by NVLink."""
    NUMA_NODE = "NUMA node"
    """All are on one NUMA node."""
    SPLIT = "split"
    UNKNOWN = "unknown"
    """Neither a NUMA node nor a link is known of any of the pool's devices on the node."""

    @property
    def is_aligned(self) -> bool:
        return self in {TopologyQuality.ISLAND, TopologyQuality.NUMA_NODE}


class LinkConflict(msgspec.Struct, frozen=True):
    """Two devices report different connections between each other, or a device reports one to itself."""

    device: "DeviceName"
    link: "DeviceLink"
    """Link as reported by `device`."""
    answer: "DeviceLink | None"
    """Answer as reported by the peer; None where it reports none."""


@dataclass(frozen=True, slots=True)
class Topology:
    """NUMA nodes and connections of devices by position; nodes that are wired alike have equal ones."""

    numa: tuple[int | None, ...]
    """NUMA node of each device, None where it is unknown."""
    links: tuple[tuple[int, ...], ...]
    """Weight of the connection of each pair: its NVLinks, then the PCIe level. Symmetric; 0 is no known connection."""
    conflicts: tuple[LinkConflict, ...] = ()
    """Reports that disagree; the weaker of both counts in `links`."""
    numa_nodes: tuple[int, ...] = field(init=False, compare=False, repr=False)
    """Mask of the devices of each NUMA node, by its number; devices without one are in none."""
    nvlinks: tuple[int, ...] = field(init=False, compare=False, repr=False)
    """Masks: for each device the mask of those that it reaches by NVLink."""
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        nodes: dict[int, int] = {}
        for position, node in enumerate(self.numa):
            if node is not None:
                nodes[node] = nodes.get(node, 0) | 1 << position
        nvlinks = tuple(
            sum(1 << peer for peer, weight in enumerate(row) if weight >= NVLINK)
            for row in self.links
        )
        object.__setattr__(self, "numa_nodes", tuple(nodes[node] for node in sorted(nodes)))
        object.__setattr__(self, "nvlinks", nvlinks)
        object.__setattr__(self, "_hash", hash((self.numa, self.links, self.conflicts)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def is_known(self) -> bool:
        """Whether any NUMA node or connection is known."""
        return bool(self.numa_nodes) or any(map(any, self.links))


def topology_of(devices: "Sequence[DeviceFacts]") -> Topology:
    """Return the topology of a pool's devices on a node, given by name; equal nodes share one object.

    Links to other devices are ignored: they are of another pool, or not discovered yet. Of several links that a device
    reports to one peer the strongest counts, and of the reports of both ends the weaker.
    """
    numa = tuple(
        device.numa_node if device.numa_node is not None and device.numa_node >= 0 else None
        for device in devices
    )
    if not any(device.links for device in devices):
        return _intern(numa, ((0,) * len(numa),) * len(numa), ())
    position_of = {device.name: position for position, device in enumerate(devices)}
    wiring = tuple(
        tuple((position_of.get(link.peer, -1), link.type, link.count) for link in device.links)
        for device in devices
    )
    links, agree = _weights(wiring)
    conflicts = () if agree else tuple(_conflicts(devices))
    return _intern(numa, links, conflicts)


@functools.lru_cache(maxsize=1024)
def _weights(
    wiring: tuple[tuple[tuple[int, str, int], ...], ...],
) -> tuple[tuple[tuple[int, ...], ...], bool]:
    """Return the weights of all pairs, and whether all reports agree; nodes that are wired alike are read once.

    `wiring` has for each device the position of each peer, or -1, and the link to it.
    """
    count = len(wiring)
    reports = [[0] * count for _ in wiring]
    for own, reported in enumerate(wiring):
        for peer, kind, number in reported:
            if peer >= 0:
                reports[own][peer] = max(reports[own][peer], _weight_of(kind, number))
    pairs = range(count)
    links = tuple(
        tuple(min(reports[own][peer], reports[peer][own]) if own != peer else 0 for peer in pairs)
        for own in pairs
    )
    return links, tuple(map(tuple, reports)) == links


def quality_of(topology: Topology, mask: int) -> TopologyQuality:
    """Return how the devices of a set are connected."""
    if mask & (mask - 1) == 0 or is_island(topology, mask):
        return TopologyQuality.ISLAND
    if is_on_one_numa_node(topology, mask):
        return TopologyQuality.NUMA_NODE
    return TopologyQuality.SPLIT if topology.is_known else TopologyQuality.UNKNOWN


def is_aligned(topology: Topology, mask: int) -> bool:
    """Say whether a set is one device, or on one NUMA node, or connected by NVLink throughout."""
    return (
        mask & (mask - 1) == 0 or is_on_one_numa_node(topology, mask) or is_island(topology, mask)
    )


def is_on_one_numa_node(topology: Topology, mask: int) -> bool:
    """Say whether the NUMA node of all devices is known, and is the same."""
    return any(mask & ~node == 0 for node in topology.numa_nodes)


def is_island(topology: Topology, mask: int) -> bool:
    """Say whether every pair of the set is connected by NVLink."""
    nvlinks = topology.nvlinks
    return all(mask & ~nvlinks[position] == 1 << position for position in positions(mask))


def positions(mask: int) -> "Iterator[int]":
    """Yield the positions of a set, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


@functools.lru_cache(maxsize=1024)
def _intern(
    numa: tuple[int | None, ...],
    links: tuple[tuple[int, ...], ...],
    conflicts: tuple[LinkConflict, ...],
) -> Topology:
    """Return one object for equal values; a cluster has a handful of wirings, and parts of them by pool."""
    return Topology(numa, links, conflicts)


def _weight(link: "DeviceLink | None") -> int:
    return 0 if link is None else _weight_of(link.type, link.count)


def _weight_of(kind: str, count: int) -> int:
    if kind == "NVLink":
        return NVLINK * max(0, min(count, MOST_NVLINKS))
    return _PCIE_LEVELS.get(kind, 0)


def _reports(device: "DeviceFacts") -> "dict[DeviceName, DeviceLink]":
    """Return the strongest link that a device reports to each peer."""
    found: dict[DeviceName, DeviceLink] = {}
    for link in device.links:
        if link.peer not in found or _weight(link) > _weight(found[link.peer]):
            found[link.peer] = link
    return found


def _conflicts(devices: "Sequence[DeviceFacts]") -> "Iterator[LinkConflict]":
    """Yield what devices report otherwise than their peers; each pair once, by the stronger report."""
    reports = [_reports(device) for device in devices]
    names = [device.name for device in devices]
    at = {name: position for position, name in enumerate(names)}
    for own, name in enumerate(names):
        for peer, link in sorted(reports[own].items()):
            if peer == name:
                yield LinkConflict(name, link, None)
                continue
            if peer not in at:
                continue
            answer = reports[at[peer]].get(name)
            if _weight(link) > _weight(answer):
                yield LinkConflict(name, link, answer)
