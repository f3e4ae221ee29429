"""A pool in maintenance, or being deleted, gives out nothing, and empties."""

import pytest

from api.kinds.gpupool import AllocationMode
from api.names import NodeName
from pool.admission_planner import Exhausted
from pool.model import Capacity, PodPhase
from pool.placement.planner import PlacementRefused
from pool.refusal import NodeReason
from tests.support.books import (
    a_bound_pod,
    a_held_pod,
    cards,
    commit_to,
    note_of,
    plan_hold,
    pool_of,
    some_books,
    take_hold,
    uid_of,
)
from tests.support.builders import a_demand, a_device, a_pod_facts, a_pool, at

N1 = NodeName("n1")
CLOSED = [
    pytest.param({"is_in_maintenance": True}, NodeReason.POOL_CHANGING, id="maintenance"),
    pytest.param({"is_terminating": True}, NodeReason.POOL_ENDING, id="terminating"),
    pytest.param(
        {"is_in_maintenance": True, "is_terminating": True},
        NodeReason.POOL_ENDING,
        id="both",
    ),
]


@pytest.mark.parametrize(("change", "reason"), CLOSED)
def test_no_node_takes_a_pod_and_none_is_worth_an_eviction(change, reason):
    books = some_books(devices=cards(2))
    books.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    books.index.replace_pool(a_pool(**change))
    pool, demand = pool_of(books), a_demand(1)

    refusal = books.index.view(pool.name, 1).refusals[N1]
    assert refusal is not None
    assert refusal.reason is reason
    assert not reason.is_resolvable
    assert isinstance(plan_hold(books, demand), Exhausted)
    plan = books.plan_bind(N1, pool, demand, uid=uid_of("p"))
    assert isinstance(plan, PlacementRefused)
    assert plan.refusal.reason is reason
    assert not books.can_place_without([uid_of("b")], N1, (pool, demand))


@pytest.mark.parametrize(("change", "reason"), CLOSED)
def test_free_units_are_withheld_and_used_ones_stay_used(change, reason):
    books = some_books(devices=cards(3))
    books.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    a_held_pod(books)
    books.index.replace_pool(a_pool(**change))

    assert books.index.state(pool_of(books).name).capacity() == Capacity(
        total=3, reserved=1, used=1, available=0, unhealthy=1
    )


def test_a_hold_on_the_node_does_not_help():
    books = some_books(devices=cards(1))
    pod = a_held_pod(books)
    books.index.replace_pool(a_pool(is_in_maintenance=True))

    refusal = books.refusal_on(N1, pool_of(books), pod.demand, uid=pod.uid)

    assert refusal is not None
    assert refusal.reason is NodeReason.POOL_CHANGING


def test_holds_are_given_up_and_commitments_are_not():
    books = some_books(devices=cards(3))
    pod = a_held_pod(books)
    untied = take_hold(books, a_demand(1), id_="untied")
    committed = commit_to(books, a_pod_facts("q"))
    books.index.replace_pool(a_pool(is_in_maintenance=True))

    ended = books.release_holds(pool_of(books).name)

    assert {one.reservation.id for one in ended} == {"r-p", untied.id}
    assert [one.id for one in books.ledger.all()] == [committed.id]
    assert books.waiting(pod.demand.resource) == [books.pod(pod.uid)]


def test_holds_of_other_pools_stay():
    books = some_books(a_pool(), a_pool("other"), devices=[a_device("n1", 0, pool="other")])
    hold = take_hold(books, a_demand(1, pool="other"))
    books.index.replace_pool(a_pool(is_in_maintenance=True))

    assert books.release_holds(pool_of(books).name) == []
    assert books.ledger.get(hold.id) is hold


@pytest.mark.parametrize(("change", "reason"), CLOSED)
def test_a_note_of_an_earlier_process_is_not_taken_up(change, reason):
    books = some_books(devices=cards(1))
    note = note_of(take_hold(books, a_demand(1)))
    restarted = some_books(a_pool(**change), devices=cards(1))

    restarted.observe_pod(a_pod_facts("p", reservation=note), at(1))

    assert len(restarted.ledger) == 0


def test_pods_that_were_admitted_before_run_once_the_pool_opens_again():
    books = some_books(devices=cards(1))
    pod = a_held_pod(books)
    books.index.replace_pool(a_pool(is_in_maintenance=True))
    books.release_holds(pool_of(books).name)
    slices = a_pool(mode=AllocationMode.TIME_SLICE, slices_per_device=2)
    books.index.replace_pool(slices)

    assert set(books.index.view(slices.name, 1).scores) == {N1}
    commitment = commit_to(books, pod)
    assert commitment.units == ("GPU-n1-0::0",)


def test_no_unit_of_the_old_layout_is_left_after_the_change():
    books = some_books(devices=cards(2))
    a_held_pod(books, "held")
    bound = a_bound_pod("b", "GPU-n1-0")
    books.observe_pod(bound, at(0))
    books.index.replace_pool(a_pool(is_in_maintenance=True))
    books.release_holds(pool_of(books).name)
    books.observe_pod(a_bound_pod("b", "GPU-n1-0", phase=PodPhase.ENDED), at(1))
    books.index.replace_pool(a_pool(mode=AllocationMode.TIME_SLICE, slices_per_device=4))

    assert books.index.state(pool_of(books).name).capacity() == Capacity(total=8, available=8)
    assert all(not entry.taken for entry in books.index.devices())
    assert len(books.ledger) == 0


def test_of_two_pools_with_one_resource_the_older_serves_it():
    same = {"resource": "gpu.deckhouse.io/whole"}
    older = a_pool("older", created="2026-01-01T00:00:00Z", **same)
    newer = a_pool("aaa", created="2026-01-02T00:00:00Z", **same)
    books = some_books(newer, older)

    assert books.index.pool_of("gpu.deckhouse.io/whole") == older
    books.index.discard_pool(older.name)
    assert books.index.pool_of("gpu.deckhouse.io/whole") == newer
