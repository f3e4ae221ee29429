"""Withdrawing a reservation: its units are free at once, but only while it belongs to no pod."""

from api.names import PodUid, PoolName, ReservationId
from pool.allocation_state import AllocationState
from pool.placement.planner import Placed
from pool.reservations.reservation import End, Ended, PlacementRequest
from tests.support.allocation_state import plan_reservation
from tests.support.builders import a_demand, a_device, a_node, a_pool, at

ID = ReservationId("r1")


def with_a_hold(ended: list[Ended] | None = None) -> AllocationState:
    allocation_state = AllocationState(on_end=ended.append if ended is not None else None)
    pool, demand = a_pool(), a_demand(1)
    allocation_state.index.replace_pool(pool)
    allocation_state.index.replace_node(a_node())
    allocation_state.index.replace_device(a_device())
    placed = plan_reservation(allocation_state, demand)
    assert isinstance(placed, Placed)
    allocation_state.reserve(
        PlacementRequest(id=ID, pool=pool, demand=demand, namespace="default"), placed, at(0)
    )
    return allocation_state


def available(allocation_state: AllocationState) -> int:
    return allocation_state.index.state(PoolName("whole")).capacity().available


def test_a_withdrawn_reservation_frees_its_units_and_is_reported():
    ended: list[Ended] = []
    allocation_state = with_a_hold(ended)

    assert allocation_state.withdraw(ID) is not None

    assert available(allocation_state) == 1
    assert [(item.reservation.id, item.end) for item in ended] == [(ID, End.RELEASED)]


def test_a_reservation_is_withdrawn_once():
    allocation_state = with_a_hold()
    allocation_state.withdraw(ID)

    assert allocation_state.withdraw(ID) is None


def test_a_reservation_that_is_tied_to_a_pod_is_not_withdrawn():
    allocation_state = with_a_hold()
    allocation_state.tie(ID, PodUid("u"), name="p", now=at(0))

    assert allocation_state.withdraw(ID) is None
    assert allocation_state.ledger.get(ID) is not None
