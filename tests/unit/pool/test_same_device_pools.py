"""slicePlacement SameDevice, from the reservation to the binding: the slices of a container are on one device."""

from typing import Any

import pytest

from api.kinds.gpunodeinventory import TopologyManagerPolicy, TopologyManagerScope
from api.kinds.gpupool import DeviceTopology, SlicePlacement, Strategy
from api.names import PoolName
from api.units import part_of
from pool.allocation_state import AllocationState
from pool.model import ContainerRole, KubeletTopology
from pool.placement.planner import Placed
from pool.refusal import NodeReason
from tests.support.allocation_state import (
    N1,
    a_bound_pod,
    a_reserved_pod,
    commit_to,
    plan_reservation,
    pool_of,
    some_allocation_state,
    some_devices,
    uid_of,
)
from tests.support.builders import a_demand, a_device, a_pod_facts, a_slice_pool, at

SLICES = PoolName("slices")
INIT, MAIN = ContainerRole.INIT, ContainerRole.MAIN


def a_state(devices: int = 2, *, slices: int = 50, **changes: Any) -> AllocationState:
    pool = a_slice_pool(slices=slices, slice_placement=SlicePlacement.SAME_DEVICE, **changes)
    return some_allocation_state(pool, devices=some_devices(devices, pool="slices"))


def take(allocation_state: AllocationState, device: int, count: int, name: str = "b") -> None:
    """A bound pod has the first slices of a device."""
    units = [f"GPU-n1-{device}::{number}" for number in range(count)]
    allocation_state.observe_pod(a_bound_pod(name, *units, pool="slices"), at(0))


def counts(devices: "dict[str, tuple[Any, ...]]") -> dict[str, dict[str, int]]:
    """Units of each device by container."""
    found: dict[str, dict[str, int]] = {}
    for name, units in devices.items():
        on = found.setdefault(name, {})
        for unit in units:
            on[part_of(unit)] = on.get(part_of(unit), 0) + 1
    return found


def planned(allocation_state: AllocationState, *units: int, roles=()):
    placed = plan_reservation(allocation_state, a_demand(*units, pool="slices", roles=roles))
    assert isinstance(placed, Placed)
    return counts(placed.devices)


def refusal(allocation_state: AllocationState, *units: int):
    return allocation_state.index.view(SLICES, a_demand(*units, pool="slices")).refusals[N1]


def test_a_part_of_a_device_is_beside_another_part_where_it_fits() -> None:
    allocation_state = a_state()
    take(allocation_state, 1, 20)
    assert planned(allocation_state, 23) == {"c0": {"GPU-n1-1": 23}}
    assert planned(allocation_state, 1) == {"c0": {"GPU-n1-1": 1}}
    assert planned(allocation_state, 31) == {"c0": {"GPU-n1-0": 31}}


def test_spread_takes_the_emptiest_device() -> None:
    allocation_state = a_state(strategy=Strategy.SPREAD)
    take(allocation_state, 0, 20)
    assert planned(allocation_state, 23) == {"c0": {"GPU-n1-1": 23}}


def test_a_multiple_is_so_many_whole_devices() -> None:
    allocation_state = a_state(3)
    take(allocation_state, 1, 1)
    assert planned(allocation_state, 100) == {"c0": {"GPU-n1-0": 50, "GPU-n1-2": 50}}


def test_each_container_is_on_one_device() -> None:
    allocation_state = a_state()
    assert planned(allocation_state, 30, 30) == {"c0": {"GPU-n1-0": 30}, "c1": {"GPU-n1-1": 30}}


def test_a_container_reuses_the_slices_of_an_init_container() -> None:
    allocation_state = a_state()
    assert planned(allocation_state, 10, 30, roles=(INIT, MAIN)) == {
        "c0": {"GPU-n1-0": 10},
        "c1": {"GPU-n1-0": 30},
    }


def test_free_slices_that_are_on_no_single_device_are_no_room() -> None:
    allocation_state = a_state()
    take(allocation_state, 0, 30, name="b0")
    take(allocation_state, 1, 30, name="b1")
    assert refusal(allocation_state, 20) is None
    found = refusal(allocation_state, 21)
    assert found is not None
    assert (found.reason, found.requested, found.free, found.largest) == (
        NodeReason.NO_DEVICE_WITH_CAPACITY,
        21,
        40,
        20,
    )
    assert found.reason.is_resolvable
    assert not isinstance(plan_reservation(allocation_state, a_demand(21, pool="slices")), Placed)


def test_whole_devices_need_idle_ones() -> None:
    allocation_state = a_state(3)
    take(allocation_state, 0, 1)
    assert refusal(allocation_state, 100) is None
    take(allocation_state, 1, 1, name="b1")
    found = refusal(allocation_state, 100)
    assert found is not None
    assert found.reason is NodeReason.NO_DEVICE_WITH_CAPACITY


def test_containers_that_need_more_devices_than_the_node_has_are_refused_for_good() -> None:
    found = refusal(a_state(), 30, 30, 30)
    assert found is not None
    assert (found.reason, found.reason.is_resolvable) == (NodeReason.TOO_FEW_DEVICES, False)


def test_equally_many_units_of_other_containers_are_another_request() -> None:
    allocation_state = a_state()
    assert (
        refusal(allocation_state, 60) is not None
    )  # no part of a device, and no number of devices
    assert refusal(allocation_state, 30, 30) is None


def test_the_pods_own_reservation_counts_as_free() -> None:
    allocation_state = a_state(1)
    pod = a_reserved_pod(allocation_state, "mine", 30, pool="slices")
    pool = pool_of(allocation_state, "slices")
    assert allocation_state.reader.refusal_on(N1, pool, pod.demand, uid=pod.uid) is None
    assert allocation_state.reader.refusal_on(N1, pool, pod.demand) is not None
    assert counts(commit_to(allocation_state, pod).devices) == {"c0": {"GPU-n1-0": 30}}


def test_bind_chooses_one_device_where_the_reservation_is_gone() -> None:
    allocation_state = a_state()
    pod = a_reserved_pod(allocation_state, "mine", 30, pool="slices")
    allocation_state.index.replace_device(a_device(pool="slices", is_faulted=True))
    assert counts(commit_to(allocation_state, pod).devices) == {"c0": {"GPU-n1-1": 30}}


def test_preemption_frees_one_device() -> None:
    allocation_state = a_state()
    take(allocation_state, 0, 30, name="v0")
    take(allocation_state, 1, 25, name="v1")
    requested = (pool_of(allocation_state, "slices"), a_demand(50, pool="slices"))
    fits = allocation_state.reader.fits_without
    assert not fits([], N1, requested)
    assert fits([uid_of("v0")], N1, requested)


def test_whole_devices_are_on_one_numa_node() -> None:
    allocation_state = a_state(0)
    for index, numa in enumerate((0, 1, 1)):
        device = a_device(index=index, pool="slices", numa_node=numa)
        allocation_state.index.replace_device(device)
    assert planned(allocation_state, 100) == {"c0": {"GPU-n1-1": 50, "GPU-n1-2": 50}}


@pytest.mark.parametrize("topology", [DeviceTopology.REQUIRED, DeviceTopology.PREFERRED])
def test_required_topology_holds_for_parts_and_whole_devices(topology: DeviceTopology) -> None:
    allocation_state = a_state(0, device_topology=topology)
    for index, numa in enumerate((0, 1)):
        device = a_device(index=index, pool="slices", numa_node=numa)
        allocation_state.index.replace_device(device)
    is_required = topology is DeviceTopology.REQUIRED
    for units in ((100,), (30, 30)):
        assert (refusal(allocation_state, *units) is not None) is is_required
    assert refusal(allocation_state, 20, 30) is None


def test_kubelets_policy_holds_for_whole_devices() -> None:
    allocation_state = a_state(0)
    for index, numa in enumerate((0, 0, 1)):
        device = a_device(index=index, pool="slices", numa_node=numa)
        allocation_state.index.replace_device(device)
    take(allocation_state, 0, 10)
    assert refusal(allocation_state, 100) is None
    allocation_state.index.replace_kubelet(
        N1,
        KubeletTopology(TopologyManagerPolicy.SINGLE_NUMA_NODE, TopologyManagerScope.CONTAINER),
    )
    found = refusal(allocation_state, 100)
    assert found is not None
    assert found.reason is NodeReason.KUBELET_WOULD_REJECT
    assert refusal(allocation_state, 50, 50) is None
    assert planned(allocation_state, 30) == {"c0": {"GPU-n1-0": 30}}


def test_a_pod_without_a_reservation_is_bound_to_one_device() -> None:
    allocation_state = a_state()
    take(allocation_state, 0, 40)
    pod = a_pod_facts("p", 20, pool="slices")
    allocation_state.observe_pod(pod, at(0))
    assert counts(commit_to(allocation_state, pod).devices) == {"c0": {"GPU-n1-1": 20}}
