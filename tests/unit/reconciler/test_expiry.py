"""Reservations end at their deadline, by one sleeper; an ended one is counted, logged and recorded."""

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from api.kinds.gpupool import GPUPool
from api.meta import ObjectMeta
from api.names import PodUid, PoolName
from pool.catalog import Catalog
from pool.reservations.reservation import Ended, Reservation
from reconciler.pod.reservation_end import record_end
from reconciler.pod.reservation_expiry import LONGEST_SLEEP_S, SHORTEST_SLEEP_S, ReservationExpiry
from telemetry.metrics import REGISTRY
from tests.support.allocation_state import a_bound_pod, reserve, some_allocation_state, some_devices
from tests.support.builders import a_demand, a_pod_facts, a_pool, at
from tests.support.recorded_events import RecordedEvents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.clock import Instant
    from pool.allocation_state import AllocationState


class Ending:
    """The allocation state's `on_end`, and the Events of it."""

    def __init__(self) -> None:
        self.recorder = RecordedEvents()
        self.catalog = Catalog()
        self.catalog.pools[PoolName("whole")] = GPUPool(metadata=ObjectMeta(name="whole", uid="u"))

    def __call__(self, ended: Ended) -> None:
        record_end(ended, recorder=self.recorder, catalog=self.catalog)

    def notes(self, kind: str) -> list[tuple[str, str]]:
        events = (event for event in self.recorder.events if event.regarding.kind == kind)
        return [(event.reason, event.note) for event in events]


def loop_now() -> "Instant":
    return at(asyncio.get_running_loop().time())


@asynccontextmanager
async def expiring(allocation_state: "AllocationState") -> "AsyncIterator[None]":
    async with asyncio.TaskGroup() as group:
        task = group.create_task(ReservationExpiry(allocation_state, loop_now).run())
        yield
        task.cancel()


def ended(end: str) -> float:
    return REGISTRY.get_sample_value("gpu_reservations_ended_total", {"end": end}) or 0


def a_confirmed_reservation(
    allocation_state: "AllocationState",
    name: str = "p",
    units: int = 1,
    *,
    pool: str = "whole",
    seconds: float = 0,
) -> Reservation:
    """A reservation whose pod the watch has delivered: it lasts for the pool's TTL."""
    pod = a_pod_facts(name, units, pool)
    reservation = reserve(allocation_state, pod.demand, id_=f"r-{name}", seconds=seconds)
    allocation_state.tie(reservation.id, pod.uid, name=pod.name, now=at(seconds))
    allocation_state.observe_pod(pod, at(seconds))
    return reservation


@pytest.mark.looptime
async def test_a_reservation_ends_at_its_deadline_and_not_before():
    allocation_state = some_allocation_state(a_pool(ttl_s=30), devices=some_devices(1))
    a_confirmed_reservation(allocation_state)
    async with expiring(allocation_state):
        await asyncio.sleep(29.9)
        assert len(allocation_state.ledger) == 1
        await asyncio.sleep(0.2)
        assert len(allocation_state.ledger) == 0


@pytest.mark.looptime
async def test_a_reservation_whose_pod_never_appeared_ends_within_seconds():
    ends: list[Ended] = []
    allocation_state = some_allocation_state(
        a_pool(ttl_s=120), devices=some_devices(1), on_end=ends.append
    )
    reserve(allocation_state, a_demand(1))
    async with expiring(allocation_state):
        await asyncio.sleep(6)
    assert [item.end.value for item in ends] == ["not_observed"]


@pytest.mark.looptime
async def test_a_reservation_taken_while_the_sleeper_sleeps_for_a_later_one_is_not_forgotten():
    late, soon = a_pool("late", ttl_s=3600), a_pool(ttl_s=5)
    allocation_state = some_allocation_state(
        late, soon, devices=[*some_devices(1), *some_devices(1, "n2", pool="late")]
    )
    a_confirmed_reservation(allocation_state, "late", pool="late")
    async with expiring(allocation_state):
        await asyncio.sleep(100.3)
        a_confirmed_reservation(allocation_state, "soon", seconds=100.3)
        await asyncio.sleep(5 + LONGEST_SLEEP_S)
        assert [item.name for item in allocation_state.ledger.all()] == ["late"]


@pytest.mark.looptime
async def test_many_reservations_with_one_deadline_end_together():
    allocation_state = some_allocation_state(a_pool(ttl_s=120), devices=some_devices(50))
    for number in range(50):
        reserve(allocation_state, a_demand(1), id_=f"r{number}")
    async with expiring(allocation_state):
        await asyncio.sleep(5 + SHORTEST_SLEEP_S)
        assert len(allocation_state.ledger) == 0


def test_an_expired_reservation_is_recorded_on_pool_and_pod_and_counted():
    ending = Ending()
    allocation_state = some_allocation_state(
        a_pool(ttl_s=30), devices=some_devices(1), on_end=ending
    )
    before = ended("expired")
    a_confirmed_reservation(allocation_state)
    with capture_logs() as logs:
        allocation_state.expire(at(30))
    assert ended("expired") == before + 1
    assert ending.notes("GPUPool") == [
        (
            "GPUReservationExpired",
            "reservation of 1 unit on node n1 for pod default/p expired: the pod was not bound in time;"
            " the units are free again",
        )
    ]
    assert ending.notes("Pod") == [
        (
            "GPUReservationExpired",
            "reservation of 1 unit on node n1 of GPU pool whole expired; the pod is scheduled when"
            " units are free",
        )
    ]
    (line,) = logs
    assert (line["event"], line["end"], line["pod"]) == (
        "reservation ended",
        "expired",
        "default/p",
    )


def test_the_event_has_several_units_in_the_plural():
    ending = Ending()
    allocation_state = some_allocation_state(
        a_pool(ttl_s=30), devices=some_devices(2), on_end=ending
    )
    a_confirmed_reservation(allocation_state, units=2)
    allocation_state.expire(at(30))
    for kind in ("GPUPool", "Pod"):
        ((_, note),) = ending.notes(kind)
        assert note.startswith("reservation of 2 units on node n1 ")


def test_other_endings_are_counted_and_logged_and_there_is_no_event():
    ending = Ending()
    allocation_state = some_allocation_state(devices=some_devices(2), on_end=ending)
    bound, released, unseen = ended("bound"), ended("released"), ended("not_observed")
    a_confirmed_reservation(allocation_state)
    reserve(allocation_state, a_demand(1), id_="other")
    with capture_logs() as logs:
        allocation_state.observe_pod(a_bound_pod("p", "GPU-n1-0"), at(1))
        allocation_state.expire(at(10))
        a_confirmed_reservation(allocation_state, "q")
        allocation_state.discard_pod(PodUid("uid-q"))
    assert (ended("bound"), ended("not_observed")) == (bound + 1, unseen + 1)
    assert ended("released") == released + 1
    assert [line["end"] for line in logs] == ["bound", "not_observed", "released"]
    assert ending.recorder.events == []
