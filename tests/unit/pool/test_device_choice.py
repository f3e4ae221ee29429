"""The choice on one node finds units exactly where a node fits, whatever the strategy prefers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kinds.gpunodeinventory import TopologyManagerPolicy, TopologyManagerScope
from api.kinds.gpupool import DeviceTopology, SlicePlacement, Strategy
from api.names import DeviceName
from pool.demand import distinct_units
from pool.model import ContainerDemand, ContainerRole, DeviceFacts, DeviceLink, KubeletTopology
from pool.placement.compliance import complies, with_reused
from pool.placement.device_choice import choose, fits
from pool.placement.device_rules import DeviceRules, device_rules
from pool.placement.topology import is_aligned
from pool.placement.unit_request import UnitRequest
from tests.support.builders import a_device, a_slice_pool

INIT, SIDECAR, MAIN = ContainerRole.INIT, ContainerRole.SIDECAR, ContainerRole.MAIN
Containers = tuple[tuple[ContainerRole, int], ...]


@st.composite
def devices(draw: st.DrawFn, *, kubelet: bool = True) -> DeviceRules:
    count, slices = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    pairs = draw(st.sets(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))))

    def links(at: int) -> tuple[DeviceLink, ...]:
        peers = {item for pair in pairs if at in pair for item in pair} - {at}
        return tuple(DeviceLink(DeviceName(f"n1-{peer}"), "NVLink", 2) for peer in sorted(peers))

    facts: list[DeviceFacts] = [
        a_device(index=at, numa_node=draw(st.sampled_from([0, 1, None])), links=links(at))
        for at in range(count)
    ]
    pool = a_slice_pool(
        slices=slices,
        strategy=draw(st.sampled_from(Strategy)),
        slice_placement=draw(st.sampled_from(SlicePlacement)),
        device_topology=draw(st.sampled_from(DeviceTopology)),
    )
    policy = KubeletTopology(
        draw(st.sampled_from(TopologyManagerPolicy)),
        draw(st.sampled_from(TopologyManagerScope)),
        knows_numa_nodes=draw(st.booleans()),
    )
    return device_rules(pool, facts, (slices,) * count, kubelet=policy if kubelet else None)


@st.composite
def pods(draw: st.DrawFn) -> Containers:
    roles = (*draw(st.lists(st.sampled_from([INIT, SIDECAR, MAIN]), max_size=2)), MAIN)
    ordered = sorted(roles, key=lambda role: role is MAIN)
    return tuple((role, draw(st.integers(1, 6))) for role in ordered)


def units_of(containers: Containers) -> int:
    return distinct_units(ContainerDemand("", role, units) for role, units in containers)


def free_units(data: st.DataObject, node: DeviceRules) -> tuple[int, ...]:
    return tuple(data.draw(st.integers(0, most)) for most in node.capacity)


@given(st.data(), devices(), pods())
def test_a_choice_exists_where_the_node_fits_and_complies(
    data: st.DataObject, node: DeviceRules, containers: Containers
) -> None:
    free = free_units(data, node)
    choice = choose(
        node,
        free,
        containers,
        preference=data.draw(st.permutations(range(len(free)))),
        idle=data.draw(st.sampled_from([None, 0])),
    )
    assert (choice is not None) is fits(node, free, UnitRequest(units_of(containers), containers))
    if choice is None:
        return
    taken = [at for fresh in choice for at in fresh]
    assert len(taken) == units_of(containers)
    assert all(taken.count(at) <= free[at] for at in set(taken))
    assert complies(node, containers, list(with_reused(containers, choice)))


@given(st.data(), devices(kubelet=False), pods())
def test_distinct_units_fit_where_some_allowed_set_of_devices_has_them(
    data: st.DataObject, node: DeviceRules, containers: Containers
) -> None:
    if node.slices:
        return
    free, units = free_units(data, node), units_of(containers)
    allowed = [
        mask
        for mask in range(1, 1 << len(free))
        if not node.is_required_aligned or is_aligned(node.topology, mask)
    ]
    wants = any(
        sum(free[at] for at in range(len(free)) if mask >> at & 1) >= units for mask in allowed
    )
    assert fits(node, free, UnitRequest(units)) is wants
    assert fits(node, free, UnitRequest(units, containers)) is wants


@given(st.data(), devices(), pods())
def test_more_free_units_never_make_a_node_unfit(
    data: st.DataObject, node: DeviceRules, containers: Containers
) -> None:
    free = free_units(data, node)
    request = UnitRequest(units_of(containers), containers)
    if fits(node, free, request):
        assert fits(node, node.capacity, request)


@pytest.mark.parametrize("device_topology", DeviceTopology)
@pytest.mark.parametrize(
    "policy", [TopologyManagerPolicy.RESTRICTED, TopologyManagerPolicy.SINGLE_NUMA_NODE]
)
def test_the_only_numa_node_serves_a_pod_beside_a_device_without_one(
    policy: TopologyManagerPolicy, device_topology: DeviceTopology
) -> None:
    """The device without a NUMA node is the best choice: it keeps the two others together."""
    node = device_rules(
        a_slice_pool(
            slices=1, slice_placement=SlicePlacement.SAME_DEVICE, device_topology=device_topology
        ),
        [a_device(index=at, numa_node=numa) for at, numa in enumerate((0, None, 0))],
        (1, 1, 1),
        kubelet=KubeletTopology(policy, TopologyManagerScope.CONTAINER, knows_numa_nodes=False),
    )
    choice = choose(node, (1, 1, 1), ((MAIN, 1),), preference=(1, 0, 2))
    assert choice in ([[0]], [[2]])


def test_containers_are_divided_as_kubelet_demands_where_the_pool_does_not_ask() -> None:
    """Devices in the order of preference would be two of different NUMA nodes for each container."""
    node = device_rules(
        a_slice_pool(
            slices=1,
            slice_placement=SlicePlacement.SAME_DEVICE,
            device_topology=DeviceTopology.NONE,
        ),
        [a_device(index=at, numa_node=numa) for at, numa in enumerate((0, 1, 0, 1))],
        (1, 1, 1, 1),
        kubelet=KubeletTopology(
            TopologyManagerPolicy.SINGLE_NUMA_NODE,
            TopologyManagerScope.CONTAINER,
            knows_numa_nodes=False,
        ),
    )
    choice = choose(node, (1, 1, 1, 1), ((MAIN, 2), (MAIN, 2)))
    assert choice is not None
    assert sorted(map(sorted, choice)) == [[0, 2], [1, 3]]


def test_a_kubelet_that_rejects_no_pod_refuses_none() -> None:
    """Spread leaves one unit on either NUMA node; the third container gets the others of devices without one."""
    node = device_rules(
        a_slice_pool(slices=3, strategy=Strategy.SPREAD, device_topology=DeviceTopology.NONE),
        [a_device(index=at, numa_node=numa) for at, numa in enumerate((None, 0, None, None, 1))],
        (3,) * 5,
        kubelet=KubeletTopology(
            TopologyManagerPolicy.BEST_EFFORT,
            TopologyManagerScope.CONTAINER,
            knows_numa_nodes=False,
        ),
    )
    containers = ((INIT, 4), (MAIN, 4), (MAIN, 2))
    assert fits(node, (3,) * 5, UnitRequest(units_of(containers), containers))
