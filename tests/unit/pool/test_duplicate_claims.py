"""Units that two bound pods have: seen, and taken until both are gone."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.names import PodUid, PoolName, UnitId
from pool.index.device_index import DeviceIndex
from pool.model import PodPhase
from tests.support.allocation_state import a_bound_pod, some_allocation_state, some_devices, uid_of
from tests.support.builders import a_slice_pool, at

WHOLE = PoolName("whole")
A, B, C = PodUid("a"), PodUid("b"), PodUid("c")


def held_twice(*claims: tuple[PodUid, list[str]]) -> dict[str, set[str]]:
    index = DeviceIndex()
    for pod, units in claims:
        index.set_observed(pod, tuple(map(UnitId, units)))
    return {unit: set(pods) for unit, pods in index.claims.duplicates().items()}


def test_a_unit_of_one_pod_is_not_reserved_twice():
    assert held_twice((A, ["G0", "G1"]), (B, ["G2"])) == {}


def test_a_unit_of_two_pods_is_reserved_twice_though_its_device_is_unknown():
    assert held_twice((A, ["G0", "G1"]), (B, ["G1"])) == {"G1": {A, B}}


def test_slices_of_one_device_are_not_the_same_unit():
    assert held_twice((A, ["G0::0"]), (B, ["G0::1"])) == {}


def test_a_whole_device_overlaps_its_slices():
    assert held_twice((A, ["G0"]), (B, ["G0::1"]), (C, ["G0::2"])) == {"G0": {A, B, C}}


@pytest.mark.parametrize("first", ["a", "b"])
@pytest.mark.parametrize("ends", [True, False])
def test_such_a_unit_is_taken_until_both_pods_are_gone(first: str, ends: bool):
    allocation_state = some_allocation_state(devices=some_devices(1))
    for name in ("a", "b"):
        allocation_state.observe_pod(a_bound_pod(name, "GPU-n1-0"), at(0))
    capacity = allocation_state.index.state(WHOLE).capacity()
    assert (capacity.used, capacity.available) == (1, 0)
    second = "b" if first == "a" else "a"
    for name, available in ((first, 0), (second, 1)):
        if ends:
            allocation_state.observe_pod(a_bound_pod(name, "GPU-n1-0", phase=PodPhase.ENDED), at(1))
        else:
            allocation_state.discard_pod(uid_of(name))
        assert allocation_state.index.claims.duplicates() == {}
        assert allocation_state.index.state(WHOLE).capacity().available == available


UNITS = st.sets(st.sampled_from(["G0", "G0::0", "G0::1", "G1", "G1::0", "M0"]))


@given(st.lists(st.tuples(st.sampled_from("abc"), UNITS), max_size=12))
def test_doubles_are_what_a_look_at_every_pair_says(writes: list[tuple[str, set[str]]]):
    last = dict(writes)
    want: dict[str, set[str]] = {}
    for (item, mine), (other, others) in itertools.permutations(last.items(), 2):
        for unit, theirs in itertools.product(mine, others):
            if unit in {theirs, theirs.split("::")[0]}:
                want.setdefault(unit, set()).update({item, other})
    assert held_twice(*((PodUid(pod), sorted(units)) for pod, units in writes)) == want


def test_slices_that_two_pods_have_are_taken_once():
    allocation_state = some_allocation_state(
        a_slice_pool(slices=2), devices=some_devices(1, pool="slices")
    )
    for name in ("a", "b"):
        allocation_state.observe_pod(a_bound_pod(name, "GPU-n1-0::0", pool="slices"), at(0))
    capacity = allocation_state.index.state(PoolName("slices")).capacity()
    assert (capacity.used, capacity.available) == (1, 1)
