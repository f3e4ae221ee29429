"""A cluster in which pods are bound while calls are cancelled or fail, and what must be true afterwards."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from api.annotations import decode_devices
from api.foreign.core import Pod
from api.names import DEVICES_ANNOTATION, NodeName, PodUid, ReservationId
from kube.client import Body, KubeClient
from kube.errors import KubeError
from kube.resources import PODS, Resource
from pool.reservations.reservation import ReservationPhase
from scheduler.bind import Bound, bind_pod
from scheduler.bind_recovery import MAY_LAND_S, recover_binding
from scheduler.codec import BindRequest
from scheduler.context import ExtenderContext
from scheduler.outcome import Outcome
from scheduler.ports import PodRef
from server.binder import KubeBinder
from tests.component.reconciler.cluster import Cluster, a_cluster
from tests.support.client_of_api import a_client
from tests.support.loop_clock import LoopClock

BIND_TIMEOUT_S = 3.0


class Writes:
    """The binder's client. With `late_s`, a write that was sent is carried out that much later, whether
    anybody waits for its answer or not: as by kube-apiserver, and unlike the one in memory."""

    def __init__(self, client: KubeClient, group: asyncio.TaskGroup) -> None:
        self._client = client
        self._group = group
        self.late_s = 0.0
        self.get = client.get

    async def create(self, resource: Resource, body: Body, **where: Any) -> None:
        if not self.late_s:
            await self._client.create(resource, body, **where)
            return
        error = await asyncio.shield(self._group.create_task(self._later(resource, body, where)))
        if error is not None:
            raise error

    async def _later(
        self, resource: Resource, body: Body, where: dict[str, Any]
    ) -> KubeError | None:
        await asyncio.sleep(self.late_s)
        try:
            await self._client.create(resource, body, **where)
        except KubeError as error:
            return error
        return None


@dataclass
class AdmissionSetup:
    """Two devices on one node, and pods that want one each."""

    cluster: Cluster
    context: ExtenderContext
    writes: Writes

    async def pod(self, name: str) -> Pod:
        return await self.cluster.client.get(PODS, Pod, name, namespace="default")

    async def bind(self, name: str) -> Bound:
        """What kube-scheduler asks for."""
        uid = PodUid((await self.pod(name)).metadata.uid)
        request = BindRequest(PodRef("default", name, uid), NodeName("n1"))
        return await bind_pod(request, self.context)

    async def request(self, name: str) -> BindRequest:
        uid = PodUid((await self.pod(name)).metadata.uid)
        return BindRequest(PodRef("default", name, uid), NodeName("n1"))

    async def reconcile_all(self) -> None:
        for reservation in self.context.allocation_state.reader.ledger.unresolved():
            await recover_binding(reservation, self.context)

    async def calms_down(self) -> None:
        """The watch catches up, and what is in doubt is read: now, and when no write can land."""
        self.no_commitment_is_forgotten()
        for wait_s in (0.0, MAY_LAND_S + 1):
            self.cluster.time.seconds += wait_s
            await self.reconcile_all()
            await self.cluster.observe()

    def no_commitment_is_forgotten(self) -> None:
        """With no call under way, every commitment is one that settling will look at."""
        phases = {item.phase for item in self.context.allocation_state.ledger.all()}
        assert ReservationPhase.COMMITTED not in phases

    async def is_true(self) -> None:
        """The allocation state says what the API server says, and no unit is given twice."""
        allocation_state = self.context.allocation_state
        given: list[str] = []
        for pod in (await self.cluster.client.list_(PODS, Pod)).items:
            held = allocation_state.index.claims.observed.units(PodUid(pod.metadata.uid))
            devices = decode_devices(pod.metadata.annotation(DEVICES_ANNOTATION)) or {}
            units = tuple(itertools.chain(*devices.values())) if pod.spec.node_name else ()
            assert held == units
            given += units
        assert len(given) == len(set(given))
        assert len(allocation_state.ledger) == 0
        (pool,) = allocation_state.index.pools()
        capacity = allocation_state.index.state(pool.name).capacity()
        assert (capacity.used, capacity.reserved) == (len(given), 0)
        assert capacity.available == 2 - len(given)

    async def everybody_is_bound_in_the_end(self, *names: str) -> None:
        for name in names:
            if not (await self.pod(name)).spec.node_name:
                assert (await self.bind(name)).outcome is Outcome.BOUND
        await self.cluster.observe()
        await self.is_true()
        assert [(await self.pod(name)).spec.node_name for name in names] == ["n1"] * len(names)


@asynccontextmanager
async def an_admission_setup(*pods: str) -> AsyncIterator[AdmissionSetup]:
    clock = LoopClock()
    async with (
        a_cluster() as cluster,
        # Of its own: the first request has to connect, which is where most suspensions are.
        a_client(cluster.api, clock) as client,
        asyncio.TaskGroup() as group,
    ):
        numbers = itertools.count()
        writes = Writes(client, group)
        context = ExtenderContext(
            index=cluster.allocation_state.index,
            reader=cluster.allocation_state.reader,
            allocation_state=cluster.allocation_state,
            binder=KubeBinder(writes, BIND_TIMEOUT_S),  # type: ignore[arg-type]  # its two methods
            new_id=lambda: ReservationId(f"r{next(numbers)}"),
            now=cluster.time.now,
            is_ready=lambda: True,
        )
        for name in pods:
            await cluster.add_pod(name)
        await cluster.observe()
        yield AdmissionSetup(cluster, context, writes)
