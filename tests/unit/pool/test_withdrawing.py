"""Withdrawing a hold: its units are free at once, but only while it belongs to no pod."""

from api.names import PodUid, PoolName, ReservationId
from pool.allocation_state import AllocationState, PlacementRequest
from pool.placement.planner import Placed
from pool.reservations.reservation import End, Ended
from tests.support.books import plan_hold
from tests.support.builders import a_demand, a_device, a_node, a_pool, at

ID = ReservationId("r1")


def with_a_hold(ended: list[Ended] | None = None) -> AllocationState:
    books = AllocationState(on_end=ended.append if ended is not None else None)
    pool, demand = a_pool(), a_demand(1)
    books.index.replace_pool(pool)
    books.index.replace_node(a_node())
    books.index.replace_device(a_device())
    placed = plan_hold(books, demand)
    assert isinstance(placed, Placed)
    books.hold(
        PlacementRequest(id=ID, pool=pool, demand=demand, namespace="default"), placed, at(0)
    )
    return books


def available(books: AllocationState) -> int:
    return books.index.state(PoolName("whole")).capacity().available


def test_a_withdrawn_hold_frees_its_units_and_is_reported():
    ended: list[Ended] = []
    books = with_a_hold(ended)

    assert books.withdraw(ID) is not None

    assert available(books) == 1
    assert [(one.reservation.id, one.end) for one in ended] == [(ID, End.RELEASED)]


def test_a_hold_is_withdrawn_once():
    books = with_a_hold()
    books.withdraw(ID)

    assert books.withdraw(ID) is None


def test_a_hold_that_is_tied_to_a_pod_is_not_withdrawn():
    books = with_a_hold()
    books.tie(ID, PodUid("u"), name="p", now=at(0))

    assert books.withdraw(ID) is None
    assert books.ledger.get(ID) is not None
