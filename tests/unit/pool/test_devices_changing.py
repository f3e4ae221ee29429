"""Cards that fault, leave, return, move and change pool while pods hold them."""

from typing import TYPE_CHECKING

import pytest

from api.kinds.gpupool import AllocationMode
from api.names import DeviceName, PoolName
from pool.admission_planner import Exhausted
from pool.allocation_state import AllocationState, AlreadyBound
from pool.model import Capacity
from pool.placement.planner import Placed, PlacementRefused
from tests.support.books import (
    N1,
    N2,
    a_bound_pod,
    a_held_pod,
    cards,
    commit_to,
    plan_hold,
    some_books,
    take_hold,
    uid_of,
    unit_ids,
)
from tests.support.builders import a_demand, a_device, a_pod_facts, a_pool, a_slice_pool, at

if TYPE_CHECKING:
    from pool.model import PodFacts

WHOLE = PoolName("whole")
SLICES = PoolName("slices")


def capacity(books: AllocationState, pool: str = "whole") -> Capacity:
    return books.index.state(PoolName(pool)).capacity()


def is_exhausted(books: AllocationState, units: int = 1, pool: str = "whole") -> bool:
    plan = plan_hold(books, a_demand(units, pool=pool))
    return isinstance(plan, Exhausted)


def bind_plan(books: AllocationState, pod: "PodFacts") -> Placed | PlacementRefused | AlreadyBound:
    pool = books.index.pool_of(pod.demand.resource)
    assert pool is not None
    return books.plan_bind(N1, pool, pod.demand, uid=pod.uid)


def test_a_faulted_card_is_not_held_and_a_healed_one_is() -> None:
    books = some_books(devices=[a_device(is_faulted=True)])
    assert is_exhausted(books)
    books.index.replace_device(a_device())
    assert not is_exhausted(books)


def test_a_pod_whose_held_card_faults_gets_another_card_at_bind() -> None:
    books = some_books(devices=cards(2))
    pod = a_held_pod(books)
    books.index.replace_device(a_device(is_faulted=True))
    assert bind_plan(books, pod) == Placed(WHOLE, N1, {"c0": unit_ids("GPU-n1-1")})


def test_a_pod_whose_held_card_faults_and_heals_gets_it_after_all() -> None:
    books = some_books(devices=cards(2))
    pod = a_held_pod(books)
    books.index.replace_device(a_device(is_faulted=True))
    books.index.replace_device(a_device())
    assert bind_plan(books, pod) == Placed(WHOLE, N1, {"c0": unit_ids("GPU-n1-0")})


def test_a_pod_whose_only_card_faults_is_refused() -> None:
    books = some_books(devices=cards(1))
    pod = a_held_pod(books)
    books.index.replace_device(a_device(is_faulted=True))
    assert isinstance(bind_plan(books, pod), PlacementRefused)


def test_a_running_pod_keeps_its_faulted_card() -> None:
    books = some_books(devices=cards(1))
    books.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    books.index.replace_device(a_device(is_faulted=True))
    books.index.replace_device(a_device())
    assert is_exhausted(books)


def test_a_card_that_returns_is_still_held_by_its_pods() -> None:
    books = some_books(devices=cards(2))
    books.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    a_held_pod(books)
    for device in cards(2):
        books.index.discard_device(device.name)
    assert capacity(books) == Capacity()
    for device in cards(2):
        books.index.replace_device(device)
    assert capacity(books) == Capacity(total=2, reserved=1, used=1)


def test_units_claimed_before_their_card_is_known_are_taken_when_it_comes() -> None:
    books = some_books()
    books.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    books.index.replace_device(a_device())
    assert capacity(books) == Capacity(total=1, used=1)


def test_a_card_that_left_is_not_given_out_again_by_a_pods_hold() -> None:
    books = some_books(devices=cards(1))
    pod = a_held_pod(books)
    books.index.discard_device(a_device().name)
    assert isinstance(bind_plan(books, pod), PlacementRefused)


def test_a_swapped_card_is_a_new_one() -> None:
    """Same slot, other UUID: the pod on the old card holds nothing of the new one."""
    books = some_books(devices=cards(1))
    books.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    books.index.replace_device(a_device(uuid="GPU-new"))
    assert capacity(books) == Capacity(total=1, available=1)


def test_a_card_keeps_its_pods_when_it_changes_pool() -> None:
    books = some_books(a_pool(), a_pool("other"), devices=cards(1))
    books.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    books.index.replace_device(a_device(pool="other"))
    assert capacity(books) == Capacity()
    assert capacity(books, "other") == Capacity(total=1, used=1)


def test_a_held_card_that_changed_pool_is_free_to_nobody() -> None:
    books = some_books(a_pool(), a_pool("other"), devices=cards(1))
    pod = a_held_pod(books)
    books.index.replace_device(a_device(pool="other"))
    assert isinstance(bind_plan(books, pod), PlacementRefused)
    assert is_exhausted(books, pool="other")


def test_a_card_keeps_its_pods_when_it_moves_to_another_node() -> None:
    books = some_books(devices=cards(1))
    books.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    books.index.replace_device(a_device(node="n2", name="n1-0", uuid="GPU-n1-0"))
    assert books.index.state(WHOLE).node(N1) is None
    node = books.index.state(WHOLE).node(N2)
    assert node is not None
    assert (node.used, node.free) == (1, 0)


def test_slicing_a_card_in_use_leaves_nothing_of_it_free() -> None:
    books = some_books(a_pool("slices"), devices=cards(2, pool="slices"))
    books.observe_pod(a_bound_pod("b", "GPU-n1-0", pool="slices"), at(0))
    books.index.replace_pool(a_slice_pool(slices=4))
    assert capacity(books, "slices") == Capacity(total=8, used=4, available=4)
    books.discard_pod(uid_of("b"))
    assert capacity(books, "slices") == Capacity(total=8, available=8)


def test_a_slice_in_use_keeps_the_whole_card_from_being_given_out() -> None:
    books = some_books(a_slice_pool(slices=4), devices=cards(1, pool="slices"))
    books.observe_pod(a_bound_pod("b", "GPU-n1-0::3", pool="slices"), at(0))
    books.index.replace_pool(a_pool("slices"))
    assert is_exhausted(books, pool="slices")


def test_a_slice_beyond_the_present_number_takes_the_whole_card() -> None:
    books = some_books(a_slice_pool(slices=4), devices=cards(1, pool="slices"))
    books.observe_pod(a_bound_pod("b", "GPU-n1-0::3", pool="slices"), at(0))
    books.index.replace_pool(a_slice_pool(slices=2))
    assert capacity(books, "slices") == Capacity(total=2, used=2)


def test_holds_that_a_new_cut_lays_over_each_other_are_given_to_neither() -> None:
    books = some_books(a_slice_pool(slices=2), devices=cards(1, pool="slices"))
    pods = [a_held_pod(books, name, pool="slices") for name in ("a", "b")]
    books.index.replace_pool(a_pool("slices"))
    assert [isinstance(bind_plan(books, pod), PlacementRefused) for pod in pods] == [True, True]
    books.discard_pod(pods[0].uid)
    assert bind_plan(books, pods[1]) == Placed(SLICES, N1, {"c0": unit_ids("GPU-n1-0")})


def test_a_commitment_to_a_unit_that_is_no_more_keeps_the_card() -> None:
    books = some_books(a_slice_pool(slices=4), devices=cards(1, pool="slices"))
    pods = [a_held_pod(books, name, pool="slices") for name in "abcd"]
    commit_to(books, pods[3])
    books.index.replace_pool(a_slice_pool(slices=2))
    assert isinstance(bind_plan(books, pods[0]), PlacementRefused)


def test_a_mig_instance_that_was_made_anew_is_free() -> None:
    pool = a_pool("mig", mode=AllocationMode.MIG, mig_profile="1g.10gb")
    books = some_books(pool, devices=[a_device(pool="mig", mig_instances=(("1g.10gb", "M0"),))])
    books.observe_pod(a_bound_pod("b", "M0", pool="mig"), at(0))
    assert is_exhausted(books, pool="mig")
    books.index.replace_device(a_device(pool="mig", mig_instances=(("1g.10gb", "M1"),)))
    assert not is_exhausted(books, pool="mig")


def test_a_pod_on_an_instance_of_another_profile_keeps_the_whole_card() -> None:
    pool = a_pool("mig", mode=AllocationMode.MIG, mig_profile="1g.10gb")
    instances = (("1g.10gb", "M0"), ("3g.40gb", "M1"))
    books = some_books(pool, devices=[a_device(pool="mig", mig_instances=instances)])
    books.observe_pod(a_bound_pod("b", "M1", pool="mig"), at(0))
    assert is_exhausted(books, pool="mig")


TWIN = a_device(index=1, uuid="GPU-n1-0")


@pytest.mark.parametrize(
    "twin",
    [
        pytest.param(TWIN, id="on the same node"),
        pytest.param(a_device("n2", uuid="GPU-n1-0"), id="on another node"),
        pytest.param(a_device("n2", uuid="GPU-n1-0", pool=None), id="in no pool"),
    ],
)
def test_a_uuid_that_two_cards_claim_is_given_out_where_it_was_first(twin) -> None:
    books = some_books(devices=[twin, a_device()])
    pod = a_held_pod(books)
    assert bind_plan(books, pod) == Placed(WHOLE, N1, {"c0": unit_ids("GPU-n1-0")})
    assert is_exhausted(books)


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
def test_of_two_cards_with_one_uuid_one_has_it(first, second, *, is_first_seen_first: bool) -> None:
    has_it = a_device("n1", uuid="GPU-x", **{"name": "n1-0", **first})
    claims_it = a_device("n2", uuid="GPU-x", **{"name": "n2-0", **second})
    seen = [has_it, claims_it] if is_first_seen_first else [claims_it, has_it]
    index = some_books(devices=seen).index
    usable = {one.facts.name: one.is_usable for one in index.devices()}
    assert usable == {has_it.name: True, claims_it.name: False}
    assert index.claimants("GPU-x") == (has_it.name, claims_it.name)


def test_a_card_that_claims_all_uuids_of_a_node_takes_none_of_them_away() -> None:
    forged = tuple(("1g.10gb", f"GPU-n1-{number}") for number in range(4))
    made_up = a_device("n2", mig_instances=forged, created="2026-01-02T00:00:00Z")
    books = some_books(devices=[*cards(4), made_up])
    assert capacity(books) == Capacity(total=5, available=4, unhealthy=1)


def test_a_uuid_is_given_out_again_when_one_of_its_two_cards_is_gone() -> None:
    books = some_books(devices=[a_device(), TWIN])
    books.index.discard_device(a_device().name)
    assert capacity(books) == Capacity(total=1, available=1)


def test_a_uuid_is_given_out_again_when_the_other_card_reports_its_own() -> None:
    books = some_books(devices=[a_device(), TWIN])
    books.index.replace_device(a_device(index=1))
    assert capacity(books) == Capacity(total=2, available=2)


def test_a_pod_on_a_uuid_that_two_cards_claim_holds_both() -> None:
    books = some_books(devices=[a_device(), TWIN])
    books.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    assert capacity(books) == Capacity(total=2, used=2)


def test_a_hold_stays_where_a_second_card_claims_its_uuid() -> None:
    books = some_books(devices=[a_device()])
    pod = a_held_pod(books)
    books.index.replace_device(a_device("n0", uuid="GPU-n1-0", created="2026-01-02T00:00:00Z"))
    assert isinstance(bind_plan(books, pod), Placed)


def test_a_hold_on_a_uuid_that_another_card_had_before_is_refused_at_bind() -> None:
    books = some_books(devices=[a_device(created="2026-01-02T00:00:00Z")])
    pod = a_held_pod(books)
    books.index.replace_device(a_device("n0", uuid="GPU-n1-0", created="2026-01-01T00:00:00Z"))
    assert isinstance(bind_plan(books, pod), PlacementRefused)


def test_instances_that_were_counted_for_every_card_of_a_node_are_given_out_once() -> None:
    """Defect 5, seen from the other side: a wrong inventory does not become double capacity."""
    pool = a_pool("mig", mode=AllocationMode.MIG, mig_profile="1g.10gb")
    instances = (("1g.10gb", "M0"), ("1g.10gb", "M1"))
    devices = [a_device(index=n, pool="mig", mig_instances=instances) for n in range(2)]
    assert capacity(some_books(pool, devices=devices), "mig") == Capacity(
        total=4, available=2, unhealthy=2
    )


def test_a_pool_that_comes_after_its_cards_and_pods_has_them_all() -> None:
    books = some_books(a_pool("unrelated"), devices=cards(3))
    books.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    books.observe_pod(a_bound_pod("s", units=1, node="n2"), at(0))
    books.index.replace_pool(a_pool())
    assert capacity(books) == Capacity(total=3, used=1, available=2)


def test_a_pool_that_is_gone_gives_nothing_out_until_it_is_back() -> None:
    books = some_books(devices=cards(1))
    books.index.discard_pool(WHOLE)
    assert books.index.pool(WHOLE) is None
    assert books.index.pool_of("gpu.deckhouse.io/whole") is None
    assert capacity(books) == Capacity()
    books.index.replace_pool(a_pool())
    assert not is_exhausted(books)


def test_holders_of_a_card_are_bound_pods_and_reservations() -> None:
    books = some_books(a_slice_pool(slices=4), devices=cards(1, pool="slices"))
    books.observe_pod(a_bound_pod("b", "GPU-n1-0::0", "GPU-n1-0::1", pool="slices"), at(0))
    hold = take_hold(books, a_demand(1, pool="slices"))
    entry = books.index.device_of(hold.units[0])
    assert entry is not None
    assert books.index.holders(entry) == {
        uid_of("b"): ("GPU-n1-0::0", "GPU-n1-0::1"),
        hold.id: ("GPU-n1-0::2",),
    }


def test_a_device_entry_says_what_is_free_of_it() -> None:
    books = some_books(a_slice_pool(slices=3), devices=cards(1, pool="slices"))
    books.observe_pod(a_bound_pod("b", "GPU-n1-0::0", pool="slices"), at(0))
    entry = books.index.device(DeviceName("n1-0"))
    assert entry is not None
    assert (entry.taken, entry.free) == (0b001, 0b110)
    books.index.replace_device(a_device(pool="slices", is_faulted=True))
    entry = books.index.device(DeviceName("n1-0"))
    assert entry is not None
    assert (entry.taken, entry.free) == (0b001, 0)


def test_a_pod_is_told_where_a_unit_sits() -> None:
    index = some_books(devices=cards(2)).index
    pod = a_bound_pod("b", "GPU-n1-1", "GPU-gone")
    assert pod.devices is not None
    entries = [index.device_of(unit) for unit in pod.devices["c0"]]
    assert [entry.facts.name if entry else None for entry in entries] == ["n1-1", None]
    assert index.masks_of(pod.devices["c0"]) == {"n1-1": 1}


def test_a_pending_pods_units_are_nobodys() -> None:
    books = some_books(devices=cards(1))
    books.observe_pod(a_pod_facts(devices={"c0": unit_ids("GPU-n1-0")}), at(0))
    assert books.index.observed_units(uid_of("p")) == ()
