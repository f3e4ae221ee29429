"""What a node's devices report of their NUMA nodes and connections, and what a set of them is worth."""

import functools

import pytest

from pool.model import DeviceLink
from pool.placement.topology import NVLINK, TopologyQuality, is_aligned, quality_of, topology_of
from tests.support import wirings
from tests.support.builders import a_device

ISLAND, NUMA_NODE = TopologyQuality.ISLAND, TopologyQuality.NUMA_NODE
SPLIT, UNKNOWN = TopologyQuality.SPLIT, TopologyQuality.UNKNOWN


def a_linked_device(index: int, *links: tuple[int, str, int], **changes):
    found = tuple(DeviceLink(a_device(index=peer).name, kind, count) for peer, kind, count in links)
    return a_device(index=index, links=found, **changes)


@pytest.mark.parametrize(
    ("machine", "mask", "expected"),
    [
        pytest.param(wirings.h100(), 0b0000_0101, ISLAND, id="NVSwitch within a socket"),
        pytest.param(wirings.h100(), 0b1001_0000, ISLAND, id="NVSwitch across sockets"),
        pytest.param(wirings.h100(), 0b1111_1111, ISLAND, id="NVSwitch, all"),
        pytest.param(wirings.a100_pcie(), 0b0000_0011, ISLAND, id="bridged pair"),
        pytest.param(wirings.a100_pcie(), 0b0000_0110, NUMA_NODE, id="halves of two bridges"),
        pytest.param(wirings.a100_pcie(), 0b0000_1111, NUMA_NODE, id="two bridges of a socket"),
        pytest.param(wirings.a100_pcie(), 0b0011_0011, SPLIT, id="two bridges of two sockets"),
        pytest.param(wirings.v100_cube_mesh(), 0b0000_1111, ISLAND, id="quad of a cube mesh"),
        pytest.param(wirings.v100_cube_mesh(), 0b0001_0001, ISLAND, id="edge of a cube mesh"),
        pytest.param(wirings.v100_cube_mesh(), 0b0011_0011, SPLIT, id="face of a cube mesh"),
        pytest.param(wirings.pcie_only(), 0b0000_1001, NUMA_NODE, id="one socket"),
        pytest.param(wirings.pcie_only(), 0b0001_1000, SPLIT, id="two sockets"),
        pytest.param(wirings.unknown(), 0b0000_0011, UNKNOWN, id="nothing is known"),
        pytest.param(wirings.unknown(), 0b0000_0010, ISLAND, id="one device"),
    ],
)
def test_quality_of_a_set(machine, mask: int, expected: TopologyQuality) -> None:
    topology = topology_of(machine)
    assert quality_of(topology, mask) is expected
    assert is_aligned(topology, mask) is expected.is_aligned
    assert expected.is_aligned is (expected in {ISLAND, NUMA_NODE})


def _always(link, _one: int, _other: int):
    return link


def test_nodes_that_are_wired_alike_share_one_topology() -> None:
    assert topology_of(wirings.h100()) is topology_of(wirings.h100())
    assert topology_of(wirings.h100()) != topology_of(wirings.a100_pcie())


def test_without_links_the_numa_nodes_are_known() -> None:
    topology = topology_of([a_device(index=at, numa_node=at // 2) for at in range(4)])
    assert topology.numa_nodes == (0b0011, 0b1100)
    assert topology.is_known
    assert quality_of(topology, 0b0011) is NUMA_NODE


def test_without_numa_nodes_the_links_are_known() -> None:
    topology = topology_of(
        wirings.devices([None] * 3, lambda one, other: "PHB" if other == 1 else None)
    )
    assert topology.is_known
    assert quality_of(topology, 0b011) is SPLIT


@pytest.mark.parametrize("unknown", [None, -1])
def test_a_device_without_a_numa_node_is_on_none(unknown: int | None) -> None:
    devices = [
        a_device(index=0, numa_node=unknown),
        *(a_device(index=at, numa_node=0) for at in (1, 2)),
    ]
    topology = topology_of(devices)
    assert topology.numa == (None, 0, 0)
    assert [quality_of(topology, mask) for mask in (0b110, 0b011, 0b001)] == [
        NUMA_NODE,
        SPLIT,
        ISLAND,
    ]


def test_more_links_weigh_more_than_any_pcie_level() -> None:
    levels = [None, "SYS", "NODE", "PHB", "PXB", "PIX", wirings.nvlink(1), wirings.nvlink(2)]
    found = []
    for level in levels:
        devices = wirings.devices([0, 0], functools.partial(_always, level))
        found.append(topology_of(devices).links[0][1])
    assert found == sorted(set(found))
    assert found[-2:] == [NVLINK, 2 * NVLINK]


@pytest.mark.parametrize(
    ("one", "other", "weight"),
    [
        pytest.param((1, "NVLink", 4), (0, "NVLink", 2), 2 * NVLINK, id="fewer NVLinks"),
        pytest.param((1, "NVLink", 4), (0, "PIX", 1), 5, id="PCIe"),
        pytest.param((1, "NVLink", 4), None, 0, id="nothing"),
        pytest.param((1, "NVLink", 4), (0, "Infinity", 9), 0, id="a type that does not exist"),
        pytest.param((1, "NVLink", 4), (0, "NVLink", -3), 0, id="a negative count"),
    ],
)
def test_of_two_contradictory_reports_the_weaker_counts(one, other, weight: int) -> None:
    for first, second in ((one, other), (other, one)):
        ends = [first, second]
        if ends[0] is other:
            ends = [(1, *other[1:]) if other else None, (0, *one[1:])]
        devices = [a_linked_device(at, *([end] if end else [])) for at, end in enumerate(ends)]
        topology = topology_of(devices)
        assert topology.links == ((0, weight), (weight, 0))
        [conflict] = topology.conflicts
        assert (conflict.link.type, conflict.link.count) == ("NVLink", 4)
        assert (conflict.answer is None) is (other is None)


def test_a_link_of_a_device_to_itself_counts_nothing_and_is_reported() -> None:
    topology = topology_of([a_linked_device(0, (0, "NVLink", 4)), a_linked_device(1)])
    assert not topology.is_known
    [conflict] = topology.conflicts
    assert (conflict.device, conflict.link.peer, conflict.answer) == ("n1-0", "n1-0", None)


def test_links_to_devices_of_other_pools_are_ignored() -> None:
    topology = topology_of([a_linked_device(0, (7, "NVLink", 4)), a_linked_device(1)])
    assert not topology.is_known
    assert topology.conflicts == ()


def test_of_several_links_to_one_peer_the_strongest_counts() -> None:
    devices = [
        a_linked_device(0, (1, "PIX", 1), (1, "NVLink", 2), (1, "SYS", 1)),
        a_linked_device(1, (0, "NVLink", 2)),
    ]
    topology = topology_of(devices)
    assert topology.links[0][1] == 2 * NVLINK
    assert topology.conflicts == ()


def test_a_node_of_more_devices_than_any_machine_has_is_read_like_others() -> None:
    topology = topology_of(wirings.h100(17))
    assert quality_of(topology, (1 << 17) - 1) is ISLAND


def test_no_devices_have_a_topology_too() -> None:
    assert not topology_of([]).is_known
