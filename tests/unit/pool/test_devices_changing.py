"""Devices that fault, leave, return, move and change pool while pods hold them."""

from typing import TYPE_CHECKING

import pytest

from api.kinds.gpupool import AllocationMode
from api.names import DeviceName, PoolName
from pool.admission_planner import Exhausted
from pool.allocation_reader import AlreadyBound
from pool.allocation_state import AllocationState
from pool.model import Capacity
from pool.placement.planner import Placed, PlacementRefused
from tests.support.allocation_state import (
    N1,
    N2,
    a_bound_pod,
    a_reserved_pod,
    commit_to,
    plan_reservation,
    reserve,
    some_allocation_state,
    some_devices,
    uid_of,
    unit_ids,
)
from tests.support.builders import a_demand, a_device, a_pod_facts, a_pool, a_slice_pool, at

if TYPE_CHECKING:
    from pool.model import PodFacts

WHOLE = PoolName("whole")
SLICES = PoolName("slices")


def capacity(allocation_state: AllocationState, pool: str = "whole") -> Capacity:
    return allocation_state.index.state(PoolName(pool)).capacity()


def is_exhausted(allocation_state: AllocationState, units: int = 1, pool: str = "whole") -> bool:
    plan = plan_reservation(allocation_state, a_demand(units, pool=pool))
    return isinstance(plan, Exhausted)


def bind_plan(
    allocation_state: AllocationState, pod: "PodFacts"
) -> Placed | PlacementRefused | AlreadyBound:
    pool = allocation_state.index.pool_of(pod.demand.resource)
    assert pool is not None
    return allocation_state.reader.plan_bind(N1, pool, pod.demand, uid=pod.uid)


def test_a_faulted_device_is_not_reserved_and_a_healed_one_is() -> None:
    allocation_state = some_allocation_state(devices=[a_device(is_faulted=True)])
    assert is_exhausted(allocation_state)
    allocation_state.index.replace_device(a_device())
    assert not is_exhausted(allocation_state)


def test_a_pod_whose_reserved_device_faults_gets_another_device_at_bind() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    pod = a_reserved_pod(allocation_state)
    allocation_state.index.replace_device(a_device(is_faulted=True))
    assert bind_plan(allocation_state, pod) == Placed(WHOLE, N1, {"c0": unit_ids("GPU-n1-1")})


def test_a_pod_whose_reserved_device_faults_and_heals_gets_it_after_all() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    pod = a_reserved_pod(allocation_state)
    allocation_state.index.replace_device(a_device(is_faulted=True))
    allocation_state.index.replace_device(a_device())
    assert bind_plan(allocation_state, pod) == Placed(WHOLE, N1, {"c0": unit_ids("GPU-n1-0")})


def test_a_pod_whose_only_device_faults_is_refused() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_reserved_pod(allocation_state)
    allocation_state.index.replace_device(a_device(is_faulted=True))
    assert isinstance(bind_plan(allocation_state, pod), PlacementRefused)


def test_a_running_pod_keeps_its_faulted_device() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    allocation_state.index.replace_device(a_device(is_faulted=True))
    allocation_state.index.replace_device(a_device())
    assert is_exhausted(allocation_state)


def test_a_device_that_returns_is_still_reserved_by_its_pods() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    a_reserved_pod(allocation_state)
    for device in some_devices(2):
        allocation_state.index.discard_device(device.name)
    assert capacity(allocation_state) == Capacity()
    for device in some_devices(2):
        allocation_state.index.replace_device(device)
    assert capacity(allocation_state) == Capacity(total=2, reserved=1, used=1)


def test_units_claimed_before_their_device_is_known_are_taken_when_it_comes() -> None:
    allocation_state = some_allocation_state()
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    allocation_state.index.replace_device(a_device())
    assert capacity(allocation_state) == Capacity(total=1, used=1)


def test_a_device_that_left_is_not_allocated_again_by_a_pods_reservation() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_reserved_pod(allocation_state)
    allocation_state.index.discard_device(a_device().name)
    assert isinstance(bind_plan(allocation_state, pod), PlacementRefused)


def test_a_swapped_device_is_a_new_one() -> None:
    """Same slot, other UUID: the pod on the old device holds nothing of the new one."""
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    allocation_state.index.replace_device(a_device(uuid="GPU-new"))
    assert capacity(allocation_state) == Capacity(total=1, available=1)


def test_a_device_keeps_its_pods_when_it_changes_pool() -> None:
    allocation_state = some_allocation_state(a_pool(), a_pool("other"), devices=some_devices(1))
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    allocation_state.index.replace_device(a_device(pool="other"))
    assert capacity(allocation_state) == Capacity()
    assert capacity(allocation_state, "other") == Capacity(total=1, used=1)


def test_a_reserved_device_that_changed_pool_is_free_to_nobody() -> None:
    allocation_state = some_allocation_state(a_pool(), a_pool("other"), devices=some_devices(1))
    pod = a_reserved_pod(allocation_state)
    allocation_state.index.replace_device(a_device(pool="other"))
    assert isinstance(bind_plan(allocation_state, pod), PlacementRefused)
    assert is_exhausted(allocation_state, pool="other")


def test_a_device_keeps_its_pods_when_it_moves_to_another_node() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    allocation_state.index.replace_device(a_device(node="n2", name="n1-0", uuid="GPU-n1-0"))
    assert allocation_state.index.state(WHOLE).node(N1) is None
    node = allocation_state.index.state(WHOLE).node(N2)
    assert node is not None
    assert (node.used, node.free) == (1, 0)


def test_slicing_a_device_in_use_leaves_nothing_of_it_free() -> None:
    allocation_state = some_allocation_state(
        a_pool("slices"), devices=some_devices(2, pool="slices")
    )
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0", pool="slices"), at(0))
    allocation_state.index.replace_pool(a_slice_pool(slices=4))
    assert capacity(allocation_state, "slices") == Capacity(total=8, used=4, available=4)
    allocation_state.discard_pod(uid_of("b"))
    assert capacity(allocation_state, "slices") == Capacity(total=8, available=8)


def test_a_slice_in_use_keeps_the_whole_device_from_being_allocated() -> None:
    allocation_state = some_allocation_state(
        a_slice_pool(slices=4), devices=some_devices(1, pool="slices")
    )
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0::3", pool="slices"), at(0))
    allocation_state.index.replace_pool(a_pool("slices"))
    assert is_exhausted(allocation_state, pool="slices")


def test_a_slice_beyond_the_present_number_takes_the_whole_device() -> None:
    allocation_state = some_allocation_state(
        a_slice_pool(slices=4), devices=some_devices(1, pool="slices")
    )
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0::3", pool="slices"), at(0))
    allocation_state.index.replace_pool(a_slice_pool(slices=2))
    assert capacity(allocation_state, "slices") == Capacity(total=2, used=2)


def test_reserves_that_a_new_cut_lays_over_each_other_are_given_to_neither() -> None:
    allocation_state = some_allocation_state(
        a_slice_pool(slices=2), devices=some_devices(1, pool="slices")
    )
    pods = [a_reserved_pod(allocation_state, name, pool="slices") for name in ("a", "b")]
    allocation_state.index.replace_pool(a_pool("slices"))
    assert [isinstance(bind_plan(allocation_state, pod), PlacementRefused) for pod in pods] == [
        True,
        True,
    ]
    allocation_state.discard_pod(pods[0].uid)
    assert bind_plan(allocation_state, pods[1]) == Placed(SLICES, N1, {"c0": unit_ids("GPU-n1-0")})


def test_a_commitment_to_a_unit_that_is_no_more_keeps_the_device() -> None:
    allocation_state = some_allocation_state(
        a_slice_pool(slices=4), devices=some_devices(1, pool="slices")
    )
    pods = [a_reserved_pod(allocation_state, name, pool="slices") for name in "abcd"]
    commit_to(allocation_state, pods[3])
    allocation_state.index.replace_pool(a_slice_pool(slices=2))
    assert isinstance(bind_plan(allocation_state, pods[0]), PlacementRefused)


def test_a_mig_instance_that_was_made_again_is_free() -> None:
    pool = a_pool("mig", mode=AllocationMode.MIG, mig_profile="1g.10gb")
    allocation_state = some_allocation_state(
        pool, devices=[a_device(pool="mig", mig_instances=(("1g.10gb", "M0"),))]
    )
    allocation_state.observe_pod(a_bound_pod("b", "M0", pool="mig"), at(0))
    assert is_exhausted(allocation_state, pool="mig")
    allocation_state.index.replace_device(a_device(pool="mig", mig_instances=(("1g.10gb", "M1"),)))
    assert not is_exhausted(allocation_state, pool="mig")


def test_a_pod_on_an_instance_of_another_profile_keeps_the_whole_device() -> None:
    pool = a_pool("mig", mode=AllocationMode.MIG, mig_profile="1g.10gb")
    instances = (("1g.10gb", "M0"), ("3g.40gb", "M1"))
    allocation_state = some_allocation_state(
        pool, devices=[a_device(pool="mig", mig_instances=instances)]
    )
    allocation_state.observe_pod(a_bound_pod("b", "M1", pool="mig"), at(0))
    assert is_exhausted(allocation_state, pool="mig")


TWIN = a_device(index=1, uuid="GPU-n1-0")


@pytest.mark.parametrize(
    "twin",
    [
        pytest.param(TWIN, id="on the same node"),
        pytest.param(a_device("n2", uuid="GPU-n1-0"), id="on another node"),
        pytest.param(a_device("n2", uuid="GPU-n1-0", pool=None), id="in no pool"),
    ],
)
def test_a_uuid_that_two_devices_claim_is_allocated_where_it_was_first(twin) -> None:
    allocation_state = some_allocation_state(devices=[twin, a_device()])
    pod = a_reserved_pod(allocation_state)
    assert bind_plan(allocation_state, pod) == Placed(WHOLE, N1, {"c0": unit_ids("GPU-n1-0")})
    assert is_exhausted(allocation_state)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"created": "2026-01-01"}, {"created": "2026-01-02"}, id="the older one"),
        pytest.param(
            {"created": "2026-01-02"},
            {"created": "2026-01-01", "pool": None},
            id="the one that is in a pool",
        ),
        pytest.param({"name": "a"}, {"name": "b"}, id="the first by name of one second"),
    ],
)
@pytest.mark.parametrize("is_first_seen_first", [True, False])
def test_of_two_devices_with_one_uuid_one_has_it(
    first, second, *, is_first_seen_first: bool
) -> None:
    has_it = a_device("n1", uuid="GPU-x", **{"name": "n1-0", **first})
    claims_it = a_device("n2", uuid="GPU-x", **{"name": "n2-0", **second})
    seen = [has_it, claims_it] if is_first_seen_first else [claims_it, has_it]
    index = some_allocation_state(devices=seen).index
    usable = {device.facts.name: device.is_usable for device in index.devices.all()}
    assert usable == {has_it.name: True, claims_it.name: False}
    assert index.devices.with_part("GPU-x") == (has_it.name, claims_it.name)


def test_a_device_that_claims_all_uuids_of_a_node_takes_none_of_them_away() -> None:
    forged = tuple(("1g.10gb", f"GPU-n1-{number}") for number in range(4))
    made_up = a_device("n2", mig_instances=forged, created="2026-01-02T00:00:00Z")
    allocation_state = some_allocation_state(devices=[*some_devices(4), made_up])
    assert capacity(allocation_state) == Capacity(total=5, available=4, unhealthy=1)


def test_a_uuid_is_allocated_again_when_one_of_its_two_devices_is_gone() -> None:
    allocation_state = some_allocation_state(devices=[a_device(), TWIN])
    allocation_state.index.discard_device(a_device().name)
    assert capacity(allocation_state) == Capacity(total=1, available=1)


def test_a_uuid_is_allocated_again_when_the_other_device_reports_its_own() -> None:
    allocation_state = some_allocation_state(devices=[a_device(), TWIN])
    allocation_state.index.replace_device(a_device(index=1))
    assert capacity(allocation_state) == Capacity(total=2, available=2)


def test_a_pod_on_a_uuid_that_two_devices_claim_reserves_both() -> None:
    allocation_state = some_allocation_state(devices=[a_device(), TWIN])
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    assert capacity(allocation_state) == Capacity(total=2, used=2)


def test_a_reservation_stays_where_a_second_device_claims_its_uuid() -> None:
    allocation_state = some_allocation_state(devices=[a_device()])
    pod = a_reserved_pod(allocation_state)
    allocation_state.index.replace_device(
        a_device("n0", uuid="GPU-n1-0", created="2026-01-02T00:00:00Z")
    )
    assert isinstance(bind_plan(allocation_state, pod), Placed)


def test_a_reservation_on_a_uuid_that_another_device_had_before_is_refused_at_bind() -> None:
    allocation_state = some_allocation_state(devices=[a_device(created="2026-01-02T00:00:00Z")])
    pod = a_reserved_pod(allocation_state)
    allocation_state.index.replace_device(
        a_device("n0", uuid="GPU-n1-0", created="2026-01-01T00:00:00Z")
    )
    assert isinstance(bind_plan(allocation_state, pod), PlacementRefused)


def test_slices_are_reserved_one_by_one_where_a_device_of_another_pool_claims_their_uuid() -> None:
    sliced = a_device("n1", uuid="GPU-x", pool="slices")
    claims_it = a_device("n2", uuid="GPU-x", created="2026-01-02T00:00:00Z")
    allocation_state = some_allocation_state(
        a_slice_pool(slices=2), a_pool(), devices=[sliced, claims_it]
    )
    demand = a_demand(1, pool="slices")
    found = [reserve(allocation_state, demand, id_=f"r{number}").units for number in range(2)]
    assert found == [unit_ids("GPU-x::0"), unit_ids("GPU-x::1")]


def test_instances_that_were_counted_for_every_device_of_a_node_are_allocated_once() -> None:
    """Lesson 5, seen from the other side: a wrong inventory does not become double capacity."""
    pool = a_pool("mig", mode=AllocationMode.MIG, mig_profile="1g.10gb")
    instances = (("1g.10gb", "M0"), ("1g.10gb", "M1"))
    some_devices = [a_device(index=n, pool="mig", mig_instances=instances) for n in range(2)]
    assert capacity(some_allocation_state(pool, devices=some_devices), "mig") == Capacity(
        total=4, available=2, unhealthy=2
    )


def test_a_pool_that_comes_after_its_devices_and_pods_has_them_all() -> None:
    allocation_state = some_allocation_state(a_pool("unrelated"), devices=some_devices(3))
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    allocation_state.observe_pod(a_bound_pod("s", units=1, node="n2"), at(0))
    allocation_state.index.replace_pool(a_pool())
    assert capacity(allocation_state) == Capacity(total=3, used=1, available=2)


def test_a_pool_that_is_gone_gives_nothing_out_until_it_is_back() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.index.discard_pool(WHOLE)
    assert allocation_state.index.pool(WHOLE) is None
    assert allocation_state.index.pool_of("gpu.deckhouse.io/whole") is None
    assert capacity(allocation_state) == Capacity()
    allocation_state.index.replace_pool(a_pool())
    assert not is_exhausted(allocation_state)


def test_holders_of_a_device_are_bound_pods_and_reservations() -> None:
    allocation_state = some_allocation_state(
        a_slice_pool(slices=4), devices=some_devices(1, pool="slices")
    )
    allocation_state.observe_pod(
        a_bound_pod("b", "GPU-n1-0::0", "GPU-n1-0::1", pool="slices"), at(0)
    )
    reserved = reserve(allocation_state, a_demand(1, pool="slices"))
    entry = allocation_state.index.devices.get(DeviceName("n1-0"))
    assert entry is not None
    assert allocation_state.index.claims.holders(entry) == {
        uid_of("b"): ("GPU-n1-0::0", "GPU-n1-0::1"),
        reserved.id: ("GPU-n1-0::2",),
    }


def test_a_device_entry_says_what_is_free_of_it() -> None:
    allocation_state = some_allocation_state(
        a_slice_pool(slices=3), devices=some_devices(1, pool="slices")
    )
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0::0", pool="slices"), at(0))
    entry = allocation_state.index.devices.get(DeviceName("n1-0"))
    assert entry is not None
    assert (entry.taken, entry.free) == (0b001, 0b110)
    allocation_state.index.replace_device(a_device(pool="slices", is_faulted=True))
    entry = allocation_state.index.devices.get(DeviceName("n1-0"))
    assert entry is not None
    assert (entry.taken, entry.free) == (0b001, 0)


def test_units_are_found_on_their_devices() -> None:
    index = some_allocation_state(devices=some_devices(2)).index
    pod = a_bound_pod("b", "GPU-n1-1", "GPU-gone")
    assert pod.devices is not None
    assert list(map(index.devices.with_part, pod.devices["c0"])) == [("n1-1",), ()]
    assert index.claims.masks_of(pod.devices["c0"]) == {"n1-1": 1}


def test_a_pending_pods_units_are_nobodys() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_pod_facts(devices={"c0": unit_ids("GPU-n1-0")}), at(0))
    assert allocation_state.index.claims.observed.units(uid_of("p")) == ()
