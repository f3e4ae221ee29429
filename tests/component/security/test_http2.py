"""HTTP/2 at the listening port, over TLS: who is answered, and that the other clients go on by HTTP/1.1."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded

from manifests.constants import (
    BIND_PATH,
    FILTER_PATH,
    LIVENESS_PATH,
    MUTATE_PODS_PATH,
    PREEMPT_PATH,
    PRIORITIZE_PATH,
)
from tests.component.security.peers import WITHIN_S, Peer, address
from tests.support.reviews import a_pod_object, a_review
from tests.support.scheduling import binding_args
from tests.support.served_app import TOKEN, ServedApp

if TYPE_CHECKING:
    import ssl

REVIEW = a_review(a_pod_object(gpus=None))


class Caller:
    """One connection; its requests are answered one after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.codec = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self.codec.initiate_connection()

    async def call(self, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        """Return status and body; without a body it is GET."""
        number = self.codec.get_next_available_stream_id()
        method = "POST" if body else "GET"
        fields = [(":method", method), (":scheme", "https"), (":authority", "x"), (":path", path)]
        fields += [("content-type", "application/json"), *headers.items()]
        self.codec.send_headers(number, fields, end_stream=not body)
        if body:
            self.codec.send_data(number, body, end_stream=True)
        self._writer.write(self.codec.data_to_send())
        status, answer = 0, b""
        async with asyncio.timeout(WITHIN_S):
            while True:
                for event in self.codec.receive_data(await self._reader.read(65_536)):
                    match event:
                        case ResponseReceived():
                            status = int(dict(event.headers or [])[b":status"])
                        case DataReceived():
                            answer += event.data or b""
                        case StreamEnded():
                            return status, answer
                        case _:
                            pass


@contextlib.asynccontextmanager
async def calling(served: ServedApp, *protocols: str) -> AsyncIterator[Caller]:
    context = served.tls()
    context.set_alpn_protocols(protocols or ("h2", "http/1.1"))
    reader, writer = await asyncio.open_connection(*address(served), ssl=context)
    async with Peer(reader, writer):
        assert chosen(writer) == "h2"
        yield Caller(reader, writer)


def chosen(writer: asyncio.StreamWriter) -> str | None:
    connection: ssl.SSLObject = writer.get_extra_info("ssl_object")
    return connection.selected_alpn_protocol()


async def test_scheduler_is_answered_on_one_connection(scheduler: ServedApp) -> None:
    scheduler.extender_setup.pending()
    async with calling(scheduler) as caller:
        assert await caller.call(LIVENESS_PATH) == (200, b"ok\n")
        status, answer = await caller.call(BIND_PATH, binding_args())
        assert (status, answer) == (200, b'{"Error":""}')
        assert len(scheduler.extender_setup.binder.bindings) == 1
        status, answer = await caller.call(MUTATE_PODS_PATH + "?timeout=3s", REVIEW)
        assert status == 200
        assert b'"allowed":true' in answer


async def test_strangers_are_refused_at_each_call(served: ServedApp) -> None:
    async with calling(served) as caller:
        for path in (FILTER_PATH, PRIORITIZE_PATH, PREEMPT_PATH, BIND_PATH):
            for headers in ({}, {"authorization": "Bearer x"}, {"authorization": "Bearer "}):
                status, _ = await caller.call(path, binding_args(), **headers)
                assert status == 401
            for spelling in (f"/{path}", f"{path}/", path.replace("/", "%2F", 1), path.upper()):
                status, _ = await caller.call(spelling, binding_args(), authorization=TOKEN)
                assert status in {401, 404}
    assert served.extender_setup.binder.bindings == []


async def test_token_is_as_good_as_by_http_1_1(served: ServedApp) -> None:
    served.extender_setup.pending()
    async with calling(served) as caller:
        status, _ = await caller.call(BIND_PATH, binding_args(), authorization=f"Bearer {TOKEN}")
        assert status == 200
    assert len(served.extender_setup.binder.bindings) == 1


async def test_scheduler_whose_ca_is_gone_is_refused_on_its_open_connection(
    scheduler: ServedApp,
) -> None:
    async with calling(scheduler) as caller:
        assert (await caller.call(BIND_PATH, binding_args()))[0] == 200
        scheduler.serving.scheduler.replace(())
        assert (await caller.call(BIND_PATH, binding_args()))[0] == 401


async def test_client_that_offers_no_protocol_gets_http_1_1(served: ServedApp) -> None:
    for protocols in ((), ("http/1.1",), ("spdy/3",)):
        context = served.tls()
        if protocols:
            context.set_alpn_protocols(protocols)
        reader, writer = await asyncio.open_connection(*address(served), ssl=context)
        async with Peer(reader, writer) as peer:
            await peer.send(f"GET {LIVENESS_PATH} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert await peer.status() == 200
            assert chosen(writer) in {None, "http/1.1"}


async def test_http_2_without_its_handshake_is_refused(served: ServedApp) -> None:
    """No client can change the protocol of a connection behind a proxy that knows HTTP/1.1 only."""
    reader, writer = await asyncio.open_connection(*address(served), ssl=served.tls())
    async with Peer(reader, writer) as peer:
        await peer.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert await peer.status() == 400
