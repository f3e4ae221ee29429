"""HTTP/2 on one connection in memory: large bodies, floods, bytes without a meaning; virtual time."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from structlog.testing import capture_logs

from tests.support.http2_peer import (
    CONTINUATION,
    GREETED,
    HEADERS,
    LIMITS,
    PING,
    RST_STREAM,
    SETTINGS,
    Http2Peer,
    frame,
    serving,
)
from tests.support.served_app import sample

pytestmark = pytest.mark.looptime


async def test_body_that_grows_too_large_is_refused() -> None:
    async with serving(replace(LIMITS, body_bytes=20_000)) as served:
        peer = served.connect()
        number = peer.request("/known", b"x" * 16_000, ("te", "trailers"), ends=False)
        peer.codec.send_data(number, b"x" * 16_000)
        await peer.exchange()
        assert peer.answered[number].status == 413
        assert (await peer.ask("/page")).status == 200


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(GREETED[:10], id="preface"),
        pytest.param(GREETED + frame(PING, payload=b"12345678")[:-1], id="frame"),
        pytest.param(GREETED + frame(HEADERS, stream=1), id="header block"),
    ],
)
async def test_frame_has_its_deadline(sent: bytes) -> None:
    async with serving() as served:
        before = sample("gpu_connections_dropped_total", cause="head")
        peer = served.connect()
        await peer.send(sent)
        await asyncio.sleep(LIMITS.head_s - 1)
        assert not peer.transport.is_closing()
        await asyncio.sleep(2)
        assert peer.transport.is_closing()
        assert sample("gpu_connections_dropped_total", cause="head") == before + 1


async def test_abandoned_decisions_count_until_they_end() -> None:
    """Given up and asked again, requests do not add up beyond the limit."""
    async with serving(replace(LIMITS, pipelined=3)) as served:
        peer = served.connect()
        for _ in range(3):
            number = peer.request("/awaited", b"x")
            await peer.exchange()
            peer.codec.reset_stream(number)
        number = peer.request("/awaited", b"x")
        await peer.exchange()
        assert peer.answered[number].reset == ErrorCodes.REFUSED_STREAM
        served.finish.set()
        await peer.exchange()
        assert (await peer.ask("/awaited", b"x")).status == 200


async def test_bodies_that_take_turns_on_one_connection_end_with_it() -> None:
    async with serving() as served:
        peer = served.connect()
        await peer.exchange()
        for _ in range(2):
            peer.request("/open", b"x" * 70_000, ends=False)
            await peer.exchange()
        with capture_logs() as logs:
            await peer.send(frame(SETTINGS, stream=1))
        assert peer.transport.is_closed
        assert [log["event"] for log in logs] == ["malformed HTTP request"]


async def test_large_bodies_of_strangers_take_turns() -> None:
    async with serving() as served:
        first, second = served.connect(), served.connect()
        numbers = []
        for peer in (first, second):
            length = ("content-length", "200000")
            numbers.append(peer.request("/open", b"x" * 16_000, length, ends=False))
            await peer.exchange()
        sent = [16_000, 16_000]
        for turn, peer in enumerate((first, second)):
            number = numbers[turn]
            for _ in range(20):
                window = peer.codec.local_flow_control_window(number)
                size = min(200_000 - sent[turn], window, 16_000)
                if turn == 0 and sent[0] >= 192_000:
                    break
                if size:
                    peer.codec.send_data(number, b"x" * size, end_stream=False)
                    sent[turn] += size
                await peer.exchange()
        assert sent == [192_000, 140_000], "the second has no more than its window"
        first.codec.send_data(numbers[0], b"x" * 8_000, end_stream=True)
        await first.exchange()
        assert first.answered[numbers[0]].status == 200
        await second.exchange()
        second.codec.send_data(numbers[1], b"x" * 16_000)
        await second.exchange()
        for size in (16_000, 16_000, 12_000):
            second.codec.send_data(numbers[1], b"x" * size, end_stream=size == 12_000)
        await second.exchange()
        assert second.answered[numbers[1]].status == 200


async def test_small_bodies_of_a_connection_are_together_no_larger_than_one() -> None:
    async with serving() as served:
        peer = served.connect()
        for _ in range(3):
            peer.request("/open", b"x", ("content-length", "30000"), ends=False)
        await peer.exchange()
        assert served.state.large_bodies._free == 0, "the third has a turn"


def _resets(peer: Http2Peer) -> None:
    number = peer.request("/known", b"x", ("content-length", "2"), ends=False)
    peer.codec.reset_stream(number)


FLOODS: dict[str, Callable[[Http2Peer], object]] = {
    "pings": lambda peer: peer.codec.ping(b"12345678"),
    "settings": lambda peer: peer.codec.update_settings({SettingCodes.MAX_FRAME_SIZE: 2**14}),
    "windows": lambda peer: peer.codec.increment_flow_control_window(1),
    "rapid resets": _resets,
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
async def test_flood_of_frames_ends_the_connection(flood: Callable[[Http2Peer], object]) -> None:
    async with serving() as served:
        peer = served.connect()
        for _ in range(LIMITS.idle_frames + 1):
            flood(peer)
            await peer.exchange()
            if peer.transport.is_closing():
                break
        assert peer.transport.is_closing()
        assert peer.goaway is not None
        assert peer.goaway[1] == ErrorCodes.ENHANCE_YOUR_CALM


async def test_health_checks_between_requests_are_no_flood() -> None:
    async with serving() as served:
        peer = served.connect()
        for _ in range(2 * LIMITS.idle_frames):
            peer.codec.ping(b"12345678")
            assert (await peer.ask("/page")).status == 200


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", ErrorCodes.PROTOCOL_ERROR, id="HTTP/1.1"),
        pytest.param(
            GREETED + frame(HEADERS, 0, 1) + frame(CONTINUATION, 0, 1, b"x" * 16_000) * 2,
            ErrorCodes.ENHANCE_YOUR_CALM,
            id="header block without an end",
        ),
        pytest.param(
            GREETED + frame(HEADERS, 0, 1) + frame(CONTINUATION, 0, 1) * 300,
            ErrorCodes.PROTOCOL_ERROR,
            id="empty parts of a header block",
        ),
        pytest.param(
            GREETED + b"\x01\x11\x71" + frame(0, 0, 1)[3:],
            ErrorCodes.FRAME_SIZE_ERROR,
            id="a frame that would be too long",
        ),
        pytest.param(
            GREETED + frame(HEADERS, 5, 1, b"\xff" * 20),
            ErrorCodes.PROTOCOL_ERROR,
            id="no HPACK",
        ),
        pytest.param(
            GREETED + frame(RST_STREAM, 0, 1, b"1234"), ErrorCodes.PROTOCOL_ERROR, id="idle stream"
        ),
    ],
)
async def test_bytes_without_a_meaning_end_the_connection(sent: bytes, code: ErrorCodes) -> None:
    async with serving() as served:
        peer = served.connect()
        with capture_logs() as logs:
            await peer.send(sent)
        assert peer.transport.is_closing()
        assert peer.goaway is not None
        assert peer.goaway[1] == code
        assert [line["event"] for line in logs] == ["malformed HTTP request"]


async def test_head_beyond_the_limits_is_refused() -> None:
    async with serving() as served:
        peer = served.connect()
        fields = [(f"x-{number}", "y") for number in range(LIMITS.head_fields)]
        number = peer.request("/page", None, *fields)
        await peer.exchange()
        assert peer.answered[number].status == 431
        # Compressed it is short: the same field again and again.
        peer.request("/page", None, *[("x-long", "y" * 200)] * 90)
        await peer.exchange()
        assert peer.goaway is not None
        assert peer.goaway[1] == ErrorCodes.ENHANCE_YOUR_CALM


async def test_more_streams_than_are_offered_end_the_connection() -> None:
    async with serving(replace(LIMITS, pipelined=3)) as served:
        peer = served.connect()
        await peer.exchange()
        peer.codec.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 100
        peer.codec.remote_settings.acknowledge()
        for _ in range(4):
            peer.request("/awaited", b"x")
        await peer.exchange()
        assert peer.transport.is_closing()
