"""What the index remembers, and what it says has changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.names import DeviceName, NodeName, PodUid, PoolName, ReservationId, UnitId
from api.units import slices_of
from pool.compute_resources import ComputeResources
from pool.index.change_log import Changes
from pool.index.claims import Claims
from pool.index.device_index import DeviceIndex
from tests.support.allocation_state import (
    N1,
    N2,
    a_bound_pod,
    a_reserved_pod,
    some_allocation_state,
    some_devices,
)
from tests.support.builders import a_device, a_node, a_pod_facts, a_pool, a_slice_pool, at

WHOLE = PoolName("whole")
D0 = DeviceName("n1-0")


def an_index(*devices) -> DeviceIndex:
    index = some_allocation_state(devices=devices or some_devices(1)).index
    index.changes.take()
    return index


def changes(devices=(), pools=(), nodes=()) -> Changes:
    return Changes(frozenset(devices), frozenset(pools), frozenset(nodes))


def masks(index: DeviceIndex) -> tuple[int, int]:
    entry = index.devices.get(D0)
    assert entry is not None
    return entry.observed, entry.assumed


def served(index: DeviceIndex, resource: str) -> PoolName | None:
    pool = index.pool_of(resource)
    return pool.name if pool is not None else None


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda index: index.replace_device(a_device()), id="device"),
        pytest.param(lambda index: index.replace_pool(a_pool()), id="pool"),
        pytest.param(lambda index: index.replace_node(a_node()), id="node"),
        pytest.param(lambda index: index.discard_device(DeviceName("ghost")), id="no device"),
        pytest.param(lambda index: index.discard_pool(PoolName("ghost")), id="no pool"),
        pytest.param(lambda index: index.discard_node(NodeName("ghost")), id="no node"),
        pytest.param(lambda index: index.set_observed(PodUid("x"), ()), id="no claim"),
        pytest.param(
            lambda index: index.set_assumed(ReservationId("x"), (UnitId("elsewhere"),)),
            id="claim on an unknown device",
        ),
        pytest.param(lambda index: index.set_unaccounted(PodUid("x"), {}), id="no unaccounted pod"),
    ],
)
def test_what_is_known_already_changes_nothing(write) -> None:
    index = an_index()
    before = index.generation
    write(index)
    assert index.generation == before
    assert index.changes.take() == changes()


@pytest.mark.parametrize(
    ("write", "want"),
    [
        pytest.param(
            lambda index: index.replace_device(a_device(is_faulted=True)),
            changes([D0], [WHOLE], [N1]),
            id="fault",
        ),
        pytest.param(
            lambda index: index.replace_device(a_device(node="n2", name=D0)),
            changes([D0], [WHOLE], [N1, N2]),
            id="move",
        ),
        pytest.param(
            lambda index: index.discard_device(D0), changes([D0], [WHOLE], [N1]), id="device gone"
        ),
        pytest.param(
            lambda index: index.replace_device(a_device(index=1, pool=None)),
            changes(["n1-1"], [], [N1]),
            id="device in no pool",
        ),
        pytest.param(
            lambda index: index.discard_pool(WHOLE), changes([D0], [WHOLE], [N1]), id="pool gone"
        ),
        pytest.param(
            lambda index: index.replace_pool(a_pool(ttl_s=5)),
            changes([D0], [WHOLE], [N1]),
            id="pool changed",
        ),
        pytest.param(
            lambda index: index.replace_node(a_node(is_cordoned=True)),
            changes([], [WHOLE], [N1]),
            id="cordon",
        ),
        pytest.param(
            lambda index: index.discard_node(N1), changes([], [WHOLE], [N1]), id="node gone"
        ),
        pytest.param(
            lambda index: index.set_observed(PodUid("x"), (UnitId("GPU-n1-0"),)),
            changes([D0], [WHOLE]),
            id="bound pod",
        ),
        pytest.param(
            lambda index: index.set_unaccounted(PodUid("x"), {(a_pool().resource, N1): 2}),
            changes([], [WHOLE]),
            id="unaccounted pod",
        ),
        pytest.param(
            lambda index: index.replace_device(a_device(index=1, uuid="GPU-n1-0")),
            changes(["n1-1"], [WHOLE], [N1]),
            id="second device with the uuid",
        ),
    ],
)
def test_a_change_is_told_once(write, want: Changes) -> None:
    index = an_index()
    before = index.generation
    write(index)
    assert index.changes.take() == want
    assert index.changes.take() == changes()
    assert index.generation > before


def test_what_the_index_does_not_keep_can_be_reported_as_changed() -> None:
    index = an_index()
    before = index.generation
    index.changes.touch_pool(WHOLE)
    index.changes.touch_device(D0)
    assert index.changes.take() == changes([D0], [WHOLE])
    assert index.generation == before


def test_a_claim_on_a_device_in_no_pool_is_noted() -> None:
    index = an_index(a_device(pool=None))
    index.set_observed(PodUid("x"), (UnitId("GPU-n1-0"),))
    assert masks(index) == (0, 0)
    index.replace_device(a_device())
    assert masks(index) == (1, 0)


def test_a_node_that_changes_touches_only_pools_with_devices_there() -> None:
    index = an_index(a_device(), a_device(index=1, pool=None), *some_devices(1, "n2", pool="other"))
    index.replace_node(a_node("n1", is_ready=False))
    assert index.changes.take().pools == {WHOLE}


def test_the_pools_of_a_node_are_those_with_an_object_and_a_device_there() -> None:
    index = an_index(a_device(), a_device(index=1, pool=None), a_device(index=2, pool="ghost"))
    assert index.pools_on(N1) == {WHOLE}
    assert index.pools_on(N2) == set()


def test_all_pools_and_devices_can_be_read() -> None:
    index = an_index(a_device(), a_device(index=1, pool="ghost"))
    assert [pool.name for pool in index.pools()] == [WHOLE]
    assert sorted(entry.facts.name for entry in index.devices.all()) == ["n1-0", "n1-1"]
    assert [entry.facts.name for entry in index.devices_on(WHOLE, N1)] == [D0]
    assert index.devices_on(PoolName("nowhere"), N1) == []
    assert index.nodes.get(N1) == a_node()


def test_two_pools_with_one_resource_are_served_by_the_first_by_name() -> None:
    index = some_allocation_state(a_pool("b", resource="gpu.deckhouse.io/x")).index
    assert served(index, "gpu.deckhouse.io/x") == "b"
    index.replace_pool(a_pool("a", resource="gpu.deckhouse.io/x"))
    assert served(index, "gpu.deckhouse.io/x") == "a"
    index.discard_pool(PoolName("a"))
    assert served(index, "gpu.deckhouse.io/x") == "b"


def test_a_pool_that_takes_another_resource_name_leaves_the_old_one() -> None:
    index = some_allocation_state().index
    index.replace_pool(a_pool(resource="gpu.deckhouse.io/new"))
    assert served(index, "gpu.deckhouse.io/whole") is None
    assert served(index, "gpu.deckhouse.io/new") == WHOLE


def test_an_empty_pool_that_is_gone_leaves_nothing_behind() -> None:
    index = some_allocation_state().index
    index.discard_pool(WHOLE)
    assert index._pools == {}


def test_a_device_of_an_unknown_pool_that_is_gone_leaves_nothing_behind() -> None:
    index = some_allocation_state(devices=[a_device(pool="ghost")]).index
    index.discard_device(D0)
    assert set(index._pools) == {WHOLE}
    assert (index.devices._names_by_part, index.devices._names_by_node) == ({}, {})


def test_units_of_a_holder_that_is_gone_are_not_taken_unless_another_has_them() -> None:
    index = some_allocation_state(
        a_slice_pool(slices=4), devices=some_devices(1, pool="slices")
    ).index
    slices = slices_of("GPU-n1-0", 4)
    one, other, loose = ReservationId("one"), ReservationId("other"), ReservationId("loose")
    index.set_observed(PodUid("p"), slices[:1])
    index.set_assumed(one, slices[1:3])
    index.set_assumed(other, slices[2:3])
    index.set_assumed(loose, slices[3:], is_confirmed=False)
    entry = index.devices.get(D0)
    assert entry is not None
    assert index.claims.taken_without(entry, ()) == 0b0111
    assert index.claims.taken_without(entry, {one}) == 0b0101
    assert index.claims.taken_without(entry, {one, other}) == 0b0001
    assert index.claims.taken_without(entry, {PodUid("p"), loose}) == 0b0110
    assert index.claims.assumed_without(entry, {one}) == 0b1100


def test_a_reservation_reserves_alone_what_no_other_reserves() -> None:
    allocation_state = some_allocation_state(
        a_slice_pool(slices=2), devices=some_devices(1, pool="slices")
    )
    for name in ("a", "b"):
        a_reserved_pod(allocation_state, name, pool="slices")
    one, other = ReservationId("r-a"), ReservationId("r-b")
    assert allocation_state.index.claims.exclusive_masks(one) == {D0: 0b01}
    entry = allocation_state.index.devices.get(D0)
    assert entry is not None
    assert allocation_state.index.claims.assumed_without(entry, {one}) == 0b10
    assert allocation_state.index.claims.assumed_without(entry, set()) == 0b11
    allocation_state.index.replace_pool(a_pool("slices"))
    assert (
        allocation_state.index.claims.exclusive_masks(one)
        == allocation_state.index.claims.exclusive_masks(other)
        == {D0: 0}
    )


def test_an_instance_that_has_no_uuid_yet_is_nobodys() -> None:
    unnamed = (("1g.10gb", ""),)
    index = an_index(a_device(mig_instances=unnamed), a_device(index=1, mig_instances=unnamed))
    assert [entry.is_usable for entry in index.devices.all()] == [True, True]


def test_a_uuid_may_be_claimed_by_more_than_two_devices() -> None:
    twins = [a_device(index=n, uuid="GPU-x") for n in range(3)]
    index = an_index(*twins)
    index.discard_device(twins[0].name)
    assert [entry.is_usable for entry in index.devices.all()] == [True, False]
    index.discard_device(twins[1].name)
    assert [entry.is_usable for entry in index.devices.all()] == [True]


def test_a_pool_is_labelled_when_all_its_known_nodes_carry_the_label() -> None:
    allocation_state = some_allocation_state(
        devices=[*some_devices(1), *some_devices(1, "n2"), *some_devices(1, "ghost")], nodes=("n1",)
    )
    index, key = allocation_state.index, "pool"
    assert [index.can_spread(WHOLE, key) for _ in range(2)] == [False, False]
    index.replace_node(a_node("n1", labels={"pool": "x"}))
    assert index.can_spread(WHOLE, key)
    index.replace_node(a_node("n2"))
    assert not index.can_spread(WHOLE, key)
    index.discard_device(DeviceName("n2-0"))
    assert index.can_spread(WHOLE, key)
    index.discard_node(N1)
    assert not index.can_spread(WHOLE, key)


def test_unaccounted_pods_are_known_by_resource_and_node() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2")):
        allocation_state.observe_pod(a_bound_pod(name, node=node, units=2), at(0))
    resource = a_pool().resource
    assert allocation_state.index.unaccounted.at(resource, N1) == {"uid-a": 2, "uid-b": 2}
    assert allocation_state.index.unaccounted.at("other", N1) == {}


def test_an_unaccounted_pod_may_be_found_to_be_elsewhere() -> None:
    index = an_index()
    resource = a_pool().resource
    index.set_unaccounted(PodUid("x"), {(resource, N1): 2})
    index.set_unaccounted(PodUid("x"), {(resource, N2): 2})
    assert index.unaccounted.at(resource, N1) == {}
    assert index.unaccounted.at(resource, N2) == {"x": 2}


UNITS = st.lists(
    st.sampled_from([UnitId(f"G{n}::{i}") for n in range(3) for i in range(3)]), unique=True
)


@given(st.lists(st.tuples(st.sampled_from("abc"), UNITS)))
def test_claims_are_what_was_said_last(writes: list[tuple[str, list[UnitId]]]) -> None:
    claims: Claims[str] = Claims()
    want: dict[str, tuple[UnitId, ...]] = {}
    for owner, units in writes:
        before = want.get(owner, ())
        changed = claims.replace(owner, tuple(units))
        want[owner] = tuple(units)
        parts = {unit[:2] for unit in (*before, *units)}
        assert changed == (parts if before != want[owner] else set())
    for part in ("G0", "G1", "G2"):
        reserved = {
            (owner, unit) for owner, units in want.items() for unit in units if unit[:2] == part
        }
        assert {(o, u) for o, units in claims.owners_on(part) for u in units} == reserved
        found = [unit for units in claims.units_on(part) for unit in units]
        assert sorted(found) == sorted(unit for _, unit in reserved)
    assert {owner: claims.units(owner) for owner in want} == want


@pytest.mark.parametrize(
    ("left", "is_whole", "has_capacity"),
    [
        pytest.param({}, True, True, id="nothing is told"),
        pytest.param({"cpu_milli": 3_000, "memory_mib": 30, "most_pods": 2}, True, True, id="all"),
        pytest.param({"cpu_milli": 2_999}, True, False, id="CPU"),
        pytest.param({"memory_mib": 29}, True, False, id="memory"),
        pytest.param({"most_pods": 1}, True, False, id="places of pods"),
        pytest.param({}, False, False, id="not all pods are read"),
    ],
)
def test_a_node_has_room_for_a_pod_beside_those_that_it_has(
    left: dict[str, int], *, is_whole: bool, has_capacity: bool
):
    index = DeviceIndex(has_all_pods=is_whole)
    index.replace_node(a_node("n1", **left))
    index.requests.replace(PodUid("other"), NodeName("n1"), ComputeResources(1_000, 10, 1))
    pod = a_pod_facts("p", requests=ComputeResources(2_000, 20, 1))
    assert index.has_capacity(pod, NodeName("n1")) is has_capacity
