"""Streams: written as events come, cut where nobody reads, ended with a reason; and a port that many peers do not fill."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import aiohttp
import pytest

from console.edge.viewer_limits import ViewerLimits
from http_edge.open_files import raise_limit
from tests.support.canned_console import PAGE, SNAPSHOT, ServedConsole, local_console, log_in
from tests.support.polling import LIMIT_S, until
from tests.support.served_app import sample

DEVICE = "/api/v1/devices/gpu-0-0"
SHORT = ViewerLimits(idle_s=0.3, answer_s=0.3, linger_s=0.1)


@pytest.fixture
async def console() -> AsyncIterator[ServedConsole]:
    async with local_console() as (served, token):
        await log_in(served, token)
        yield served


async def event_of(reply: aiohttp.ClientResponse) -> bytes:
    async with asyncio.timeout(LIMIT_S):
        return await reply.content.readuntil(b"\n\n")


def dropped(cause: str) -> float:
    return sample("gpu_console_streams_dropped_total", cause=cause)


async def test_events_are_written_as_they_come(console: ServedConsole) -> None:
    sent = sample("gpu_console_events_sent_total")
    async with console.stream() as reply:
        assert reply.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert reply.headers["Cache-Control"] == "no-store"
        assert reply.headers["X-Accel-Buffering"] == "no"
        assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
        assert await event_of(reply) == SNAPSHOT
        assert sample("gpu_console_viewers") == 1
        (stream,) = console.data.streams
        for number in range(3):
            event = b"event: change\ndata: %d\n\n" % number
            stream.send(event)
            assert await event_of(reply) == event
    await until(lambda: stream.is_closed)
    assert sample("gpu_console_viewers") == 0
    assert sample("gpu_console_events_sent_total") == sent + 4


async def test_an_event_of_megabytes_arrives_whole(console: ServedConsole) -> None:
    console.data.snapshot = b"event: snapshot\ndata: %b\n\n" % (b"0123456789abcdef" * 500_000)
    async with console.stream() as reply:
        found = b""
        while not found.endswith(b"\n\n"):
            found += await reply.content.readany()
    assert found == console.data.snapshot


async def test_a_viewer_that_goes_away_is_forgotten_at_once(console: ServedConsole) -> None:
    async with console.stream() as reply:
        await event_of(reply)
    (stream,) = console.data.streams
    await until(lambda: stream.is_closed)


async def test_a_viewer_behind_which_too_much_waits_is_cut(console: ServedConsole) -> None:
    before = dropped("backlog")
    async with console.stream() as slow, console.stream() as other:
        await event_of(slow)
        await event_of(other)
        console.data.streams[0].drop()
        with pytest.raises(aiohttp.ClientError):
            await event_of(slow)
        assert dropped("backlog") == before + 1
        await until(lambda: console.data.streams[0].is_closed)
        console.data.streams[1].send(b"event: change\ndata: 1\n\n")
        assert await event_of(other) == b"event: change\ndata: 1\n\n"


async def test_a_viewer_that_does_not_read_is_cut_and_others_see_nothing_of_it() -> None:
    before = dropped("unread")
    async with local_console(limits=SHORT) as (console, token):
        await log_in(console, token)
        async with console.stream() as other:
            await event_of(other)
            console.data.snapshot = b"data: %b\n\n" % (b"x" * 30_000_000)
            with unread_request(console, "/api/v1/stream"):
                await until(lambda: len(console.data.streams) == 2)
                await until(lambda: console.data.streams[1].is_closed)
            assert dropped("unread") == before + 1
            console.data.streams[0].send(b"data: 1\n\n")
            assert await event_of(other) == b"data: 1\n\n"


async def test_an_answer_that_is_not_read_is_given_up() -> None:
    before = sample("gpu_connections_dropped_total", cause="answer")
    page = PAGE | {"console.js": bytes(16_000_000)}
    async with local_console(limits=SHORT, page=page) as (console, token):
        await log_in(console, token)
        with unread_request(console, "/console.js"):
            await until(
                lambda: sample("gpu_connections_dropped_total", cause="answer") == before + 1
            )


async def test_one_stream_too_many_is_refused_and_the_others_go_on(console: ServedConsole) -> None:
    console.data.most_streams = 3
    async with AsyncExitStack() as stack:
        replies = [await stack.enter_async_context(console.stream()) for _ in range(3)]
        heard = await console.ask("/api/v1/stream")
        assert (heard.status, heard.headers["Retry-After"]) == (503, "5")
        assert heard.error == "3 pages are open, which is the limit"
        for reply in replies:
            assert await event_of(reply) == SNAPSHOT
    await until(lambda: console.data.open_streams == [])
    async with console.stream() as reply:
        assert await event_of(reply) == SNAPSHOT


async def test_streams_end_with_an_event_when_the_console_is_stopped() -> None:
    async with local_console() as (console, token):
        await log_in(console, token)
        async with console.stream() as reply:
            assert await event_of(reply) == SNAPSHOT
            console.application.streams.end_all("the console is being stopped")
            async with asyncio.timeout(LIMIT_S):
                end = await reply.content.read()
            assert end == b'event: end\ndata: {"message":"the console is being stopped"}\n\n'
        heard = await console.ask("/api/v1/stream")
        assert (heard.status, heard.error) == (503, "the console is being stopped")
        assert console.data.open_streams == []


async def test_a_stream_does_not_end_inside_an_event(console: ServedConsole) -> None:
    console.data.snapshot = b"event: snapshot\ndata: [1,"
    sent = sample("gpu_console_events_sent_total")
    async with console.stream() as reply:
        assert await reply.content.readuntil(b"[1,") == console.data.snapshot
        console.application.streams.end_all("the console is being stopped")
        console.data.streams[0].send(b"2]\n\n")
        remaining = await reply.content.read()
    assert remaining.startswith(b"2]\n\nevent: end\n")
    assert sample("gpu_console_events_sent_total") == sent + 1


async def test_a_port_that_closes_ends_its_streams_first() -> None:
    async with AsyncExitStack() as of_the_port, AsyncExitStack() as of_the_viewer:
        console, token = await of_the_port.enter_async_context(local_console())
        await log_in(console, token)
        reader, writer = await asyncio.open_connection("127.0.0.1", console.port)
        of_the_viewer.callback(writer.close)
        writer.write(request(console, "/api/v1/stream"))
        await reader.readuntil(SNAPSHOT)
        await of_the_port.aclose()
        assert b"event: end\n" in await reader.read()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", console.port)


async def test_a_thousand_connections_harm_no_viewer_and_keep_none_out() -> None:
    raise_limit()
    before = sample("gpu_connections_dropped_total", cause="limit")
    async with local_console() as (console, token), AsyncExitStack() as stack:
        await log_in(console, token)
        reply = await stack.enter_async_context(console.stream())
        assert await event_of(reply) == SNAPSHOT
        for number in range(1_200):
            _, writer = await asyncio.open_connection("127.0.0.1", console.port)
            stack.callback(writer.close)
            if number % 3:
                writer.write(b"GET / HTTP/1.1\r\nHost: x")
        assert (await console.ask(DEVICE)).status == 200
        assert sample("gpu_connections_dropped_total", cause="limit") >= before + 200
        console.data.streams[0].send(b"data: 1\n\n")
        assert await event_of(reply) == b"data: 1\n\n"


async def test_a_full_port_refuses_a_connection_and_cuts_no_stream() -> None:
    async with (
        local_console(limits=ViewerLimits(connections=3)) as (console, token),
        AsyncExitStack() as stack,
    ):
        await log_in(console, token)
        replies = [await stack.enter_async_context(console.stream()) for _ in range(3)]
        reader, writer = await asyncio.open_connection("127.0.0.1", console.port)
        stack.callback(writer.close)
        async with asyncio.timeout(LIMIT_S):
            assert await reader.read() == b""
        for reply in replies:
            assert await event_of(reply) == SNAPSHOT


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\nX-A"])
async def test_a_peer_that_does_not_finish_its_request_is_closed(sent: bytes) -> None:
    async with local_console(limits=SHORT) as (console, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", console.port)
        writer.write(sent)
        async with asyncio.timeout(LIMIT_S):
            assert await reader.read() == b""
        writer.close()


async def test_a_byte_now_and_then_buys_no_time() -> None:
    async with local_console(limits=SHORT) as (console, _), asyncio.TaskGroup() as group:
        reader, writer = await asyncio.open_connection("127.0.0.1", console.port)
        dribbling = group.create_task(dribble(writer))
        async with asyncio.timeout(LIMIT_S):
            assert await reader.read() == b""
        dribbling.cancel()
        writer.close()


async def dribble(writer: asyncio.StreamWriter) -> None:
    writer.write(b"GET / HTTP/1.1\r\n")
    while True:
        writer.write(b"X-More: x\r\n")
        await asyncio.sleep(0.02)


def request(console: ServedConsole, path: str) -> bytes:
    cookie = console.headers["Cookie"]
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\nCookie: {cookie}\r\n\r\n".encode()


def unread_request(console: ServedConsole, path: str) -> socket.socket:
    """Return a socket on which a question was asked, and no answer is read."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    peer.connect(("127.0.0.1", console.port))
    peer.setblocking(False)
    peer.send(request(console, path))
    return peer
