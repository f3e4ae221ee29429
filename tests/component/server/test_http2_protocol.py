"""HTTP/2 on one connection in memory: streams, windows, deadlines, the end; virtual time."""

import asyncio

import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from structlog.testing import capture_logs

from http_edge.routes import Routes
from tests.support.endpoints import AnsweredBy, awaited, port_state
from tests.support.http2_peer import (
    CONTINUATION,
    LIMITS,
    LONG,
    Http2Peer,
    frame,
    serving,
)
from tests.support.served_app import sample

pytestmark = pytest.mark.looptime


async def test_answer_has_status_type_and_date() -> None:
    async with serving() as served:
        answered = await served.connect().ask("/known?timeout=3s", b"body")
        assert answered.is_whole
        assert answered.body == b"body"
        assert answered.headers == {
            b":status": b"200",
            b"content-type": b"text/plain; charset=utf-8",
            b"date": b"Thu, 01 Jan 2026 00:00:00 GMT",
        }


async def test_head_is_answered_as_get_is_without_the_body() -> None:
    async with serving() as served:
        peer = served.connect()
        number = peer.request("/page", method="HEAD")
        await peer.exchange()
        answered = peer.answered[number]
        assert (answered.headers[b"content-length"], answered.body) == (b"4", b"")
        assert answered.is_whole


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/nowhere", None, [], 404),
        ("/known", None, [], 405),
        ("/page", b"x", [], 405),
        ("/known", b"x", [("content-encoding", "gzip")], 415),
        ("/known", b"x", [("expect", "wonders")], 417),
        ("/known", b"begin", [("content-length", "300001")], 413),
    ],
)
async def test_connection_goes_on_after_a_refusal(
    path: str, body: bytes | None, headers: list[tuple[str, str]], status: int
) -> None:
    async with serving() as served:
        peer = served.connect()
        number = peer.request(path, body, *headers, ends=status != 413)
        await peer.exchange()
        assert peer.answered[number].status == status
        assert (await peer.ask("/page")).status == 200
        assert peer.goaway is None


async def test_refused_method_names_those_that_are_allowed() -> None:
    async with serving() as served:
        assert (await served.connect().ask("/known")).headers[b"allow"] == b"POST"


async def test_rest_of_a_refused_body_is_not_asked_for() -> None:
    async with serving() as served:
        peer = served.connect()
        number = peer.request("/nowhere", b"begin", ("content-length", "9"), ends=False)
        await peer.exchange()
        answered = peer.answered[number]
        assert (answered.status, answered.is_whole) == (404, True)
        assert answered.reset == ErrorCodes.NO_ERROR


async def test_awaited_answer_delays_no_other() -> None:
    async with serving() as served:
        peer = served.connect()
        first, second = (peer.request("/awaited", body) for body in (b"first", b"second"))
        await peer.exchange()
        assert (await peer.ask("/page")).body == b"page"
        assert peer.answered[first].status == 0
        served.finish.set()
        await peer.exchange()
        assert [peer.answered[item].body for item in (first, second)] == [b"first", b"second"]


async def test_body_in_many_frames_and_windows_arrives() -> None:
    """More than a window in all, so that windows are opened again; of a stream, and of the connection."""
    async with serving() as served:
        peer = served.connect()
        for path in ("/known", "/open"):
            for _ in range(3):
                number = peer.request(path, b"", ("content-length", "250000"), ends=False)
                remaining = b"y" * 250_000
                while remaining:
                    await peer.exchange()
                    size = min(len(remaining), peer.codec.local_flow_control_window(number), 16_384)
                    assert size, "the window stays closed"
                    peer.codec.send_data(
                        number, remaining[:size], end_stream=size == len(remaining)
                    )
                    remaining = remaining[size:]
                await peer.exchange()
                assert len(peer.answered[number].body) == 250_000


async def test_answer_waits_for_the_windows_of_its_reader_and_has_a_deadline() -> None:
    async with serving() as served:
        before = sample("gpu_connections_dropped_total", cause="answer")
        peer = served.connect(acknowledges=False)
        number = peer.request("/long")
        await peer.exchange()
        later = await peer.ask("/page")
        assert len(peer.answered[number].body) == 2**16 - 1
        assert later.status == 0, "nothing more is decided for it"
        peer.codec.increment_flow_control_window(10**6)
        peer.codec.increment_flow_control_window(10**6, number)
        await peer.exchange()
        assert peer.answered[number].body == LONG
        assert later.body == b"page"
        number = peer.request("/long")
        await peer.exchange()
        await asyncio.sleep(LIMITS.answer_s - 1)
        assert not peer.transport.is_closing()
        await asyncio.sleep(2)
        assert peer.transport.is_closing()
        assert sample("gpu_connections_dropped_total", cause="answer") == before + 1


async def test_window_that_settings_open_lets_the_answer_through() -> None:
    async with serving() as served:
        peer = served.connect()
        peer.codec.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
        number = peer.request("/page")
        await peer.exchange()
        assert (peer.answered[number].status, peer.answered[number].body) == (200, b"")
        peer.codec.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 100})
        await peer.exchange()
        assert peer.answered[number].body == b"page"


async def test_peer_whose_buffers_are_full_is_asked_nothing_more() -> None:
    async with serving() as served:
        peer = served.connect()
        assert (await peer.ask("/page")).status == 200
        peer.protocol.pause_writing()
        assert peer.transport.is_held()
        later = await peer.ask("/page")
        assert later.status == 0
        peer.protocol.resume_writing()
        await peer.exchange()
        assert later.status == 200


async def test_connection_stays_after_a_request_that_is_given_up_at_once() -> None:
    async with serving() as served:
        peer = served.connect()
        await asyncio.sleep(2 * LIMITS.keep_alive_s)
        number = peer.request("/known", b"begin", ends=False)
        peer.codec.reset_stream(number)
        await peer.exchange()
        await asyncio.sleep(LIMITS.keep_alive_s - 1)
        assert not peer.transport.is_closed
        await asyncio.sleep(2)
        assert peer.transport.is_closed


async def test_idle_connection_is_closed_so_long_after_its_last_answer() -> None:
    async with serving() as served:
        unused, used = served.connect(), served.connect()
        await unused.exchange()
        await used.ask("/page")
        await asyncio.sleep(LIMITS.keep_alive_s - 1)
        await used.ask("/page")
        await asyncio.sleep(LIMITS.keep_alive_s - 1)
        assert not used.transport.is_closing()
        await asyncio.sleep(2)
        await used.exchange()
        assert used.transport.is_closing()
        assert used.goaway == (3, ErrorCodes.NO_ERROR)
        assert not unused.transport.is_closing(), "its first request may be on its way"


async def test_connection_with_a_request_under_way_is_not_idle() -> None:
    async with serving() as served:
        peer = served.connect()
        number = peer.request("/awaited", b"x")
        await peer.exchange()
        await asyncio.sleep(3 * LIMITS.keep_alive_s)
        served.finish.set()
        await peer.exchange()
        assert peer.answered[number].status == 200


async def test_body_that_is_late_is_told_and_others_go_on() -> None:
    async with serving() as served:
        peer = served.connect()
        number = peer.request("/known", b"bod", ("content-length", "4"), ends=False)
        await peer.exchange()
        await asyncio.sleep(LIMITS.body_s + 0.1)
        await peer.exchange()
        assert (peer.answered[number].status, peer.answered[number].is_whole) == (408, True)
        assert (await peer.ask("/page")).status == 200


@pytest.mark.parametrize("how", ["hangs up", "resets"])
async def test_body_that_is_given_up_is_reported(how: str) -> None:
    async with serving() as served:
        peer = served.connect()
        number = peer.request("/known", b"bod", ("content-length", "4"), ends=False)
        await peer.exchange()
        if how == "resets":
            peer.codec.reset_stream(number)
        else:
            peer.transport.close()
        await peer.exchange()
        (unread,) = served.recorded.unread
        assert unread.text == "the connection broke before the body's end"
        assert peer.answered[number].status == 0


@pytest.mark.parametrize("how", ["hangs up", "resets", "breaks the protocol"])
async def test_decision_goes_on_when_nobody_waits_for_it(how: str) -> None:
    """It may have written already: a bind is resolved."""
    done: list[bytes] = []

    async def decide() -> None:
        await asyncio.sleep(1)
        done.append(b"done")

    routes = Routes(endpoints={"/": AnsweredBy(awaited(decide))})
    async with port_state(routes, LIMITS) as state:
        peer = Http2Peer(state)
        number = peer.request("/", b"x")
        await peer.exchange()
        if how == "resets":
            peer.codec.reset_stream(number)
        elif how == "hangs up":
            peer.transport.close()
        elif how == "breaks the protocol":
            await peer.send(frame(CONTINUATION, stream=9))
        await peer.exchange()
        await asyncio.sleep(2)
        assert (done, peer.answered[number].status) == ([b"done"], 0)
        peer.transport.close()
        await asyncio.sleep(0)


@pytest.mark.parametrize("path", ["/failing", "/failing-later"])
async def test_defect_is_answered_500_and_counted(path: str) -> None:
    async with serving() as served:
        before = sample("gpu_task_failures_total", task="answering")
        peer = served.connect()
        with capture_logs() as logs:
            answered = await peer.ask(path, b"x")
        assert answered.status == 500
        assert b"ZeroDivisionError" not in answered.body
        assert sample("gpu_task_failures_total", task="answering") == before + 1
        assert [line["event"] for line in logs] == ["request failed"]
        assert (await peer.ask("/page")).status == 200


async def test_body_is_asked_for_only_where_it_is_awaited() -> None:
    async with serving() as served:
        peer = served.connect()
        expecting = ("expect", "100-continue")
        number = peer.request("/known", b"", expecting, ("content-length", "4"), ends=False)
        await peer.exchange()
        assert peer.answered[number].informed == [100]
        peer.codec.send_data(number, b"body", end_stream=True)
        await peer.exchange()
        assert peer.answered[number].body == b"body"


async def test_shutdown_waits_for_the_requests_under_way_only() -> None:
    async with serving() as served:
        busy, idle = served.connect(), served.connect()
        await idle.ask("/page")
        number = busy.request("/awaited", b"x")
        await busy.exchange()
        served.state.is_draining = True
        assert idle.protocol.finish() is None
        finished = busy.protocol.finish()
        assert finished is not None
        await idle.exchange()
        assert idle.transport.is_closing()
        assert idle.goaway == (1, ErrorCodes.NO_ERROR)
        assert not finished.done()
        served.finish.set()
        await busy.exchange()
        assert finished.done()
        assert busy.answered[number].status == 200
        assert busy.transport.is_closing()


async def test_replica_that_sends_its_clients_away_does_so_with_the_next_answer() -> None:
    """Requests that it has are answered; later ones are refused so that the client repeats them elsewhere."""
    async with serving() as served:
        peer = served.connect()
        under_way = peer.request("/awaited", b"x")
        await peer.exchange()
        served.state.is_draining = True
        asked = peer.request("/page")
        await peer.exchange()
        assert peer.answered[asked].status == 200
        assert peer.goaway == (asked, ErrorCodes.NO_ERROR)
        assert not peer.transport.is_closing()
        served.finish.set()
        await peer.exchange()
        assert peer.transport.is_closing()
        assert under_way < asked


async def test_request_that_outlasts_the_shutdown_is_cancelled() -> None:
    async with serving() as served:
        peer = served.connect()
        number = peer.request("/awaited", b"x")
        await peer.exchange()
        peer.protocol.close()
        await peer.exchange()
        assert peer.answered[number].status == 0
        assert peer.transport.is_closing()


async def test_first_of_two_fields_counts() -> None:
    seen: list[dict[bytes, bytes]] = []
    endpoint = AnsweredBy(refuse=lambda headers: seen.append(dict(headers)))
    async with port_state(Routes(endpoints={"/": endpoint}), LIMITS) as state:
        peer = Http2Peer(state)
        await peer.ask("/", b"x", ("authorization", "Bearer x"), ("authorization", "Bearer y"))
        assert seen[0][b"authorization"] == b"Bearer x"
        peer.transport.close()
        await asyncio.sleep(0)
