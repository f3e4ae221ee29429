"""HTTP/1.1 on one connection in memory: order, deadlines, back-pressure, failures; virtual time."""

import asyncio
import tracemalloc
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from http_edge.limits import Limits
from http_edge.routes import Routes
from tests.support import endpoints
from tests.support.served_app import sample

pytestmark = pytest.mark.looptime

LIMITS = Limits(connections=4, body_bytes=1000, large_body_bytes=100, large_bodies=1)
GET = b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n"


def post(path: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


CHUNKED = b"POST /open HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def statuses(written: bytes) -> list[int]:
    lines = written.split(b"HTTP/1.1 ")[1:]
    return [int(line[:3]) for line in lines]


def serving(
    limits: Limits = LIMITS,
) -> AbstractAsyncContextManager[endpoints.Served[endpoints.OneConnection]]:
    return endpoints.serving_all_kinds(limits, endpoints.OneConnection)


async def test_synchronous_answer_is_written_before_the_data_are_done_with() -> None:
    async with serving() as served:
        peer = served.connect()
        peer.protocol.data_received(post("/known", b"body"))
        assert peer.written.endswith(b"\r\n\r\nbody")


async def test_answer_has_length_date_and_type() -> None:
    async with serving() as served:
        peer = served.connect()
        await peer.feed(GET)
        head, _, body = peer.written.partition(b"\r\n\r\n")
        assert head.split(b"\r\n") == [
            b"HTTP/1.1 200 OK",
            b"Content-Type: text/plain; charset=utf-8",
            b"Content-Length: 4",
            b"Date: Thu, 01 Jan 2026 00:00:00 GMT",
        ]
        assert body == b"page"


async def test_head_is_answered_as_get_is_without_the_body() -> None:
    async with serving() as served:
        peer = served.connect()
        await peer.feed(GET.replace(b"GET", b"HEAD"))
        assert b"Content-Length: 4\r\n" in peer.written
        assert peer.written.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_", "status", "more"),
    [
        (b"GET /nowhere HTTP/1.1\r\n\r\n", 404, b""),
        (b"GET /known HTTP/1.1\r\n\r\n", 405, b"Allow: POST\r\n"),
        (b"HEAD /known HTTP/1.1\r\n\r\n", 405, b"Allow: POST\r\n"),
        (post("/page"), 405, b"Allow: GET, HEAD\r\n"),
        (post("/known", b"x", "Expect: wonders"), 417, b""),
        (post("/known", b"x", "Content-Encoding: gzip"), 415, b""),
        (
            b"POST /known HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            415,
            b"",
        ),
    ],
)
async def test_connection_goes_on_after_a_refusal(
    request_: bytes, status: int, more: bytes
) -> None:
    async with serving() as served:
        peer = served.connect()
        await peer.feed(request_, GET)
        assert statuses(peer.written) == [status, 200]
        assert more in peer.written


async def test_http_1_0_is_answered_once_unless_it_asks_to_go_on() -> None:
    async with serving() as served:
        once, kept = served.connect(), served.connect()
        await once.feed(b"GET /page HTTP/1.0\r\n\r\n" * 2)
        assert statuses(once.written) == [200]
        assert once.transport.is_closing()
        await kept.feed(b"GET /page HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" * 2)
        assert statuses(kept.written) == [200, 200]
        assert kept.written.count(b"Connection: keep-alive\r\n") == 2
        assert not kept.transport.is_closing()


async def test_awaited_answer_comes_before_those_of_later_requests() -> None:
    async with serving() as served:
        peer = served.connect()
        await peer.feed(post("/awaited", b"first") + GET, GET)
        assert peer.written == b""
        assert peer.transport.is_held(), "later requests wait in the system's buffers"
        served.finish.set()
        await peer.drain()
        assert statuses(peer.written) == [200, 200, 200]
        assert peer.written.index(b"first") < peer.written.index(b"page")


async def test_too_many_requests_ahead_of_their_answers_end_the_connection() -> None:
    """Those that came before the limit are answered."""
    async with serving(replace(LIMITS, pipelined=3)) as served:
        peer = served.connect()
        await peer.feed(post("/awaited") + GET * 9)
        served.finish.set()
        await peer.drain()
        assert statuses(peer.written) == [200, 200, 200, 429]
        assert peer.transport.is_closing()


async def test_peer_that_reads_nothing_is_asked_nothing_more_and_dropped() -> None:
    async with serving() as served:
        before = sample("gpu_connections_dropped_total", cause="answer")
        peer = served.connect()
        await peer.feed(GET)
        peer.protocol.pause_writing()
        await peer.feed(GET * 3)
        assert statuses(peer.written) == [200]
        assert peer.transport.is_held()
        await asyncio.sleep(LIMITS.answer_s - 1)
        peer.protocol.resume_writing()
        await peer.drain()
        assert statuses(peer.written) == [200] * 4
        peer.protocol.pause_writing()
        await asyncio.sleep(LIMITS.answer_s + 1)
        assert peer.transport.is_closing()
        assert sample("gpu_connections_dropped_total", cause="answer") == before + 1


async def test_idle_connection_is_closed_so_long_after_its_last_answer() -> None:
    async with serving() as served:
        unused, used = served.connect(), served.connect()
        await used.feed(GET)
        await asyncio.sleep(LIMITS.keep_alive_s - 1)
        await used.feed(GET)
        await asyncio.sleep(LIMITS.keep_alive_s - 1)
        assert not used.transport.is_closing()
        await asyncio.sleep(2)
        assert used.transport.is_closing()
        assert not unused.transport.is_closing(), "its first request may be on its way"


async def test_head_has_its_deadline_behind_an_answer_that_was_awaited() -> None:
    async with serving() as served:
        peer = served.connect()
        await peer.feed(post("/awaited") + b"GET /pa")
        await asyncio.sleep(10 * LIMITS.head_s)
        assert not peer.transport.is_closing(), "nobody could have read more of it"
        served.finish.set()
        await peer.drain()
        await asyncio.sleep(LIMITS.head_s - 1)
        assert not peer.transport.is_closing()
        await asyncio.sleep(2)
        assert peer.transport.is_closing()


async def test_white_space_for_ever_is_no_request() -> None:
    async with serving() as served:
        peer = served.connect()
        for _ in range(10):
            await peer.feed(b"\r\n")
            await asyncio.sleep(LIMITS.head_s / 9)
        assert peer.transport.is_closing()


async def test_body_that_is_late_is_told_and_given_time_to_end() -> None:
    async with serving() as served:
        peer = served.connect()
        await peer.feed(post("/known", b"body")[:-1])
        await asyncio.sleep(LIMITS.body_s + 0.1)
        assert statuses(peer.written) == [408]
        await peer.feed(b"y" + GET)
        assert statuses(peer.written) == [408, 200]
        await peer.feed(post("/known", b"body")[:-1])
        await asyncio.sleep(LIMITS.body_s + LIMITS.linger_s + 0.2)
        assert peer.transport.is_closing()


async def test_body_of_a_peer_that_hangs_up_is_reported_and_not_answered() -> None:
    async with serving() as served:
        peer = served.connect()
        await peer.feed(post("/known", b"body")[:-1])
        peer.transport.close()
        await peer.drain()
        (unread,) = served.recorded.unread
        assert unread.text == "the connection broke before the body's end"
        assert peer.written == b""


async def test_decision_goes_on_when_its_peer_has_gone() -> None:
    """It may have written already: a bind is resolved."""
    done: list[bytes] = []

    async def decide() -> None:
        await asyncio.sleep(1)
        done.append(b"done")

    routes = Routes(endpoints={"/": endpoints.AnsweredBy(endpoints.awaited(decide))})
    async with endpoints.port_state(routes, LIMITS) as state:
        peer = endpoints.OneConnection(state)
        await peer.feed(post("/"))
        peer.transport.close()
        await asyncio.sleep(2)
        assert (done, peer.written) == ([b"done"], b"")


async def test_connection_that_gave_way_to_another_is_not_answered() -> None:
    """Its place is taken at once, and the transport tells its end a turn later."""
    async with serving(replace(LIMITS, connections=1)) as served:
        peer = served.connect()
        await peer.feed(post("/awaited"))
        served.finish.set()
        other = served.connect()
        await other.feed(GET)
        assert peer.transport.is_closing()
        assert peer.written == b""
        assert statuses(other.written) == [200]


@pytest.mark.parametrize("path", ["/failing", "/failing-later"])
async def test_defect_is_answered_500_and_counted(path: str) -> None:
    async with serving() as served:
        before = sample("gpu_task_failures_total", task="answering")
        peer = served.connect()
        with capture_logs() as logs:
            await peer.feed(post(path) + GET)
        assert statuses(peer.written) == [500, 200]
        assert b"ZeroDivisionError" not in peer.written
        assert sample("gpu_task_failures_total", task="answering") == before + 1
        assert [line["event"] for line in logs] == ["request failed"]


async def test_large_bodies_of_strangers_take_turns() -> None:
    async with serving() as served:
        first, second, small, recorded = (served.connect() for _ in range(4))
        large = post("/open", b"x" * 200)
        await first.feed(large[:-1])
        await second.feed(large[:-1])
        assert not first.transport.is_held()
        assert second.transport.is_held()
        await small.feed(post("/open", b"x" * 100)[:-1])
        await recorded.feed(large.replace(b"/open", b"/known")[:-1])
        assert not small.transport.is_held()
        assert not recorded.transport.is_held()
        await first.feed(b"x")
        assert statuses(first.written) == [200]
        assert not second.transport.is_held()
        first.transport.close()
        await second.feed(b"x")
        assert statuses(second.written) == [200]


async def test_turn_of_a_reader_that_hangs_up_is_the_next_ones() -> None:
    async with serving() as served:
        first, second, third = (served.connect() for _ in range(3))
        for peer in (first, second, third):
            await peer.feed(CHUNKED)
        second.transport.close()
        first.transport.close()
        await third.drain()
        assert not third.transport.is_held()


@pytest.mark.parametrize(
    "remaining",
    [
        pytest.param(b"3\r\nabcX", id="a chunk beyond its size"),
        pytest.param(b"z\r\n", id="no size"),
        pytest.param(b"0\r\nX: " + b"x" * 10_000, id="trailers"),
    ],
)
async def test_body_that_breaks_the_framing_is_told_and_ends_the_connection(
    remaining: bytes,
) -> None:
    async with serving() as served:
        peer = served.connect()
        await peer.feed(CHUNKED, remaining, b"x" * 10_000)
        assert statuses(peer.written) == [400]
        assert b"the body cannot be read: " in peer.written
        assert peer.transport.is_closing()


async def test_trailers_are_no_headers() -> None:
    refused: list[object] = []
    endpoint = endpoints.AnsweredBy(refuse=lambda headers: refused.append(dict(headers)))
    async with endpoints.port_state(Routes(endpoints={"/open": endpoint}), LIMITS) as state:
        peer = endpoints.OneConnection(state)
        await peer.feed(CHUNKED, b"0\r\nAuthorization: Bearer x\r\n\r\n")
        assert statuses(peer.written) == [200]
        assert refused == [{b"host": b"x", b"transfer-encoding": b"chunked"}]
        peer.transport.close()
        await peer.drain()


async def test_header_without_a_value_stays_one_of_its_own() -> None:
    seen: list[dict[bytes, bytes]] = []
    endpoint = endpoints.AnsweredBy(refuse=lambda headers: seen.append(dict(headers)))
    async with endpoints.port_state(Routes(endpoints={"/": endpoint}), LIMITS) as state:
        peer = endpoints.OneConnection(state)
        await peer.feed(post("/", b"", "X:", "Authorization: Bearer x", "authorization: Bearer y"))
        assert seen[0][b"x"] == b""
        assert seen[0][b"authorization"] == b"Bearer x"
        peer.transport.close()
        await peer.drain()


async def test_body_is_asked_for_only_where_it_is_awaited() -> None:
    async with serving() as served:
        peer = served.connect()
        request = post("/known", b"body", "Expect: 100-continue")
        await peer.feed(request[:-4])
        assert peer.written == b"HTTP/1.1 100 Continue\r\n\r\n"
        await peer.feed(b"body", request)
        assert statuses(peer.written) == [100, 200, 200]


async def test_shutdown_waits_for_the_requests_under_way_only() -> None:
    async with serving() as served:
        busy, idle = served.connect(), served.connect()
        await busy.feed(post("/awaited"))
        served.state.is_draining = True
        assert idle.protocol.finish() is None
        finished = busy.protocol.finish()
        assert finished is not None
        assert idle.transport.is_closing()
        assert not finished.done()
        served.finish.set()
        await busy.drain()
        assert finished.done()
        assert b"Connection: close\r\n" in busy.written
        assert busy.transport.is_closing()


async def test_request_that_outlasts_the_shutdown_is_cancelled() -> None:
    async with serving() as served:
        peer = served.connect()
        await peer.feed(post("/awaited"))
        peer.protocol.close()
        await peer.drain()
        assert peer.written == b""
        assert peer.transport.is_closing()


async def test_body_in_many_pieces_takes_the_memory_of_one() -> None:
    """Each piece may be a record of TLS."""
    size = 20_000
    async with serving(replace(LIMITS, body_bytes=size, large_body_bytes=size)) as served:
        peer = served.connect()
        head, body = post("/open", b"xy" * (size // 2)).split(b"\r\n\r\n")
        await peer.feed(head + b"\r\n\r\n")
        pieces = [body[at : at + 2] for at in range(0, size - 2, 2)]
        tracemalloc.start()
        try:
            for piece in pieces:
                peer.protocol.data_received(piece)
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept < 2 * size
