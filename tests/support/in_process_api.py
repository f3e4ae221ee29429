"""The in-memory API server and its clients, with trouble on the way, so that whole histories repeat by seed.

`InProcessApi` is the server: it carries out requests, keeps what the fence knows of the present term, and
calls `on_bound` after each pod that was bound. `Wire` is one client's way to it, in place of the transport
of a `KubeClient`. A request that was sent is carried out whether its answer is awaited or not.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

import msgspec

from api.names import LEADER_ANNOTATION
from kube.config.connection import StaticConnection
from kube.errors import Forbidden, KubeError, TimedOut, Unreachable
from kube.transport import ApiRequest
from simulator.apiserver.in_process import InProcessTransport
from simulator.apiserver.resource_types import PODS
from simulator.apiserver.server import InMemoryApiServer
from simulator.apiserver.store.objects import StoreBackup
from tests.support.loop_clock import LoopClock

Json = dict[str, Any]

_TERMS = "gpucontrolplaneterms"
FENCE_LAG_S = 0.2
"""How long admission may take to know a new term, and a request to come from admission to storage;
together less than the settling time, as docs/design/0004-high-availability.md assumes."""
_HANG = "hang"
"""No answer ever comes; the client gives up by its own time-out."""
_NEVER_S = 1e9
"""Time-outs are the wire's."""


class InProcessApi:
    """The server; `rng` decides how late the fence is."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._server = InMemoryApiServer(LoopClock())
        self._transport = self.transport()
        self.forget_history = self._server.forget_history
        self.on_bound: Callable[[], None] = lambda: None
        self._terms: list[tuple[float, str]] = []
        # (since when, token)

    async def __aenter__(self) -> Self:
        await self._server.start(listens=False)
        await self._transport.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.close()
        await self._server.stop()

    def transport(self) -> InProcessTransport:
        """Return a way to the server without trouble."""
        return self._server.in_process(
            StaticConnection(""), LoopClock(), user_agent="m", timeout_s=_NEVER_S
        )

    def pods(self) -> list[Json]:
        return self._server.stored(PODS)

    async def carry_out(self, request: ApiRequest) -> bytes:
        """Answer a request, or raise the KubeError that a client makes of the refusal."""
        if request.path.endswith("/binding"):
            return await self._bind(request)
        answer = await self._transport.call(request)
        if request.method != "GET" and f"/{_TERMS}" in request.path:
            self._note_term(msgspec.json.decode(answer)["spec"])
        return answer

    async def admin(self, method: str, path: str, body: object = None) -> Json:
        """Make a request that meets no trouble."""
        content = None if body is None else msgspec.json.encode(body)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = ApiRequest(method=method, path=path, label="", body=content, content_type=kind)
        found: Json = msgspec.json.decode(await self.carry_out(request))
        return found

    def snapshot(self) -> StoreBackup:
        return self._server.snapshot()

    def restore(self, backup: StoreBackup) -> None:
        """Go back to a backup of the store; admission knows the term of the backup."""
        self._server.restore(backup)
        for (_, plural), (_, namespaces) in backup.collections.items():
            if plural == _TERMS:
                for stored in (
                    stored for names in namespaces.values() for stored in names.values()
                ):
                    self._note_term(stored.body["spec"])

    def _note_term(self, spec: Json) -> None:
        self._terms.append((_now(), f"{spec['holder']}/{spec['number']}"))

    async def _bind(self, request: ApiRequest) -> bytes:
        metadata = msgspec.json.decode(request.body or b"{}")["metadata"]
        token = metadata.get("annotations", {}).get(LEADER_ANNOTATION)
        knows_at = _now() - self._rng.uniform(0, FENCE_LAG_S)
        terms = [term for since, term in self._terms if since <= knows_at]
        if token is not None and terms[-1:] != [token]:
            raise Forbidden(403, "Forbidden", f"{token} does not lead, but {terms[-1:]}")
        await asyncio.sleep(self._rng.uniform(0, FENCE_LAG_S))
        answer = await self._transport.call(request)
        self.on_bound()
        return answer


class Wire:
    """What one client has of the server; each field is a trouble, all of them off."""

    def __init__(self, api: InProcessApi, rng: random.Random, group: asyncio.TaskGroup) -> None:
        self._api = api
        self._rng = rng
        self._group = group
        self.late = 0.0
        """The share of requests of which they, or their answers, come seconds late."""
        self.lost = 0.0
        """The share of requests that are lost, or are carried out without an answer."""
        self.is_cut = False
        """Nothing passes in either direction."""
        self.call_s = 0.0
        """How long each request takes before it is carried out."""
        self.page_s = 0.0
        """How long each page of a list takes after the first one, at most."""
        self.lag_s = 0.0
        """How long a watch takes to open, and each of its events to come, at most."""
        self.pages_under_way = 0
        """Pages after the first of a list that are being fetched."""
        self._transport = api.transport()
        self.open, self.close = self._transport.open, self._transport.close
        self.drop_watches = self._transport.drop_watches

    async def call(self, request: ApiRequest, *, timeout_s: float | None = None) -> bytes:
        sent = self._group.create_task(self._send(request))
        try:
            async with asyncio.timeout(timeout_s or 10.0):
                answer = await asyncio.shield(sent)
                if answer == _HANG:
                    await asyncio.Event().wait()
        except TimeoutError as error:
            raise TimedOut("no answer", request_sent=True) from error
        if isinstance(answer, KubeError):
            raise answer
        assert isinstance(answer, bytes)
        return answer

    async def _send(self, request: ApiRequest) -> bytes | KubeError | str:
        rng = self._rng
        await asyncio.sleep(rng.uniform(0.001, 0.02))
        fate = "well"
        if self.is_cut:
            return self._no_answer()
        drawn = rng.random()
        if drawn < self.late:
            fate = rng.choice(["late", "late answer"])
        elif drawn < self.late + self.lost:
            fate = rng.choice(["lost", "no answer"])
        if fate == "lost":
            return self._no_answer()
        await asyncio.sleep(self.call_s)
        if fate == "late":
            await asyncio.sleep(rng.uniform(0, 12))
        if request.query.get("continue"):
            self.pages_under_way += 1
            await asyncio.sleep(rng.uniform(0, self.page_s))
            self.pages_under_way -= 1
        try:
            answer: bytes | KubeError = await self._api.carry_out(request)
        except KubeError as error:
            answer = error
        if fate == "late answer":
            await asyncio.sleep(rng.uniform(0, 6))
        if fate == "no answer" or self.is_cut:
            return self._no_answer()
        await asyncio.sleep(rng.uniform(0.001, 0.02))
        return answer

    def _no_answer(self) -> KubeError | str:
        return _HANG if self._rng.random() < 0.5 else Unreachable("reset", request_sent=True)

    @asynccontextmanager
    async def stream(
        self, request: ApiRequest, *, idle_timeout_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        await asyncio.sleep(self._rng.uniform(0, self.lag_s))
        if self.is_cut:
            raise Unreachable("cut off", request_sent=True)
        async with self._transport.stream(request, idle_timeout_s=_NEVER_S) as lines:
            yield self._late(lines)

    async def _late(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        last = -1.0
        async for line in lines:
            if _now() != last:  # what comes together is late together
                await asyncio.sleep(self._rng.uniform(0, self.lag_s))
            last = _now()
            yield line


def _now() -> float:
    return asyncio.get_running_loop().time()
