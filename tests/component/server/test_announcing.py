"""Events about reservations: on whom, with what, and only where this replica leads."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from api.meta import Model
from api.names import PodUid, PoolName, UnitId
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.events import EventRecorder
from kube.resources import EVENTS
from pool.pods.reported import AllocationMismatch
from pool.reservations.reservation import Reservation
from server.events import ReservationEvents
from simulator.apiserver.server import InMemoryApiServer
from telemetry.reasons import REPORTING_CONTROLLER, EventReason
from tests.support.allocation_state import a_bound_pod, reserve
from tests.support.builders import a_demand, at
from tests.support.loop_clock import LoopClock
from tests.support.metric_samples import Counted
from tests.support.reviews import AdmissionSetup

EXPIRED = EventReason.RESERVATION_EXPIRED


class Regarding(Model, frozen=True):
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


class StoredEvent(Model, frozen=True):
    type: str
    reason: str
    action: str
    note: str
    reporting_controller: str
    regarding: Regarding


@pytest.fixture
async def client() -> AsyncIterator[KubeClient]:
    async with (
        InMemoryApiServer(LoopClock()) as api,
        KubeClient(StaticConnection(api.url), LoopClock()) as client,
    ):
        yield client


@pytest.fixture
def office() -> AdmissionSetup:
    office = AdmissionSetup()
    office.add_pool()
    office.add_node()
    return office


class Announcer:
    """The events, and what of them reaches the API server."""

    def __init__(self, client: KubeClient, office: AdmissionSetup) -> None:
        self._client = client
        self._recorder = EventRecorder(
            client,
            LoopClock(),
            reporting_controller=REPORTING_CONTROLLER,
            reporting_instance="test",
        )
        self.events = ReservationEvents(self._recorder, office.catalog)
        self.events.is_leading = True

    async def written(self) -> list[StoredEvent]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._recorder.run())
            await self._recorder.flush(5.0)
            task.cancel()
        return (await self._client.list_(EVENTS, StoredEvent)).items


@pytest.fixture
async def announcer(client: KubeClient, office: AdmissionSetup) -> Announcer:
    return Announcer(client, office)


def a_reservation(office: AdmissionSetup, uid: str | None = "uid-p") -> Reservation:
    reservation = reserve(office.allocation_state, a_demand(1))
    if uid is not None:
        office.allocation_state.tie(reservation.id, PodUid(uid), name="p", now=at(0))
    held = office.allocation_state.ledger.get(reservation.id)
    assert held is not None
    return held


async def test_warning_on_the_pool_names_it_by_uid(
    announcer: Announcer, office: AdmissionSetup
) -> None:
    announcer.events.warn_pool(a_reservation(office), EXPIRED, "it ran out")
    assert await announcer.written() == [
        StoredEvent(
            type="Warning",
            reason="GPUReservationExpired",
            action="Reserving",
            note="it ran out",
            reporting_controller="gpu.deckhouse.io/control-plane",
            regarding=Regarding(kind="GPUPool", name="whole", uid="uid-whole"),
        )
    ]


async def test_warning_on_the_pod_names_it_by_uid(
    announcer: Announcer, office: AdmissionSetup
) -> None:
    announcer.events.warn_pod(a_reservation(office), EXPIRED, "it ran out")
    (event,) = await announcer.written()
    assert event.regarding == Regarding(kind="Pod", name="p", namespace="default", uid="uid-p")


async def test_pod_that_nobody_has_seen_gets_no_event(
    announcer: Announcer, office: AdmissionSetup
) -> None:
    announcer.events.warn_pod(a_reservation(office, uid=None), EXPIRED, "it ran out")
    assert await announcer.written() == []


async def test_pool_that_is_gone_gets_no_event(
    announcer: Announcer, office: AdmissionSetup
) -> None:
    reservation = a_reservation(office)
    del office.catalog.pools[PoolName("whole")]
    announcer.events.warn_pool(reservation, EXPIRED, "it ran out")
    assert await announcer.written() == []


async def test_standby_says_nothing(announcer: Announcer, office: AdmissionSetup) -> None:
    announcer.events.is_leading = False
    announcer.events.warn_pool(a_reservation(office), EXPIRED, "it ran out")
    assert await announcer.written() == []


@pytest.mark.parametrize("is_leading", [True, False])
async def test_a_mismatch_is_told_and_counted_by_who_leads(
    client: KubeClient, office: AdmissionSetup, *, is_leading: bool
) -> None:
    announcer = Announcer(client, office)
    announcer.events.is_leading = is_leading
    counted = Counted()
    pod = a_bound_pod("p", "GPU-1", "GPU-2")
    found = AllocationMismatch(pod, PoolName("whole"), (UnitId("GPU-9"),), ())
    announcer.events.warn_mismatch(found)
    notes = [(one.reason, one.regarding.name, one.note) for one in await announcer.written()]
    text = (
        "kubelet on node n1 gave it GPU-9, and it was bound with GPU-1, GPU-2: "
        "what it has counts as used, what it did not get is free"
    )
    assert notes == ([("GPUAllocationMismatch", "p", text)] if is_leading else [])
    grown = counted.growth("gpu_allocation_mismatches_total")
    assert grown == ({("whole",): 1} if is_leading else {})
