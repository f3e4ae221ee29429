"""Events about reservations: their objects and notes, and only where this replica leads."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from api.meta import Model
from api.names import PodUid, PoolName, UnitId
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.event_recorder import EventRecorder
from kube.resources import EVENTS
from pool.pods.reported import AllocationMismatch
from pool.reservations.reservation import End, Ended, Reservation
from reconciler.pod.reservation_end import record_end
from reconciler.sinks.inventory import record_mismatch
from simulator.apiserver.server import InMemoryApiServer
from telemetry.reasons import REPORTING_CONTROLLER
from tests.support.allocation_state import a_bound_pod, reserve
from tests.support.builders import a_demand, at
from tests.support.loop_clock import LoopClock
from tests.support.metric_samples import Counted
from tests.support.reviews import AdmissionSetup


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
def setup() -> AdmissionSetup:
    setup = AdmissionSetup()
    setup.add_pool()
    setup.add_node()
    return setup


class Written:
    """The recorder, and the Events of it that reach the API server."""

    def __init__(self, client: KubeClient, setup: AdmissionSetup) -> None:
        self._client = client
        self._catalog = setup.catalog
        self.recorder = EventRecorder(
            client,
            LoopClock(),
            reporting_controller=REPORTING_CONTROLLER,
            reporting_instance="test",
        )

    def expire(self, reservation: Reservation) -> None:
        ended = Ended(reservation, End.EXPIRED)
        record_end(ended, recorder=self.recorder, catalog=self._catalog)

    async def events(self, kind: str | None = None) -> list[StoredEvent]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.recorder.run())
            await self.recorder.flush(5.0)
            task.cancel()
        items = (await self._client.list_(EVENTS, StoredEvent)).items
        return [item for item in items if kind in {None, item.regarding.kind}]


@pytest.fixture
async def written(client: KubeClient, setup: AdmissionSetup) -> Written:
    return Written(client, setup)


def a_reservation(setup: AdmissionSetup, uid: str | None = "uid-p") -> Reservation:
    reservation = reserve(setup.allocation_state, a_demand(1))
    if uid is not None:
        setup.allocation_state.tie(reservation.id, PodUid(uid), name="p", now=at(0))
    held = setup.allocation_state.ledger.get(reservation.id)
    assert held is not None
    return held


async def test_warning_on_the_pool_names_it_by_uid(written: Written, setup: AdmissionSetup) -> None:
    written.expire(a_reservation(setup))
    assert await written.events("GPUPool") == [
        StoredEvent(
            type="Warning",
            reason="GPUReservationExpired",
            action="Reserving",
            note="reservation of 1 unit on node n1 for pod default/p expired: the pod was not bound in"
            " time; the units are free again",
            reporting_controller="gpu.deckhouse.io/control-plane",
            regarding=Regarding(kind="GPUPool", name="whole", uid="uid-whole"),
        )
    ]


async def test_warning_on_the_pod_names_it_by_uid(written: Written, setup: AdmissionSetup) -> None:
    written.expire(a_reservation(setup))
    (event,) = await written.events("Pod")
    assert event.regarding == Regarding(kind="Pod", name="p", namespace="default", uid="uid-p")


async def test_pod_that_was_never_seen_gets_no_event(
    written: Written, setup: AdmissionSetup
) -> None:
    written.expire(a_reservation(setup, uid=None))
    assert await written.events("Pod") == []


async def test_pool_that_is_gone_gets_no_event(written: Written, setup: AdmissionSetup) -> None:
    reservation = a_reservation(setup)
    del setup.catalog.pools[PoolName("whole")]
    written.expire(reservation)
    assert await written.events("GPUPool") == []


async def test_standby_writes_no_event(written: Written, setup: AdmissionSetup) -> None:
    written.recorder.is_muted = True
    written.expire(a_reservation(setup))
    assert await written.events() == []


@pytest.mark.parametrize("is_leading", [True, False])
async def test_the_leader_records_and_counts_a_mismatch(
    client: KubeClient, setup: AdmissionSetup, *, is_leading: bool
) -> None:
    written = Written(client, setup)
    written.recorder.is_muted = not is_leading
    counted = Counted()
    pod = a_bound_pod("p", "GPU-1", "GPU-2")
    found = AllocationMismatch(pod, PoolName("whole"), (UnitId("GPU-9"),), ())
    record_mismatch(found, written.recorder)
    notes = [(event.reason, event.regarding.name, event.note) for event in await written.events()]
    text = "kubelet on node n1 allocated GPU-9 instead of GPU-1, GPU-2; accounting follows kubelet"
    assert notes == ([("GPUAllocationMismatch", "p", text)] if is_leading else [])
    grown = counted.growth("gpu_allocation_mismatches_total")
    assert grown == ({("whole",): 1} if is_leading else {})
