"""The best set of devices, against a search through all sets by the definition."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.model import DeviceFacts, DeviceLink
from pool.placement.aligned_sets import aligned_regions, largest_aligned
from pool.placement.device_sets import best_set
from pool.placement.topology import topology_of
from tests.support import wirings

LEVELS = ["SYS", "NODE", "PHB", "PXB", "PIX"]


class Machine:
    """The definition, over sets of numbers; shares no code with the choice."""

    def __init__(self, devices: Sequence[DeviceFacts]) -> None:
        self.count = len(devices)
        self.numa = [device.numa_node for device in devices]
        self.links: dict[tuple[int, int], tuple[int, int]] = {}
        for own, device in enumerate(devices):
            for link in device.links:
                [peer] = [at for at, other in enumerate(devices) if other.name == link.peer]
                is_nvlink = link.type == "NVLink"
                level = 0 if is_nvlink else 1 + LEVELS.index(link.type)
                self.links[own, peer] = (link.count if is_nvlink else 0, level)

    def is_one_node(self, chosen: Sequence[int]) -> bool:
        nodes = {self.numa[at] for at in chosen}
        return len(chosen) < 2 or (len(nodes) == 1 and None not in nodes)

    def is_island(self, chosen: Sequence[int]) -> bool:
        pairs = itertools.combinations(chosen, 2)
        return all(self.links.get(pair, (0, 0))[0] > 0 for pair in pairs)

    def connections(self, chosen: Sequence[int]) -> tuple[int, int]:
        found = [self.links.get(pair, (0, 0)) for pair in itertools.combinations(chosen, 2)]
        return (sum(nvlinks for nvlinks, _ in found), sum(level for _, level in found))

    def quality(self, chosen: Sequence[int]):
        nodes = [self.numa[at] if self.numa[at] is not None else f"only {at}" for at in chosen]
        return (
            self.is_one_node(chosen),
            self.is_island(chosen),
            self.connections(chosen),
            -len(set(nodes)),
        )

    def remaining(self, idle: Sequence[int]):
        nodes = {node for node in self.numa if node is not None}
        disjoint = [
            sum(len([at for at in idle if self.numa[at] == node]) // size for node in nodes)
            for size in (8, 4, 2)
        ]
        return (*disjoint, self.connections(idle), len(idle))

    def best(self, free, count: int, *, idle=None, preference: Sequence[int] = ()):
        """Every set is tried; the first by the order of preference wins among equals."""
        order = [*preference, *(at for at in range(self.count) if at not in preference)]
        idle = free if idle is None else idle & free
        best = None
        for ranks in itertools.combinations(range(self.count), count):
            chosen = sorted(order[rank] for rank in ranks)
            if not free >= set(chosen):
                continue
            key = (self.quality(chosen), self.remaining(sorted(idle - set(chosen))))
            if best is None or key > best[0]:
                best = key, chosen
        return None if best is None else set(best[1])

    def largest_aligned(self, free) -> int:
        return max(
            len(chosen)
            for count in range(len(free) + 1)
            for chosen in itertools.combinations(sorted(free), count)
            if self.is_one_node(chosen) or self.is_island(chosen)
        )


def mask_of(chosen) -> int:
    return sum(1 << at for at in chosen)


def subsets(count: int):
    return (
        set(chosen)
        for size in range(count + 1)
        for chosen in itertools.combinations(range(count), size)
    )


MACHINES = [
    pytest.param(wirings.h100(), id="H100"),
    pytest.param(wirings.a100_pcie(), id="A100-PCIe"),
    pytest.param(wirings.v100_cube_mesh(), id="V100 cube mesh"),
    pytest.param(wirings.pcie_only(), id="PCIe"),
    pytest.param(wirings.unknown(), id="unknown"),
]


@pytest.mark.parametrize("devices", MACHINES)
def test_every_subset_of_eight_devices_gives_the_best_set_of_every_size(devices) -> None:
    machine, topology = Machine(devices), topology_of(devices)
    for free in subsets(8):
        largest = machine.largest_aligned(free)
        assert largest_aligned(topology, mask_of(free)) == largest
        for count in range(1, 10):
            expected = machine.best(free, count)
            found = best_set(topology, mask_of(free), count)
            assert found == (None if expected is None else mask_of(expected)), (free, count)
            aligned = best_set(topology, mask_of(free), count, aligned_only=True)
            assert aligned == (found if count <= largest else None)


@st.composite
def machines(draw: st.DrawFn) -> list[DeviceFacts]:
    numa = draw(st.lists(st.sampled_from([0, 1, 2, None]), min_size=1, max_size=10))
    wires = st.sampled_from([None, None, "SYS", "PIX", wirings.nvlink(1), wirings.nvlink(4)])
    drawn: dict[tuple[int, int], DeviceLink | str | None] = {
        pair: draw(wires) for pair in itertools.combinations(range(len(numa)), 2)
    }
    return wirings.devices(numa, lambda one, other: drawn[one, other])


@given(machines(), st.data())
def test_any_wiring_gives_the_best_set(devices, data: st.DataObject) -> None:
    machine, topology = Machine(devices), topology_of(devices)
    positions = range(len(devices))
    free, idle = (data.draw(st.sets(st.sampled_from(positions))) for _ in range(2))
    count = data.draw(st.integers(0, len(free) + 1))
    order = data.draw(st.permutations(positions))
    preference = order[: data.draw(st.integers(0, len(order)))]
    expected = machine.best(free, count, idle=idle, preference=preference)
    found = best_set(topology, mask_of(free), count, idle=mask_of(idle), preference=preference)
    assert found == (None if expected is None else mask_of(expected))
    assert largest_aligned(topology, mask_of(free)) == machine.largest_aligned(free)


@given(machines())
def test_regions_are_the_maximal_aligned_sets(devices) -> None:
    machine, topology = Machine(devices), topology_of(devices)
    aligned = [
        set(chosen)
        for chosen in subsets(len(devices))
        if len(chosen) > 1
        and (machine.is_one_node(sorted(chosen)) or machine.is_island(sorted(chosen)))
    ]
    maximal = [item for item in aligned if not any(item < other for other in aligned)]
    found = aligned_regions(topology, (1 << len(devices)) - 1)
    assert {mask_of(item) for item in maximal} <= set(found)
    assert set(found) <= {mask_of(item) for item in aligned}
    assert len(found) == len(set(found))


def test_a_single_device_breaks_no_bridge_while_half_of_one_is_free() -> None:
    topology = topology_of(wirings.a100_pcie())
    assert best_set(topology, 0b1111_1101, 1) == 0b0000_0001


def test_a_single_device_keeps_the_other_socket_whole() -> None:
    topology = topology_of(wirings.h100())
    assert best_set(topology, 0b1110_1111, 1) == 0b0010_0000


def test_a_pair_is_a_bridge_even_where_the_preference_says_otherwise() -> None:
    topology = topology_of(wirings.a100_pcie())
    assert best_set(topology, 0b1111_0110, 2, preference=(1, 2, 7)) == 0b1100_0000


def test_of_equal_devices_the_preferred_is_taken() -> None:
    topology = topology_of(wirings.h100())
    assert best_set(topology, 0b1111_1111, 2, preference=(6, 1, 5)) == 0b0110_0000


def test_a_device_that_shares_its_units_goes_before_an_idle_one() -> None:
    topology = topology_of(wirings.h100())
    assert best_set(topology, 0b1111_1111, 1, idle=0b0111_1111) == 0b1000_0000


def test_without_idle_devices_to_keep_the_preference_decides() -> None:
    topology = topology_of(wirings.a100_pcie())
    assert best_set(topology, 0b1111_1101, 1, idle=0, preference=(5,)) == 0b0010_0000


def test_a_device_without_numa_node_is_in_no_set_of_a_numa_node() -> None:
    topology = topology_of(wirings.devices([0, None, 0, 1], lambda _one, _other: None))
    assert best_set(topology, 0b1111, 2) == 0b0101
    assert best_set(topology, 0b1110, 2, aligned_only=True) is None


@pytest.mark.parametrize(
    ("devices", "most"),
    [
        pytest.param(wirings.h100(), 8, id="H100"),
        pytest.param(wirings.a100_pcie(), 4, id="A100-PCIe"),
        pytest.param(wirings.v100_cube_mesh(), 4, id="V100 cube mesh"),
        pytest.param(wirings.unknown(), 1, id="unknown"),
    ],
)
def test_a_set_can_be_aligned_up_to_a_size(devices, most: int) -> None:
    topology = topology_of(devices)
    assert largest_aligned(topology, (1 << len(devices)) - 1) == most


@given(st.integers(17, 24), st.data())
def test_more_devices_than_are_searched_give_a_set_all_the_same(count: int, data) -> None:
    nodes = data.draw(st.integers(1, 4))
    bridge = data.draw(st.sampled_from([2, 3, 4, 24]))
    devices = wirings.devices(
        [at * nodes // count for at in range(count)],
        lambda one, other: wirings.nvlink(4) if one // bridge == other // bridge else "SYS",
    )
    topology = topology_of(devices)
    free = data.draw(st.integers(0, (1 << count) - 1))
    requested = data.draw(st.integers(0, count + 1))
    found = best_set(topology, free, requested)
    assert (found is None) is (requested > free.bit_count())
    assert found is None or (found & ~free == 0 and found.bit_count() == requested)
    machine = Machine(devices)
    aligned = best_set(topology, free, requested, aligned_only=True)
    assert (aligned is None) is (requested > largest_aligned(topology, free))
    if aligned is not None:
        chosen = [at for at in range(count) if aligned >> at & 1]
        assert machine.is_one_node(chosen) or machine.is_island(chosen)
        assert aligned.bit_count() == requested


def test_seventeen_devices_fill_bridges_of_one_socket() -> None:
    topology = topology_of(
        wirings.devices(
            [at // 9 for at in range(17)],
            lambda one, other: wirings.nvlink(4) if one // 2 == other // 2 else "SYS",
        )
    )
    assert best_set(topology, (1 << 17) - 1, 4) == 0b1111 << 10
    assert best_set(topology, (1 << 17) - 1, 1, idle=(1 << 17) - 2) == 1
