"""The port: what is no HTTP costs one line in the log, and closing it lets requests finish."""

import asyncio
import socket

import pytest
from aiohttp import ClientSession
from structlog.testing import capture_logs

from http_edge.body import Unread
from http_edge.limits import Limits
from http_edge.listener import Port
from http_edge.listening_sockets import ListenError
from http_edge.routes import Headers, Routes
from server.settings import ListenSettings
from tests.support.endpoints import LIMITS, AnsweredBy, a_port, awaited
from tests.support.loop_clock import LoopClock
from tests.support.ports import free_port


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nno header\r\n\r\n", 400, id="no header"),
        pytest.param(b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", 400, id="no version"),
        pytest.param(b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 400, id="another version"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400, id="folded"),
        pytest.param(b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 400, id="a tunnel"),
        pytest.param(
            b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", 400, id="an upgrade"
        ),
        pytest.param(
            b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, id="old chunks"
        ),
        pytest.param(b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n", 431, id="a long path"),
        pytest.param(b"GET /" + b"x" * 20_000, 431, id="a path without an end"),
        pytest.param(b"GET / HTTP/1.1\r\nX:" + b"x" * 20_000, 431, id="a header without an end"),
        pytest.param(
            b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: x\r\n" % n for n in range(129)) + b"\r\n",
            431,
            id="129 fields",
        ),
    ],
)
async def test_what_is_no_request_is_refused_and_told_in_one_line(
    request_: bytes, status: int
) -> None:
    with capture_logs() as logs:
        async with a_port() as (_, number):
            reader, writer = await connect(number)
            writer.write(request_)
            answer = await reader.read()
            await end(writer)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"\r\nConnection: close\r\n" in answer
    assert b"Traceback" not in answer
    (line,) = [log for log in logs if log["log_level"] != "info" and "error" in log]
    assert (line["event"], line["log_level"]) == ("malformed HTTP request", "warning")
    assert "exc_info" not in line


async def test_closing_lets_a_request_finish_and_takes_no_more() -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        started.set()
        await finish.wait()

    async with a_port(AnsweredBy(awaited(wait))) as (port, number), ClientSession() as session:
        async with asyncio.TaskGroup() as group:
            url = f"http://127.0.0.1:{number}/"
            response = group.create_task(session.post(url, data=b"done"))
            await started.wait()
            closing = group.create_task(port.close())
            while await can_connect(number):  # noqa: ASYNC110  # nothing signals it
                await asyncio.sleep(0.01)
            assert not closing.done()
            finish.set()
        assert await response.result().text() == "done"
        assert response.result().headers["Connection"] == "close"


async def can_connect(port: int) -> bool:
    try:
        _, writer = await connect(port)
    except ConnectionError:
        return False
    await end(writer)
    return True


async def test_connections_outlive_the_idle_time_of_the_api_server() -> None:
    """It closes its own after 90 s; who closes first may lose a request that is on its way."""
    assert Limits().keep_alive_s > 90


async def test_port_in_use_and_address_of_another_machine_are_named() -> None:
    def a_port_at(host: str, number: int) -> Port:
        listen = ListenSettings(host=host, port=number)
        return Port(Routes(), listen, None, clock=LoopClock(), limits=LIMITS)

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{number}: "):
            async with a_port_at("127.0.0.1", number):
                pass
    with pytest.raises(ListenError, match=r"cannot listen on 192\.0\.2\.1:"):
        async with a_port_at("192.0.2.1", free_port()):
            pass


BRIEF = Limits(connections=16, body_bytes=1024, head_s=0.1)


async def test_answer_and_body_may_take_longer_than_a_head() -> None:
    endpoint = AnsweredBy(awaited(lambda: asyncio.sleep(2 * BRIEF.head_s)))
    async with a_port(endpoint, BRIEF) as (_, number):
        reader, writer = await connect(number)
        for _ in range(2):
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbo")
            await asyncio.sleep(2 * BRIEF.head_s)
            writer.write(b"dy")
            assert b" 200 OK" in await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(4) == b"body"
        await end(writer)


def too_much(_headers: Headers) -> Unread:
    return Unread(413, "RequestEntityTooLarge", "")


@pytest.mark.parametrize(
    "expect", ["", "Expect: 100-continue\r\n"], ids=["reported late", "reported early"]
)
async def test_connection_of_a_refused_request_may_be_idle(expect: str) -> None:
    """The rest of its body is no head, and neither is silence."""
    async with a_port(AnsweredBy(refuse=too_much), BRIEF) as (_, number):
        reader, writer = await connect(number)
        for _ in range(2):
            head = f"POST / HTTP/1.1\r\nHost: x\r\n{expect}Content-Length: 4\r\n\r\n"
            writer.write(head.encode())
            assert b" 413 " in await reader.readuntil(b"\r\n\r\n")
            writer.write(b"bo")
            await asyncio.sleep(0.01)
            writer.write(b"dy")
            await asyncio.sleep(2 * BRIEF.head_s)
        await end(writer)


async def test_requests_sent_at_once_are_answered_in_their_order() -> None:
    """Whether or not an answer is awaited."""
    async with a_port(limits=BRIEF) as (_, number):
        await assert_answered_in_order(number)
    async with a_port(AnsweredBy(awaited(lambda: asyncio.sleep(0))), BRIEF) as (_, number):
        await assert_answered_in_order(number)


async def assert_answered_in_order(number: int) -> None:
    reader, writer = await connect(number)
    head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n"
    writer.write("".join(f"{head}{item}" for item in range(8)).encode())
    for item in range(8):
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(1) == str(item).encode()
    await end(writer)


async def test_client_that_is_sent_away_is_told_to_close_its_connection() -> None:
    async with a_port() as (port, number):
        port.send_away()
        reader, writer = await connect(number)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        answer = await reader.read()
        await end(writer)
    assert b"\r\nConnection: close\r\n" in answer
    assert b"\r\nServer:" not in answer
