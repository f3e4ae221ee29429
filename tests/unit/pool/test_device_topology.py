"""deviceTopology: which devices of a node a pod gets by their connections, and when none will do."""

from typing import Any

import pytest
from msgspec import structs

from api import names
from api.kinds.gpunodeinventory import TopologyManagerPolicy, TopologyManagerScope
from api.kinds.gpupool import DeviceTopology, Strategy
from api.units import part_of
from pool.allocation_state import AllocationState
from pool.model import ContainerRole, DeviceFacts, DeviceLink, KubeletTopology
from pool.placement.planner import Placed
from pool.refusal import NodeReason
from tests.support.allocation_state import (
    N1,
    N2,
    a_bound_pod,
    a_placement_request,
    a_reserved_pod,
    commit_to,
    plan_reservation,
    pool_of,
    some_allocation_state,
    uid_of,
)
from tests.support.builders import a_demand, a_device, a_pod_facts, a_pool, a_slice_pool, at

WHOLE, SLICES = names.PoolName("whole"), names.PoolName("slices")
REQUIRED, NONE = DeviceTopology.REQUIRED, DeviceTopology.NONE
INIT, MAIN = ContainerRole.INIT, ContainerRole.MAIN


def two_sockets(
    *numa: int | None, node: str = "n1", pairs: "tuple[tuple[int, int], ...]" = (), pool="whole"
) -> list[DeviceFacts]:
    """Devices on these NUMA nodes, some of them connected in pairs."""
    peers = {item: other for pair in pairs for item, other in (pair, pair[::-1])}
    return [
        a_device(
            node,
            index,
            pool=pool,
            numa_node=socket,
            links=(
                (DeviceLink(names.DeviceName(f"{node}-{peers[index]}"), "NVLink", 4),)
                if index in peers
                else ()
            ),
        )
        for index, socket in enumerate(numa)
    ]


EIGHT = (0, 0, 0, 0, 1, 1, 1, 1)


def indexes(placed: Any) -> dict[str, list[int]]:
    assert isinstance(placed, Placed)
    return {
        name: [int(part_of(unit).rsplit("-", 1)[1]) for unit in units]
        for name, units in placed.devices.items()
    }


def a_state(*numa: int | None, **changes: Any) -> AllocationState:
    pairs = changes.pop("pairs", ())
    return some_allocation_state(a_pool(**changes), devices=two_sockets(*numa, pairs=pairs))


def take(allocation_state: AllocationState, *taken: int, name: str = "b") -> None:
    units = [f"GPU-n1-{index}" for index in taken]
    allocation_state.observe_pod(a_bound_pod(name, *units), at(0))


def refusal(allocation_state: AllocationState, *units: int, pool: names.PoolName = WHOLE, roles=()):
    demand = a_demand(*units, pool=pool, roles=roles)
    return allocation_state.index.view(pool, demand).refusals[N1]


def test_a_pod_gets_devices_of_one_numa_node() -> None:
    allocation_state = a_state(0, 0, 1, 1, 1, 1)
    take(allocation_state, 0)
    assert indexes(plan_reservation(allocation_state, a_demand(2))) == {"c0": [2, 3]}


def test_a_pod_gets_an_nvlink_pair() -> None:
    allocation_state = a_state(0, 0, 0, 0, pairs=((0, 2), (1, 3)))
    assert indexes(plan_reservation(allocation_state, a_demand(2))) == {"c0": [0, 2]}


def test_a_pod_of_one_device_leaves_pairs_whole() -> None:
    allocation_state = a_state(0, 0, 0, 0, 0, pairs=((0, 1), (2, 3)))
    assert indexes(plan_reservation(allocation_state, a_demand(1))) == {"c0": [4]}
    take(allocation_state, 4, 3)
    assert indexes(plan_reservation(allocation_state, a_demand(1))) == {"c0": [2]}


def test_without_device_topology_devices_are_taken_by_name() -> None:
    allocation_state = a_state(0, 0, 0, 0, pairs=((0, 2), (1, 3)), device_topology=NONE)
    assert indexes(plan_reservation(allocation_state, a_demand(2))) == {"c0": [0, 1]}


def test_containers_divide_the_pods_set() -> None:
    allocation_state = a_state(*EIGHT, pairs=((0, 2), (1, 3)))
    assert indexes(plan_reservation(allocation_state, a_demand(2, 2))) == {
        "c0": [0, 2],
        "c1": [1, 3],
    }


def test_containers_of_a_pod_stay_on_one_numa_node_rather_than_each_on_one() -> None:
    allocation_state = a_state(0, 0, 0, 1, 1, 1, 1)
    assert indexes(plan_reservation(allocation_state, a_demand(2, 2))) == {
        "c0": [3, 4],
        "c1": [5, 6],
    }


def test_slices_follow_their_devices() -> None:
    allocation_state = some_allocation_state(
        a_slice_pool(), devices=two_sockets(0, 1, 1, pool="slices")
    )
    placed = plan_reservation(allocation_state, a_demand(2, pool="slices"))
    assert indexes(placed) == {"c0": [1, 2]}


def test_a_slice_goes_to_the_fullest_device_whatever_the_topology() -> None:
    allocation_state = some_allocation_state(
        a_slice_pool(), devices=two_sockets(0, 1, 1, pool="slices")
    )
    pod = a_bound_pod("b", "GPU-n1-1::0", pool="slices")
    allocation_state.observe_pod(pod, at(0))
    assert indexes(plan_reservation(allocation_state, a_demand(1, pool="slices"))) == {"c0": [1]}


def test_spread_takes_an_idle_device_for_a_slice() -> None:
    allocation_state = some_allocation_state(
        a_slice_pool(strategy=Strategy.SPREAD), devices=two_sockets(0, 0, 1, pool="slices")
    )
    pod = a_bound_pod("b", "GPU-n1-0::0", pool="slices")
    allocation_state.observe_pod(pod, at(0))
    assert indexes(plan_reservation(allocation_state, a_demand(2, pool="slices"))) == {"c0": [1, 0]}


def test_a_device_that_came_a_moment_ago_is_taken_last_even_so() -> None:
    allocation_state = a_state(0, 0, 0, 1)
    index = allocation_state.index
    index.discard_device(names.DeviceName("n1-1"))
    index.replace_device(two_sockets(0, 0, 0, 1)[1], is_event=True)
    take(allocation_state, 2)
    assert indexes(plan_reservation(allocation_state, a_demand(2))) == {"c0": [0, 3]}


def test_preferred_takes_a_split_set_where_there_is_no_other() -> None:
    allocation_state = a_state(0, 0, 1, 1)
    take(allocation_state, 0, 2)
    assert indexes(plan_reservation(allocation_state, a_demand(2))) == {"c0": [1, 3]}


def test_required_passes_over_a_node_without_an_aligned_set() -> None:
    allocation_state = a_state(0, 0, 1, 1, device_topology=REQUIRED)
    take(allocation_state, 0, 2)
    found = refusal(allocation_state, 2)
    assert found is not None
    assert (found.reason, found.requested, found.free, found.largest) == (
        NodeReason.NOT_ALIGNED,
        2,
        2,
        1,
    )
    assert found.reason.is_resolvable
    assert refusal(allocation_state, 1) is None


def test_required_on_a_node_that_never_aligns_so_many_is_final() -> None:
    allocation_state = a_state(0, 0, 1, 1, device_topology=REQUIRED)
    found = refusal(allocation_state, 3)
    assert found is not None
    assert (found.reason, found.largest) == (NodeReason.CANNOT_ALIGN, 2)
    assert not found.reason.is_resolvable


def test_required_counts_faulted_devices_out() -> None:
    allocation_state = a_state(0, 0, 1, 1, device_topology=REQUIRED)
    index = allocation_state.index
    for at_ in (0, 2):
        index.replace_device(
            a_device(index=at_, numa_node=two_sockets(0, 0, 1, 1)[at_].numa_node, is_faulted=True)
        )
    found = refusal(allocation_state, 2)
    assert found is not None
    assert found.reason is NodeReason.CANNOT_ALIGN


def test_required_aligns_nothing_where_the_topology_is_unknown() -> None:
    allocation_state = a_state(None, None, device_topology=REQUIRED)
    found = refusal(allocation_state, 2)
    assert found is not None
    assert found.reason is NodeReason.CANNOT_ALIGN
    assert refusal(allocation_state, 1) is None


def test_required_takes_an_island_over_two_numa_nodes() -> None:
    allocation_state = a_state(0, 1, pairs=((0, 1),), device_topology=REQUIRED)
    assert refusal(allocation_state, 2) is None


def test_required_slices_share_devices_rather_than_leave_the_numa_node() -> None:
    allocation_state = some_allocation_state(
        a_slice_pool(slices=2, device_topology=REQUIRED),
        devices=two_sockets(0, 0, 1, 1, pool="slices"),
    )
    placed = plan_reservation(allocation_state, a_demand(3, pool="slices"))
    assert indexes(placed) == {"c0": [0, 1, 0]}
    assert refusal(allocation_state, 5, pool=SLICES) is not None


def test_no_reservation_is_made_where_nothing_is_aligned() -> None:
    allocation_state = a_state(0, 0, 1, 1, device_topology=REQUIRED)
    take(allocation_state, 0, 2)
    assert not isinstance(plan_reservation(allocation_state, a_demand(2)), Placed)


def test_a_node_whose_aligned_set_is_reserved_for_an_unseen_pod_fits_and_scores_nothing() -> None:
    allocation_state = a_state(0, 0, 1, device_topology=REQUIRED)
    request = a_placement_request(allocation_state, a_demand(2), id_="r")
    placed = plan_reservation(allocation_state, a_demand(2))
    assert isinstance(placed, Placed)
    allocation_state.reserve(request, placed, at(0))
    view = allocation_state.index.view(WHOLE, a_demand(2))
    assert view.scores == {N1: 0}
    pod = a_pod_facts("p", 2)
    allocation_state.observe_pod(pod, at(0))
    assert set(commit_to(allocation_state, pod).units) == {"GPU-n1-0", "GPU-n1-1"}


def test_the_pods_own_reservation_counts_as_free_for_alignment() -> None:
    allocation_state = a_state(0, 0, 1, device_topology=REQUIRED)
    pod = a_reserved_pod(allocation_state, "mine", 2)
    pool = pool_of(allocation_state)
    reader = allocation_state.reader
    assert reader.refusal_on(N1, pool, pod.demand, uid=pod.uid) is None
    other = reader.refusal_on(N1, pool, pod.demand)
    assert other is not None
    assert set(commit_to(allocation_state, pod).units) == {"GPU-n1-0", "GPU-n1-1"}


def test_preemption_frees_an_aligned_set() -> None:
    allocation_state = a_state(0, 0, 1, 1, device_topology=REQUIRED)
    for name, index in (("v0", 0), ("v2", 2)):
        take(allocation_state, index, name=name)
    take(allocation_state, 1, name="v1")
    fits = allocation_state.reader.fits_without
    requested = (pool_of(allocation_state), a_demand(2))
    assert not fits([uid_of("v0")], N1, requested)
    assert fits([uid_of("v2")], N1, requested)
    assert fits([uid_of("v0"), uid_of("v1")], N1, requested)


def test_a_view_follows_links_and_numa_nodes() -> None:
    allocation_state = a_state(0, 1, device_topology=REQUIRED)
    assert refusal(allocation_state, 2) is not None
    for device in two_sockets(0, 0):
        allocation_state.index.replace_device(device)
    assert refusal(allocation_state, 2) is None


def test_a_view_follows_the_pools_device_topology() -> None:
    allocation_state = a_state(0, 1, device_topology=REQUIRED)
    assert refusal(allocation_state, 2) is not None
    allocation_state.index.replace_pool(a_pool())
    assert refusal(allocation_state, 2) is None


def two_nodes(**changes: Any) -> AllocationState:
    """n1 has one free device on each NUMA node; n2 has all eight, which the strategy likes less."""
    allocation_state = some_allocation_state(
        a_pool(**changes),
        devices=[*two_sockets(0, 0, 1, 1), *two_sockets(*EIGHT, node="n2")],
    )
    take(allocation_state, 0, 2)
    return allocation_state


def test_a_node_with_an_aligned_set_goes_before_one_without() -> None:
    allocation_state = two_nodes()
    placed = plan_reservation(allocation_state, a_demand(2))
    assert isinstance(placed, Placed)
    assert placed.node == N2
    assert allocation_state.index.view(WHOLE, a_demand(2)).scores == {N1: 4, N2: 6}


def test_a_split_set_is_reserved_where_no_node_has_an_aligned_one() -> None:
    allocation_state = two_nodes()
    others = [f"GPU-n2-{index}" for index in range(7)]
    allocation_state.observe_pod(a_bound_pod("all", *others, node="n2"), at(0))
    placed = plan_reservation(allocation_state, a_demand(2))
    assert isinstance(placed, Placed)
    assert placed.node == N1


def test_a_pod_of_one_device_goes_where_the_strategy_says() -> None:
    allocation_state = two_nodes()
    assert allocation_state.index.view(WHOLE, a_demand(1)).scores == {N1: 8, N2: 2}


def test_without_device_topology_the_strategy_alone_chooses_the_node() -> None:
    allocation_state = two_nodes(device_topology=NONE)
    assert allocation_state.index.view(WHOLE, a_demand(2)).scores == {N1: 9, N2: 3}
    placed = plan_reservation(allocation_state, a_demand(2))
    assert isinstance(placed, Placed)
    assert placed.node == N1


SINGLE = KubeletTopology(TopologyManagerPolicy.SINGLE_NUMA_NODE, TopologyManagerScope.CONTAINER)
POD = KubeletTopology(TopologyManagerPolicy.SINGLE_NUMA_NODE, TopologyManagerScope.POD)
RESTRICTED = KubeletTopology(TopologyManagerPolicy.RESTRICTED, TopologyManagerScope.CONTAINER)
BEST_EFFORT = KubeletTopology(TopologyManagerPolicy.BEST_EFFORT, TopologyManagerScope.CONTAINER)


def test_kubelets_policy_refuses_what_kubelet_would_reject() -> None:
    allocation_state = a_state(0, 0, 1, 1, device_topology=NONE)
    take(allocation_state, 0, 2)
    assert refusal(allocation_state, 2) is None
    allocation_state.index.replace_kubelet(N1, SINGLE)
    found = refusal(allocation_state, 2)
    assert found is not None
    assert (found.reason, found.policy, found.largest) == (
        NodeReason.KUBELET_WOULD_REJECT,
        "single-numa-node",
        1,
    )
    allocation_state.index.replace_kubelet(N1, BEST_EFFORT)
    assert refusal(allocation_state, 2) is None
    allocation_state.index.replace_kubelet(N1, None)
    assert refusal(allocation_state, 2) is None


def test_where_kubelet_chooses_it_must_find_a_place_for_each_container_in_turn() -> None:
    """It gives the first container NUMA node 0, where alone the second one has room."""
    allocation_state = a_state(0, 0, 0, 1, 1, 1, device_topology=NONE)
    take(allocation_state, 3)
    allocation_state.index.replace_kubelet(N1, SINGLE)
    assert refusal(allocation_state, 2, 3) is None
    allocation_state.index.replace_kubelet(N1, structs.replace(SINGLE, knows_numa_nodes=True))
    found = refusal(allocation_state, 2, 3)
    assert found is not None
    assert (found.reason, found.requested, found.free) == (NodeReason.KUBELET_CHOOSES, 5, 5)


def test_what_kubelet_never_admits_is_final() -> None:
    allocation_state = a_state(0, 0, 1, 1)
    allocation_state.index.replace_kubelet(N1, SINGLE)
    found = refusal(allocation_state, 3)
    assert found is not None
    assert (found.reason, found.reason.is_resolvable) == (NodeReason.KUBELET_REJECTS, False)
    allocation_state.index.replace_kubelet(N1, RESTRICTED)
    assert refusal(allocation_state, 3) is None


@pytest.mark.parametrize(("kubelet", "fits"), [(SINGLE, True), (POD, False)])
def test_the_scope_decides_whether_containers_may_be_on_several_numa_nodes(
    kubelet: KubeletTopology, fits: bool
) -> None:
    allocation_state = a_state(0, 0, 1, 1)
    allocation_state.index.replace_kubelet(N1, kubelet)
    assert (refusal(allocation_state, 2, 2) is None) is fits
    assert refusal(allocation_state, 2) is None


def test_each_container_gets_the_numa_node_that_kubelet_gives_it() -> None:
    allocation_state = a_state(0, 0, 0, 1, 1, 1, device_topology=NONE)
    allocation_state.index.replace_kubelet(N1, SINGLE)
    assert indexes(plan_reservation(allocation_state, a_demand(2, 2))) == {
        "c0": [0, 1],
        "c1": [3, 4],
    }


def test_containers_decide_where_a_node_has_a_policy() -> None:
    """Two containers of two devices are no demand of four, and their views are apart."""
    allocation_state = some_allocation_state(
        devices=[*two_sockets(0, 0, 1, 1), *two_sockets(0, 0, 1, 1, node="n2")]
    )
    allocation_state.index.replace_kubelet(N1, SINGLE)
    view = allocation_state.index.view
    assert set(view(WHOLE, a_demand(4)).scores) == {N2}
    assert set(view(WHOLE, a_demand(2, 2)).scores) == {N1, N2}
    allocation_state.index.replace_kubelet(N1, None)
    assert view(WHOLE, a_demand(4)) is view(WHOLE, a_demand(2, 2))
    assert set(view(WHOLE, a_demand(4)).scores) == {N1, N2}


def test_a_reservation_that_kubelet_would_reject_by_now_is_planned_again() -> None:
    allocation_state = a_state(0, 1, 1)
    take(allocation_state, 2)
    pod = a_reserved_pod(allocation_state, "mine", 2)
    allocation_state.discard_pod(uid_of("b"))
    allocation_state.index.replace_kubelet(N1, SINGLE)
    assert set(commit_to(allocation_state, pod).units) == {"GPU-n1-1", "GPU-n1-2"}


def test_where_kubelet_chooses_a_reservation_follows_what_is_free_when_the_pod_is_bound() -> None:
    allocation_state = a_state(0, 0, 1, 1)
    knowing = structs.replace(SINGLE, knows_numa_nodes=True)
    allocation_state.index.replace_kubelet(N1, knowing)
    take(allocation_state, 0, 1)
    pod = a_reserved_pod(allocation_state, "mine", 2)
    allocation_state.discard_pod(uid_of("b"))
    assert set(commit_to(allocation_state, pod).units) == {"GPU-n1-0", "GPU-n1-1"}


def test_a_reservation_that_complies_is_kept() -> None:
    allocation_state = a_state(0, 0, 1, 1)
    take(allocation_state, 0, 1)
    pod = a_reserved_pod(allocation_state, "mine", 1)
    allocation_state.discard_pod(uid_of("b"))
    allocation_state.index.replace_kubelet(N1, POD)
    assert set(commit_to(allocation_state, pod).units) == {"GPU-n1-2"}


def test_a_reservation_is_kept_beside_a_device_that_claims_the_uuid_of_one_of_its_devices() -> None:
    allocation_state = a_state(0, 0, 0, device_topology=DeviceTopology.REQUIRED)
    take(allocation_state, 1)
    pod = a_reserved_pod(allocation_state, units=2)
    assert pod.reservation is not None
    allocation_state.discard_pod(uid_of("b"))
    claims_it = a_device(index=3, uuid="GPU-n1-2", numa_node=1, created="2026-01-02T00:00:00Z")
    allocation_state.index.replace_device(claims_it)
    assert commit_to(allocation_state, pod).devices == pod.reservation.devices
