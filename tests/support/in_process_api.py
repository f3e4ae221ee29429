"""The in-memory API server without HTTP: requests are calls, so that whole histories repeat by seed.

`InProcessApi` is the server: it carries out requests, keeps what the fence knows of the present term, and
calls `on_bound` after each pod that was bound. `Wire` is one client's way to it, in place of the transport
of a `KubeClient`. A request that was sent is carried out whether its answer is awaited or not.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from api.names import LEADER_ANNOTATION
from kube.errors import KubeError, TimedOut, Unreachable, from_status
from kube.transport import ApiRequest
from simulator.apiserver import patch as patching
from simulator.apiserver.errors import StatusError, forbidden, not_found
from simulator.apiserver.http import ADMINISTRATOR
from simulator.apiserver.routing import resolve
from simulator.apiserver.server import InMemoryApiServer
from simulator.apiserver.store import list as listing
from simulator.apiserver.store.selectors import ListSelection
from simulator.apiserver.store.watch import WatchRequest, WatchStream
from simulator.apiserver.write.delete import decode_delete_options
from simulator.apiserver.write.request_body import Caller, RequestTarget
from tests.support.loop_clock import LoopClock

Json = dict[str, Any]

FENCE_LAG_S = 0.2
"""How long admission may take to know a new term, and a request to come from admission to storage;
together less than the settling time, as docs/design/0004-high-availability.md assumes."""
_HANG = "hang"
"""No answer ever comes; the client gives up by its own time-out."""


class InProcessApi:
    """The server; `rng` decides how late the fence is."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        server = InMemoryApiServer(LoopClock())
        server._seed_cluster()
        self.forget_history = server.forget_history
        self._backend = server._frontend._backend
        self.store = self._backend.store
        self.on_bound: Callable[[], None] = lambda: None
        self._terms: list[tuple[float, str]] = []
        # (since when, token)

    async def carry_out(self, request: ApiRequest) -> bytes:
        """Answer a request, or raise the KubeError that a client makes of the refusal."""
        try:
            return await self._answer(request)
        except StatusError as fault:
            raise from_status(fault.status, msgspec.json.encode(fault.body)) from fault

    async def admin(self, method: str, path: str, body: object = None) -> Json:
        """Make a request that meets no trouble."""
        content = None if body is None else msgspec.json.encode(body)
        request = ApiRequest(method=method, path=path, label="", body=content)
        found: Json = msgspec.json.decode(await self.carry_out(request))
        return found

    def watch(
        self, request: ApiRequest, is_over: Callable[[], bool]
    ) -> "AsyncGenerator[bytes, None]":
        """Return the batches of lines of a watch."""
        target, query = resolve(request.path, self._backend.registry), request.query
        stream = WatchStream(
            WatchRequest(
                resource=target.resource,
                selection=_selection(target, query),
                version=int(query["resourceVersion"] or 0),
                bookmarks=True,
                sends_initial_events=False,
                timeout_s=float(query["timeoutSeconds"] or 0),
            ),
            self.store.collection(target.resource),
            self.store.revision,
            bookmark_interval_s=60,
            is_stopping=is_over,
        )
        return stream.lines()

    def wake_watches(self) -> None:
        for collection in self.store.collections():
            collection.history.wake()

    async def _answer(self, request: ApiRequest) -> bytes:
        backend, caller = self._backend, Caller(user=ADMINISTRATOR, manager="m")
        target = resolve(request.path, backend.registry)
        if request.method == "GET":
            return self._read(target, request)
        content = request.body or b"{}"
        if request.method == "DELETE":
            options = decode_delete_options(content, {})
            return (await backend.deleter.delete(target, caller, options)).encoded
        body = msgspec.json.decode(content)
        if target.subresource == "binding":
            return await self._bind(target, caller, body)
        match request.method:
            case "POST":
                written = await backend.writer.create(target, caller, body)
            case "PUT":
                written = await backend.writer.replace(target, caller, body)
            case _:
                change = partial(patching.merge_patch, patch=body)
                written = await backend.writer.patch(target, caller, change)
        if target.resource.kind == "GPUControlPlaneTerm":
            spec = msgspec.json.decode(written.encoded)["spec"]
            self._terms.append((_now(), f"{spec['holder']}/{spec['number']}"))
        return written.encoded

    def _read(self, target: RequestTarget, request: ApiRequest) -> bytes:
        collection = self.store.collection(target.resource)
        if not target.name:
            query = {key: value for key, value in request.query.items() if value is not None}
            return listing.encode_list(
                collection,
                target.resource,
                _selection(target, query),
                current=self.store.revision.current,
                query=query,
            )
        stored = collection.get(target.namespace, target.name)
        if stored is None:
            raise not_found(target.resource, target.name)
        return stored.encoded

    async def _bind(self, target: RequestTarget, caller: Caller, body: Json) -> bytes:
        token = body["metadata"].get("annotations", {}).get(LEADER_ANNOTATION)
        knows_at = _now() - self._rng.uniform(0, FENCE_LAG_S)
        known = [term for since, term in self._terms if since <= knows_at]
        if token is not None and known[-1:] != [token]:
            raise forbidden(
                target.resource, target.name, f"{token} does not lead, but {known[-1:]}"
            )
        await asyncio.sleep(self._rng.uniform(0, FENCE_LAG_S))
        written = await self._backend.binder.bind(target, caller, body)
        self.on_bound()
        return written.encoded


class Wire:
    """What one client has of the server; each field is a trouble, all of them off."""

    def __init__(self, api: InProcessApi, rng: random.Random, group: asyncio.TaskGroup) -> None:
        self._api = api
        self._rng = rng
        self._group = group
        self.trouble = 0.0
        """The share of requests that are late, lost, or carried out without an answer."""
        self.is_cut = False
        """Nothing passes in either direction."""
        self.page_s = 0.0
        """How long each page of a list takes after the first one, at most."""
        self.lag_s = 0.0
        """How long a watch takes to open, and each of its events to come, at most."""
        self.pages_under_way = 0
        """Pages after the first of a list that are being fetched."""
        self._cuts = 0

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        self.drop_watches()

    def drop_watches(self) -> None:
        self._cuts += 1
        self._api.wake_watches()

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
        if rng.random() < self.trouble:
            fate = rng.choice(["late", "lost", "no answer", "late answer"])
        if fate == "lost":
            return self._no_answer()
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
        async with aclosing(self._lines(request)) as lines:
            yield lines

    async def _lines(self, request: ApiRequest) -> AsyncGenerator[bytes, None]:
        cuts = self._cuts
        batches = self._api.watch(request, lambda: self._cuts != cuts)
        async with aclosing(batches):
            async for batch in batches:
                await asyncio.sleep(self._rng.uniform(0, self.lag_s))
                if self._cuts != cuts:
                    raise Unreachable("the watch was cut", request_sent=True)
                for line in filter(None, batch.split(b"\n")):
                    yield line


def _selection(target: RequestTarget, query: Any) -> ListSelection:
    return ListSelection(
        target.resource,
        target.namespace,
        labels=query.get("labelSelector") or "",
        fields=query.get("fieldSelector") or "",
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
