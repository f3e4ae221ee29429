"""A pool in maintenance, or being deleted, allocates nothing, and empties."""

import pytest

from api.kinds.gpupool import AllocationMode
from api.names import NodeName
from pool.admission_planner import Exhausted
from pool.model import Capacity, PodPhase
from pool.placement.planner import PlacementRefused
from pool.refusal import NodeReason
from tests.support.allocation_state import (
    a_bound_pod,
    a_reserved_pod,
    commit_to,
    note_of,
    plan_reservation,
    pool_of,
    reserve,
    some_allocation_state,
    some_devices,
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
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    allocation_state.index.replace_pool(a_pool(**change))
    pool, demand = pool_of(allocation_state), a_demand(1)

    refusal = allocation_state.index.view(pool.name, a_demand(1)).refusals[N1]
    assert refusal is not None
    assert refusal.reason is reason
    assert not reason.is_resolvable
    assert isinstance(plan_reservation(allocation_state, demand), Exhausted)
    plan = allocation_state.reader.plan_bind(N1, pool, demand, uid=uid_of("p"))
    assert isinstance(plan, PlacementRefused)
    assert plan.refusal.reason is reason
    assert not allocation_state.reader.fits_without([uid_of("b")], N1, (pool, demand))


@pytest.mark.parametrize(("change", "reason"), CLOSED)
def test_free_units_are_withheld_and_used_ones_stay_used(change, reason):
    allocation_state = some_allocation_state(devices=some_devices(3))
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    a_reserved_pod(allocation_state)
    allocation_state.index.replace_pool(a_pool(**change))

    assert allocation_state.index.state(pool_of(allocation_state).name).capacity() == Capacity(
        total=3, reserved=1, used=1, available=0, unhealthy=1
    )


def test_a_reservation_on_the_node_does_not_help():
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_reserved_pod(allocation_state)
    allocation_state.index.replace_pool(a_pool(is_in_maintenance=True))

    refusal = allocation_state.reader.refusal_on(
        N1, pool_of(allocation_state), pod.demand, uid=pod.uid
    )

    assert refusal is not None
    assert refusal.reason is NodeReason.POOL_CHANGING


def test_reserves_are_given_up_and_commitments_are_not():
    allocation_state = some_allocation_state(devices=some_devices(3))
    pod = a_reserved_pod(allocation_state)
    untied = reserve(allocation_state, a_demand(1), id_="untied")
    committed = commit_to(allocation_state, a_pod_facts("q"))
    allocation_state.index.replace_pool(a_pool(is_in_maintenance=True))

    ended = allocation_state.release_reservations(pool_of(allocation_state).name)

    assert {item.reservation.id for item in ended} == {"r-p", untied.id}
    assert [item.id for item in allocation_state.ledger.all()] == [committed.id]
    assert allocation_state.reader.pods.waiting(pod.demand.resource) == [
        allocation_state.reader.pods.get(pod.uid)
    ]


def test_reserves_of_other_pools_stay():
    allocation_state = some_allocation_state(
        a_pool(), a_pool("other"), devices=[a_device("n1", 0, pool="other")]
    )
    reserved = reserve(allocation_state, a_demand(1, pool="other"))
    allocation_state.index.replace_pool(a_pool(is_in_maintenance=True))

    assert allocation_state.release_reservations(pool_of(allocation_state).name) == []
    assert allocation_state.ledger.get(reserved.id) is reserved


@pytest.mark.parametrize(("change", "reason"), CLOSED)
def test_a_note_of_an_earlier_process_is_not_taken_up(change, reason):
    allocation_state = some_allocation_state(devices=some_devices(1))
    note = note_of(reserve(allocation_state, a_demand(1)))
    restarted = some_allocation_state(a_pool(**change), devices=some_devices(1))

    restarted.observe_pod(a_pod_facts("p", reservation=note), at(1))

    assert len(restarted.ledger) == 0


def test_pods_that_were_admitted_before_run_once_the_pool_opens_again():
    allocation_state = some_allocation_state(devices=some_devices(1))
    pod = a_reserved_pod(allocation_state)
    allocation_state.index.replace_pool(a_pool(is_in_maintenance=True))
    allocation_state.release_reservations(pool_of(allocation_state).name)
    slices = a_pool(mode=AllocationMode.TIME_SLICE, slices_per_device=2)
    allocation_state.index.replace_pool(slices)

    assert set(allocation_state.index.view(slices.name, a_demand(1)).scores) == {N1}
    commitment = commit_to(allocation_state, pod)
    assert commitment.units == ("GPU-n1-0::0",)


def test_no_unit_of_the_old_layout_is_left_after_the_change():
    allocation_state = some_allocation_state(devices=some_devices(2))
    a_reserved_pod(allocation_state, "held")
    bound = a_bound_pod("b", "GPU-n1-0")
    allocation_state.observe_pod(bound, at(0))
    allocation_state.index.replace_pool(a_pool(is_in_maintenance=True))
    allocation_state.release_reservations(pool_of(allocation_state).name)
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0", phase=PodPhase.ENDED), at(1))
    allocation_state.index.replace_pool(a_pool(mode=AllocationMode.TIME_SLICE, slices_per_device=4))

    assert allocation_state.index.state(pool_of(allocation_state).name).capacity() == Capacity(
        total=8, available=8
    )
    assert all(not entry.taken for entry in allocation_state.index.devices.all())
    assert len(allocation_state.ledger) == 0


def test_of_two_pools_with_one_resource_the_older_serves_it():
    same = {"resource": "gpu.deckhouse.io/whole"}
    older = a_pool("older", created="2026-01-01T00:00:00Z", **same)
    newer = a_pool("aaa", created="2026-01-02T00:00:00Z", **same)
    allocation_state = some_allocation_state(newer, older)

    assert allocation_state.index.pool_of("gpu.deckhouse.io/whole") == older
    allocation_state.index.discard_pool(older.name)
    assert allocation_state.index.pool_of("gpu.deckhouse.io/whole") == newer
