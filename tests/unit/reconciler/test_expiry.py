"""Holds end at their deadline, by one sleeper; and what is said when a reservation ends."""

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from api.names import PodUid
from pool.reservations.reservation import Ended, Reservation
from reconciler.pod.reservation_end import ReservationEnd
from reconciler.pod.reservation_expiry import LONGEST_SLEEP_S, SHORTEST_SLEEP_S, ReservationExpiry
from telemetry.metrics import REGISTRY
from telemetry.reasons import EventReason
from tests.support.allocation_state import a_bound_pod, reserve, some_allocation_state, some_devices
from tests.support.builders import a_demand, a_pod_facts, a_pool, at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pool.allocation_state import AllocationState
    from pool.model import Instant


class Announced:
    """Events as they would be written."""

    def __init__(self) -> None:
        self.on_pools: list[tuple[EventReason, str]] = []
        self.on_pods: list[tuple[EventReason, str]] = []

    def warn_pool(self, reservation: Reservation, reason: EventReason, note: str) -> None:
        self.on_pools.append((reason, note))

    def warn_pod(self, reservation: Reservation, reason: EventReason, note: str) -> None:
        self.on_pods.append((reason, note))


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
    """A hold whose pod the watch has shown: it lasts for the pool's TTL."""
    pod = a_pod_facts(name, units, pool)
    reservation = reserve(allocation_state, pod.demand, id_=f"r-{name}", seconds=seconds)
    allocation_state.tie(reservation.id, pod.uid, name=pod.name, now=at(seconds))
    allocation_state.observe_pod(pod, at(seconds))
    return reservation


@pytest.mark.looptime
async def test_a_hold_ends_at_its_deadline_and_not_before():
    allocation_state = some_allocation_state(a_pool(ttl_s=30), devices=some_devices(1))
    a_confirmed_reservation(allocation_state)
    async with expiring(allocation_state):
        await asyncio.sleep(29.9)
        assert len(allocation_state.ledger) == 1
        await asyncio.sleep(0.2)
        assert len(allocation_state.ledger) == 0


@pytest.mark.looptime
async def test_a_hold_whose_pod_never_appeared_ends_within_seconds():
    ends: list[Ended] = []
    allocation_state = some_allocation_state(
        a_pool(ttl_s=120), devices=some_devices(1), on_end=ends.append
    )
    reserve(allocation_state, a_demand(1))
    async with expiring(allocation_state):
        await asyncio.sleep(6)
    assert [one.end.value for one in ends] == ["not_observed"]


@pytest.mark.looptime
async def test_a_hold_taken_while_the_sleeper_sleeps_for_a_later_one_is_not_forgotten():
    late, soon = a_pool("late", ttl_s=3600), a_pool(ttl_s=5)
    allocation_state = some_allocation_state(
        late, soon, devices=[*some_devices(1), *some_devices(1, "n2", pool="late")]
    )
    a_confirmed_reservation(allocation_state, "late", pool="late")
    async with expiring(allocation_state):
        await asyncio.sleep(100.3)
        a_confirmed_reservation(allocation_state, "soon", seconds=100.3)
        await asyncio.sleep(5 + LONGEST_SLEEP_S)
        assert [one.name for one in allocation_state.ledger.all()] == ["late"]


@pytest.mark.looptime
async def test_many_holds_with_one_deadline_end_together():
    allocation_state = some_allocation_state(a_pool(ttl_s=120), devices=some_devices(50))
    for number in range(50):
        reserve(allocation_state, a_demand(1), id_=f"r{number}")
    async with expiring(allocation_state):
        await asyncio.sleep(5 + SHORTEST_SLEEP_S)
        assert len(allocation_state.ledger) == 0


def test_an_expired_hold_is_announced_on_pool_and_pod_and_counted():
    announced = Announced()
    allocation_state = some_allocation_state(
        a_pool(ttl_s=30), devices=some_devices(1), on_end=ReservationEnd(announced)
    )
    before = ended("expired")
    a_confirmed_reservation(allocation_state)
    with capture_logs() as logs:
        allocation_state.expire(at(30))
    assert ended("expired") == before + 1
    ((reason, on_pool),) = announced.on_pools
    assert reason is EventReason.RESERVATION_EXPIRED
    assert on_pool == (
        "1 unit on node n1, held for pod default/p, is free again: it was not bound in time"
    )
    ((reason, on_pod),) = announced.on_pods
    assert reason is EventReason.RESERVATION_EXPIRED
    assert on_pod.startswith("1 unit on node n1 of GPU pool whole is no longer held for this pod")
    (line,) = logs
    assert (line["event"], line["end"], line["pod"]) == (
        "reservation ended",
        "expired",
        "default/p",
    )


def test_the_announcement_speaks_of_several_units_in_the_plural():
    announced = Announced()
    allocation_state = some_allocation_state(
        a_pool(ttl_s=30), devices=some_devices(2), on_end=ReservationEnd(announced)
    )
    a_confirmed_reservation(allocation_state, units=2)
    allocation_state.expire(at(30))
    ((_, on_pool),) = announced.on_pools
    assert on_pool.startswith("2 units on node n1, held for pod default/p, are free again")
    ((_, on_pod),) = announced.on_pods
    assert on_pod.startswith("2 units on node n1 of GPU pool whole are no longer held")


def test_other_endings_are_counted_and_logged_and_nobody_is_alarmed():
    announced = Announced()
    allocation_state = some_allocation_state(
        devices=some_devices(2), on_end=ReservationEnd(announced)
    )
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
    assert (announced.on_pools, announced.on_pods) == ([], [])
