"""One Lease as the API server keeps it, reached over a network that may delay, lose and break."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from kube.client import WriteResponse
from kube.errors import (
    AlreadyExists,
    Conflict,
    KubeError,
    NotFound,
    ServerError,
    Undecodable,
    Unreachable,
)
from kube.leader_election import LeaderElection, Lease, LeaseClient, LeaseTimes
from kube.resources import LEASES, Resource
from tests.support.loop_clock import LoopClock

TIMES = LeaseTimes(
    namespace="gpu",
    name="engine",
    lease_duration_s=15,
    renew_deadline_s=10,
    retry_s=2,
    poll_s=2,
)


class FakeLeases:
    """The stored object, with optimistic concurrency; every step is atomic."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.is_away = False
        self.takes_s = 0.0
        self._version = 0

    async def get(
        self, resource: Resource, type_: type[Lease], name: str, *, namespace: str | None = None
    ) -> Lease:
        await self._answer()
        if self.lease is None:
            raise NotFound(404, "NotFound", name)
        return self.lease

    async def create(self, resource: Resource, body: object) -> WriteResponse:
        await self._answer()
        if self.lease is not None:
            raise AlreadyExists(409, "AlreadyExists", "")
        return self._store(body)

    async def replace(self, resource: Resource, body: object) -> WriteResponse:
        assert isinstance(body, Lease)
        await self._answer()
        if self.lease is None:
            raise NotFound(404, "NotFound", "")
        if body.metadata.resource_version != self.lease.metadata.resource_version:
            raise Conflict(409, "Conflict", "the object has been modified")
        return self._store(body)

    def delete(self) -> None:
        self.lease = None

    @property
    def holder(self) -> str:
        return self.lease.spec.holder_identity if self.lease else ""

    @property
    def duration_s(self) -> int:
        return self.lease.spec.lease_duration_seconds if self.lease else 0

    async def _answer(self) -> None:
        if self.is_away:
            raise Unreachable("away", request_sent=False)
        if self.takes_s:
            await asyncio.sleep(self.takes_s)

    def _store(self, body: object) -> WriteResponse:
        stored = msgspec.json.decode(msgspec.json.encode(body), type=Lease)
        self._version += 1
        metadata = msgspec.structs.replace(stored.metadata, resource_version=str(self._version))
        self.lease = msgspec.structs.replace(stored, metadata=metadata)
        return WriteResponse(msgspec.json.encode(self.lease), LEASES)


class BadNetwork:
    """Between one candidate and the Lease; `trouble` is the share of calls that something befalls."""

    def __init__(self, leases: FakeLeases, rng: random.Random) -> None:
        self.trouble = 0.0
        self._leases = leases
        self._rng = rng

    async def get(
        self, resource: Resource, type_: type[Lease], name: str, *, namespace: str | None = None
    ) -> Lease:
        await self._befall()
        lease = await self._leases.get(resource, type_, name, namespace=namespace)
        await self._befall()
        return lease

    async def create(self, resource: Resource, body: object) -> WriteResponse:
        await self._befall()
        lease = await self._leases.create(resource, body)
        await self._befall()
        return lease

    async def replace(self, resource: Resource, body: object) -> WriteResponse:
        await self._befall()
        lease = await self._leases.replace(resource, body)
        await self._befall()
        return lease

    async def _befall(self) -> None:
        rng = self._rng
        await asyncio.sleep(rng.uniform(0, 0.2))
        if rng.random() >= self.trouble:
            return
        errors: list[KubeError] = [
            ServerError(500, "InternalError", ""),
            Unreachable("reset", request_sent=True),
            Undecodable("<html>"),
        ]
        kind = rng.choice(["late", "hang", "error", "error"])
        if kind == "late":
            await asyncio.sleep(rng.uniform(0, 8))
        elif kind == "hang":
            await asyncio.sleep(3600)
        else:
            raise rng.choice(errors)


class Candidate:
    """An election and what it called, with the times of the calls."""

    def __init__(
        self,
        client: LeaseClient,
        name: str,
        clock: LoopClock | None = None,
        *,
        times: LeaseTimes = TIMES,
    ) -> None:
        self.clock = clock or LoopClock()
        self.election = LeaderElection(
            client, self.clock, times, identity=name, rng=random.Random(name)
        )
        self.calls: list[tuple[str, float]] = []

    async def run(self) -> None:
        await self.election.run(self._record("started"), self._record("stopped"))

    def _record(self, what: str) -> Callable[[], None]:
        return lambda: self.calls.append((what, asyncio.get_running_loop().time()))

    @property
    def said(self) -> list[str]:
        return [what for what, _ in self.calls]


@asynccontextmanager
async def running(*candidates: Candidate) -> AsyncIterator[list[asyncio.Task[None]]]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(candidate.run()) for candidate in candidates]
        yield tasks
        for task in tasks:
            task.cancel()


class SlowAnswers(FakeLeases):
    """Answers the first renewal after 4.5 s and none after it; says when that one was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_at: float | None = None
        self.answered = asyncio.Event()

    async def replace(self, resource: Resource, body: object) -> WriteResponse:
        if self.asked_at is not None:
            await asyncio.sleep(3600)
        self.asked_at = asyncio.get_running_loop().time()
        lease = await super().replace(resource, body)
        await asyncio.sleep(4.5)
        self.answered.set()
        return lease


class FailingReads(FakeLeases):
    """Refuses every so many reads, as an API server does that is slow; 0 for none."""

    def __init__(self, fails_every: int) -> None:
        super().__init__()
        self.fails_every = fails_every
        self.reads = 0

    async def get(
        self, resource: Resource, type_: type[Lease], name: str, *, namespace: str | None = None
    ) -> Lease:
        self.reads += 1
        if self.fails_every and self.reads % self.fails_every == 0:
            raise Unreachable("reset", request_sent=True)
        return await super().get(resource, type_, name, namespace=namespace)


class LostAnswers(FakeLeases):
    """Carries the first write out and says nothing of it; `writes` counts."""

    writes = 0

    async def replace(self, resource: Resource, body: object) -> WriteResponse:
        lease = await super().replace(resource, body)
        self.writes += 1
        if self.writes == 1:
            raise Unreachable("reset", request_sent=True)
        return lease
