"""What frames of HTTP/2 cost the server, by kind: bytes that it keeps of them, calls of Python for a KiB of them."""

import asyncio
import functools
import gc
import struct
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager

import pytest
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from hpack import Encoder

from http_edge.http2.http2_protocol import Http2Protocol
from tests.support.endpoints import OneConnection, Served, serving_all_kinds
from tests.support.http2_peer import (
    CONTINUATION,
    GREETED,
    HEADERS,
    LIMITS,
    LONG,
    PING,
    RST_STREAM,
    SETTINGS,
    Http2Peer,
    frame,
    serving,
)
from tests.support.served_app import sample

pytestmark = pytest.mark.looptime

DATA, PRIORITY, GOAWAY, WINDOW_UPDATE, UNKNOWN = 0, 2, 7, 8, 42
END_STREAM, END_HEADERS, PADDED = 1, 4, 8
KIB = 1024
SENT = 32 * KIB
KEPT = 200 * KIB
"""Of one connection; most of it is what h2 knows of closed streams."""
CALLS_A_KIB = 2_000
"""A frame takes some 100 calls, so that it is as many as 20 of them."""


def head(path: str, method: str = "POST") -> bytes:
    fields = [(":method", method), (":scheme", "https"), (":authority", "x"), (":path", path)]
    return bytes(Encoder().encode(fields))


POST = frame(HEADERS, END_HEADERS, 1, head("/known"))
LONG_PAGE = frame(HEADERS, END_HEADERS | END_STREAM, 1, head("/long", "GET"))


def settings_of(entries: int, first: int = 16) -> bytes:
    payload = b"".join(struct.pack(">HL", first + number, 7) for number in range(entries))
    return frame(SETTINGS, payload=payload)


def repeated(sent: bytes) -> Iterator[bytes]:
    while True:
        yield sent


def requests() -> Iterator[bytes]:
    block = head("/nowhere", "GET")
    for stream in range(3, 2**31, 2):
        yield frame(HEADERS, END_HEADERS | END_STREAM, stream, block)


def unknown_settings() -> Iterator[bytes]:
    """Each frame with other identifiers, as many as a frame may have."""
    for first in range(16, 2**16 - LIMITS.settings_per_frame, LIMITS.settings_per_frame):
        yield settings_of(LIMITS.settings_per_frame, first)


def given_up() -> Iterator[bytes]:
    for stream in range(1, 2**31, 2):
        yield frame(HEADERS, END_HEADERS, stream, head("/known"))
        yield frame(RST_STREAM, 0, stream, b"\0\0\0\x08")


def serving_unread() -> AbstractAsyncContextManager[Served[OneConnection]]:
    """Serve a peer that makes nothing of the answers."""
    open_ = functools.partial(OneConnection, protocol=Http2Protocol)
    return serving_all_kinds(LIMITS, open_, long_page=LONG)


async def feed(connection: OneConnection, sent: bytes) -> None:
    """Deliver all, turn by turn."""
    for at in range(0, len(sent), KIB):
        await connection.feed(sent[at : at + KIB])
        while connection.transport.is_held() and not connection.transport.is_closing():  # noqa: ASYNC110  # turns
            await asyncio.sleep(0)


REQUESTS: dict[str, tuple[bytes, Callable[[], Iterator[bytes]]]] = {"requests": (b"", requests)}
"""Each is answered, and takes the time of one."""


def codec_of(peer: OneConnection | Http2Peer) -> H2Connection:
    assert isinstance(peer.protocol, Http2Protocol)
    return peer.protocol._codec


FLOODS: dict[str, tuple[bytes, Callable[[], Iterator[bytes]]]] = {
    "bodies of a byte a frame": (POST, lambda: repeated(frame(DATA, 0, 1, b"x"))),
    "bodies of two bytes a frame": (POST, lambda: repeated(frame(DATA, 0, 1, b"xy"))),
    "bodies of as few bytes a frame as may be": (
        POST,
        lambda: repeated(frame(DATA, 0, 1, b"x" * 64)),
    ),
    "padded bodies": (POST, lambda: repeated(frame(DATA, PADDED, 1, b"\1x\0"))),
    "empty parts of a body": (POST, lambda: repeated(frame(DATA, 0, 1))),
    "parts of heads": (
        frame(HEADERS, 0, 1, b"\x82"),
        lambda: repeated(frame(CONTINUATION, 0, 1, b"")),
    ),
    "priorities": (b"", lambda: repeated(frame(PRIORITY, 0, 1, b"\0\0\0\0\7"))),
    "requests that are given up": (b"", given_up),
    "settings": (b"", lambda: repeated(settings_of(1, first=4))),
    "settings without a meaning": (b"", unknown_settings),
    "a frame of many settings": (b"", lambda: repeated(settings_of(10_000))),
    "pings": (b"", lambda: repeated(frame(PING, payload=b"12345678"))),
    "windows": (b"", lambda: repeated(frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1"))),
    "windows for an answer": (
        frame(SETTINGS, payload=struct.pack(">HL", 4, 0)) + LONG_PAGE,
        lambda: repeated(frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\1")),
    ),
    "unknown frames": (b"", lambda: repeated(frame(UNKNOWN, 0, 0, b"x" * 100))),
    "a long unknown frame": (b"", lambda: repeated(frame(UNKNOWN, 0, 0, b"x" * 60_000))),
    "goodbyes": (b"", lambda: repeated(frame(GOAWAY, payload=bytes(8)))),
}


def flood_of(name: str) -> tuple[bytes, bytes]:
    """Return what comes first, and then so many bytes."""
    begin, frames = (FLOODS | REQUESTS)[name]
    flood = bytearray()
    for item in frames():
        flood += item
        if len(flood) >= SENT:
            break
    return begin, bytes(flood)


@pytest.mark.parametrize("name", FLOODS | REQUESTS)
async def test_frames_of_a_kind_leave_little_in_memory(name: str) -> None:
    async with serving_unread() as served:
        connection = served.connect()
        begin, flood = flood_of(name)
        await feed(connection, GREETED + begin)
        gc.collect()
        tracemalloc.start()
        try:
            await feed(connection, flood)
            connection.transport.written = b""
            del flood
            gc.collect()
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept < KEPT


@pytest.mark.parametrize("name", FLOODS)
async def test_frames_of_a_kind_take_little_time_for_their_bytes(name: str) -> None:
    """Counted in calls, which no other work on the machine changes."""
    async with serving_unread() as served:
        connection = served.connect()
        begin, flood = flood_of(name)
        await feed(connection, GREETED + begin)
        calls = 0

        def count(_frame: object, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event in {"call", "c_call"}

        sys.setprofile(count)
        try:
            await feed(connection, flood)
        finally:
            sys.setprofile(None)
        assert calls / (SENT / KIB) < CALLS_A_KIB


async def test_frames_beyond_a_turn_wait_for_other_connections() -> None:
    async with serving() as served:
        many, other = served.connect(), served.connect()
        await other.send(GREETED)
        await many.send(GREETED)
        pages = [frame(HEADERS, 5, stream, head("/page", "GET")) for stream in range(1, 401, 2)]
        many.protocol.data_received(b"".join(pages))
        answered = codec_of(many).highest_inbound_stream_id
        assert answered == 2 * LIMITS.frames_per_batch - 1
        assert many.transport.is_held(), "it reads on while others wait"
        other.protocol.data_received(pages[0])
        assert codec_of(other).highest_inbound_stream_id == 1
        for _ in range(4):
            await asyncio.sleep(0)
        assert codec_of(many).highest_inbound_stream_id == 399
        assert not many.transport.is_held()


async def test_frames_that_wait_for_their_turn_are_not_read_after_the_end() -> None:
    async with serving() as served:
        peer = served.connect()
        await peer.send(GREETED)
        pages = [frame(HEADERS, 5, stream, head("/page", "GET")) for stream in range(1, 401, 2)]
        peer.protocol.data_received(b"".join(pages))
        peer.protocol.close()
        await asyncio.sleep(1)
        assert codec_of(peer).highest_inbound_stream_id == 2 * LIMITS.frames_per_batch - 1


async def test_frames_wait_while_the_peer_reads_no_answers() -> None:
    async with serving() as served:
        peer = served.connect()
        await peer.send(GREETED)
        pages = [frame(HEADERS, 5, stream, head("/page", "GET")) for stream in range(1, 401, 2)]
        peer.protocol.data_received(b"".join(pages))
        peer.protocol.pause_writing()
        await asyncio.sleep(1)
        assert codec_of(peer).highest_inbound_stream_id < 399
        peer.protocol.resume_writing()
        await asyncio.sleep(1)
        assert codec_of(peer).highest_inbound_stream_id == 399
        assert not peer.transport.is_held()


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        pytest.param(
            settings_of(LIMITS.settings_per_frame + 1), ErrorCodes.ENHANCE_YOUR_CALM, id="settings"
        ),
        *(
            pytest.param(
                frame(kind, payload=bytes(LIMITS.control_frame_bytes + 8)),
                ErrorCodes.FRAME_SIZE_ERROR,
                id=f"frame of type {kind}",
            )
            for kind in (PING, GOAWAY, UNKNOWN)
        ),
    ],
)
async def test_frame_beyond_its_bound_is_refused_by_its_head(sent: bytes, code: ErrorCodes) -> None:
    async with serving() as served:
        peer = served.connect()
        await peer.send(GREETED + sent[:9])
        assert peer.transport.is_closing()
        assert peer.goaway is not None
        assert peer.goaway[1] == code


async def test_settings_with_a_meaning_are_heeded_among_others() -> None:
    async with serving_unread() as served:
        connection = served.connect()
        payload = struct.pack(">HLHLHL", 4_000, 1, 4, 5_000, 17, 1)
        await feed(connection, GREETED + frame(SETTINGS, payload=payload) + LONG_PAGE)
        remote = codec_of(connection).remote_settings
        assert remote.initial_window_size == 5_000
        assert not {4_000, 17} & {int(code) for code in remote}


async def test_body_in_frames_of_a_byte_ends_the_connection() -> None:
    async with serving() as served:
        peer = served.connect()
        await peer.send(GREETED + POST + frame(DATA, 0, 1, b"x") * 300)
        assert peer.goaway is not None
        assert peer.goaway[1] == ErrorCodes.ENHANCE_YOUR_CALM


async def test_body_in_frames_of_a_hundred_bytes_is_read() -> None:
    async with serving() as served:
        peer = served.connect()
        number = peer.request("/known", b"", ("content-length", "60000"), ends=False)
        for turn in range(600):
            peer.codec.send_data(number, b"y" * 100, end_stream=turn == 599)
            if turn % 50 == 49:
                await peer.exchange()
        await peer.exchange()
        assert len(peer.answered[number].body) == 60_000


async def test_peer_whose_window_stays_small_is_dropped() -> None:
    async with serving_unread() as served:
        before = sample("gpu_connections_dropped_total", cause="answer")
        connection = served.connect()
        window = struct.pack(">HL", 4, KIB - 1)
        await feed(connection, GREETED + frame(SETTINGS, payload=window) + LONG_PAGE)
        assert not connection.transport.is_closing()
        assert LONG[:10] not in connection.written
        await asyncio.sleep(LIMITS.answer_s + 1)
        assert connection.transport.is_closing()
        assert sample("gpu_connections_dropped_total", cause="answer") == before + 1
