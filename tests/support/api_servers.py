"""A bare HTTP client of an API server, in memory or real: what the conformance suite speaks with.

`CONFORMANCE_API_URL`, `CONFORMANCE_API_TOKEN` and `CONFORMANCE_API_CA` (a PEM file) name a real
kube-apiserver whose token is a cluster administrator's.
"""

import asyncio
import io
import json
import os
import ssl
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp

from simulator.apiserver.server import InMemoryApiServer
from tests.support.loop_clock import LoopClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Json = dict[str, Any]

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

WITHIN_S = 120.0
"""Longer than anything takes on a busy real server."""


@dataclass(frozen=True)
class Answer:
    """An answer: status, decoded body, headers."""

    status: int
    body: Any
    warnings: list[str] = field(default_factory=list)

    @property
    def message(self) -> str:
        return str(self.body["message"])

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]

    @property
    def causes(self) -> list[Json]:
        return list(self.body["details"]["causes"])


class WatchReader:
    """The events of one open watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self) -> Json:
        """Return the next event."""
        line = await self._read()
        assert line, "the watch ended"
        event: Json = json.loads(line)
        return event

    async def next_change(self) -> tuple[str, str]:
        """Return type and name of the next event that is no bookmark."""
        event = await self.next()
        while event["type"] == "BOOKMARK":
            event = await self.next()
        return event["type"], event["object"]["metadata"]["name"]

    async def end(self) -> None:
        """Wait for the end of the stream, which has to come next."""
        line = await self._read()
        assert not line, line

    async def _read(self) -> bytes:
        async with asyncio.timeout(WITHIN_S):
            return await self._response.content.readline()


class Api:
    """Calls one API server."""

    def __init__(self, session: aiohttp.ClientSession, url: str, *, is_real: bool = False) -> None:
        self._session = session
        self.url = url
        self.is_real = is_real

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        **query: str,
    ) -> Answer:
        headers = {} if body is None else {"Content-Type": content_type}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self._session.request(
            method,
            self.url + path,
            data=None if body is None else io.BytesIO(data),
            headers=headers,
            params=query,
            timeout=aiohttp.ClientTimeout(total=WITHIN_S),
        ) as response:
            text = await response.text()
            warnings = response.headers.getall("Warning", [])
            try:
                decoded = json.loads(text)
            except ValueError:
                decoded = text
            return Answer(response.status, decoded, warnings)

    async def get(self, path: str, **query: str) -> Answer:
        return await self.call("GET", path, **query)

    async def post(self, path: str, body: object, **query: str) -> Answer:
        return await self.call("POST", path, body, **query)

    async def put(self, path: str, body: object, **query: str) -> Answer:
        return await self.call("PUT", path, body, **query)

    async def delete(self, path: str, body: object = None, **query: str) -> Answer:
        return await self.call("DELETE", path, body, **query)

    async def merge(self, path: str, patch: object, **query: str) -> Answer:
        return await self.call("PATCH", path, patch, content_type=MERGE, **query)

    async def apply(self, path: str, config: object, manager: str, **query: str) -> Answer:
        return await self.call(
            "PATCH", path, config, content_type=APPLY, fieldManager=manager, **query
        )

    async def created(self, path: str, body: object, **query: str) -> Answer:
        """Create an object that has to be accepted."""
        answer = await self.post(path, body, **query)
        assert answer.status == 201, answer.body
        return answer

    @asynccontextmanager
    async def watch(self, path: str, **query: str) -> "AsyncIterator[WatchReader]":
        async with self._session.get(
            self.url + path,
            params={"watch": "1", **query},
            timeout=aiohttp.ClientTimeout(total=None),
        ) as response:
            assert response.status == 200, await response.text()
            try:
                yield WatchReader(response)
            finally:
                # Cut, since a TLS connection would outlive the test to say goodbye.
                if response.connection is not None and response.connection.transport is not None:
                    response.connection.transport.abort()


def unique(prefix: str) -> str:
    """Return a name that no other test uses."""
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


def real_api_is_configured() -> bool:
    return "CONFORMANCE_API_URL" in os.environ


@asynccontextmanager
async def in_memory_api() -> "AsyncIterator[Api]":
    async with InMemoryApiServer(LoopClock()) as server, aiohttp.ClientSession() as session:
        yield Api(session, server.url)


@asynccontextmanager
async def real_api() -> "AsyncIterator[Api]":
    context = ssl.create_default_context(cafile=os.environ["CONFORMANCE_API_CA"])
    headers = {"Authorization": f"Bearer {os.environ['CONFORMANCE_API_TOKEN']}"}
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:
        yield Api(session, os.environ["CONFORMANCE_API_URL"].rstrip("/"), is_real=True)
