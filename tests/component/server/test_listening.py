"""The port: what is no HTTP costs one line in the log, and closing it lets requests finish."""

import asyncio
import logging
import socket

import pytest
from aiohttp import ClientSession, web

from server.http.limits import Limits
from server.http.listener import ListenError, Port
from server.settings import ListenSettings
from tests.support.ports import free_port


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


def a_listen(port: int | None = None) -> ListenSettings:
    return ListenSettings(host="127.0.0.1", port=port or free_port())


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nno header\r\n\r\n", id="no header"),
        pytest.param(b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", id="no version"),
        pytest.param(b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", id="no end"),
    ],
)
async def test_malformed_http_is_answered_400_and_told_in_one_line(
    caplog: pytest.LogCaptureFixture, request_: bytes
) -> None:
    listen = a_listen()
    async with Port(web.Application(), listen, None):
        reader, writer = await connect(listen.port)
        writer.write(request_)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.0 400 ")
    assert b"Traceback" not in answer
    (record,) = [one for one in caplog.records if one.name == "server.http"]
    assert (record.levelno, record.exc_info) == (logging.WARNING, None)
    assert record.getMessage().startswith("malformed HTTP request: ")


async def test_closing_lets_a_request_finish_and_takes_no_more() -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    async def answer(_request: web.Request) -> web.Response:
        started.set()
        await finish.wait()
        return web.Response(text="done")

    app = web.Application()
    app.router.add_get("/", answer)
    listen = a_listen()
    url = f"http://127.0.0.1:{listen.port}/"
    async with Port(app, listen, None) as port, ClientSession() as session:
        async with asyncio.TaskGroup() as group:
            response = group.create_task(session.get(url))
            await started.wait()
            closing = group.create_task(port.close())
            while await can_connect(listen.port):  # noqa: ASYNC110  # nothing signals it
                await asyncio.sleep(0.01)
            assert not closing.done()
            finish.set()
        assert await response.result().text() == "done"


async def can_connect(port: int) -> bool:
    try:
        _, writer = await connect(port)
    except ConnectionError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


async def test_connections_outlive_the_idle_time_of_the_api_server() -> None:
    """It closes its own after 90 s; who closes first may lose a request that is on its way."""
    assert Limits.of(ListenSettings()).keep_alive_s > 90


async def test_port_in_use_and_address_of_another_machine_are_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{number}: "):
            async with Port(web.Application(), a_listen(number), None):
                pass
    with pytest.raises(ListenError, match=r"cannot listen on 192\.0\.2\.1:"):
        async with Port(
            web.Application(), ListenSettings(host="192.0.2.1", port=free_port()), None
        ):
            pass


BRIEF = Limits(connections=16, body_bytes=1024, head_s=0.1)


async def test_answer_and_body_may_take_longer_than_a_head() -> None:
    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        await asyncio.sleep(2 * BRIEF.head_s)
        return web.Response(body=body)

    app = web.Application()
    app.router.add_post("/", answer)
    listen = a_listen()
    async with Port(app, listen, None, limits=BRIEF):
        reader, writer = await connect(listen.port)
        for _ in range(2):
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbo")
            await asyncio.sleep(2 * BRIEF.head_s)
            writer.write(b"dy")
            assert b" 200 OK" in await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(4) == b"body"
        writer.close()
        await writer.wait_closed()


async def refuse(_request: web.Request) -> web.Response:
    return web.Response(status=413)


@pytest.mark.parametrize(
    "expect", ["", "Expect: 100-continue\r\n"], ids=["told late", "told early"]
)
async def test_connection_of_a_refused_request_may_be_idle(expect: str) -> None:
    """The rest of its body is no head, and neither is silence."""
    app = web.Application()
    app.router.add_post("/", refuse, expect_handler=refuse)
    listen = a_listen()
    async with Port(app, listen, None, limits=BRIEF):
        reader, writer = await connect(listen.port)
        for _ in range(2):
            head = f"POST / HTTP/1.1\r\nHost: x\r\n{expect}Content-Length: 4\r\n\r\n"
            writer.write(head.encode())
            assert b" 413 " in await reader.readuntil(b"\r\n\r\n")
            writer.write(b"bo")
            await asyncio.sleep(0.01)
            writer.write(b"dy")
            await asyncio.sleep(2 * BRIEF.head_s)
        writer.close()
        await writer.wait_closed()


async def test_requests_sent_at_once_are_answered_in_their_order() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    app = web.Application()
    app.router.add_post("/", answer)
    listen = a_listen()
    async with Port(app, listen, None, limits=BRIEF):
        reader, writer = await connect(listen.port)
        head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n"
        writer.write("".join(f"{head}{number}" for number in range(8)).encode())
        for number in range(8):
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(1) == str(number).encode()
        writer.close()
        await writer.wait_closed()


async def test_client_that_is_sent_away_is_told_to_close_its_connection() -> None:
    app = web.Application()
    app.router.add_post("/", refuse)
    listen = a_listen()
    async with Port(app, listen, None) as port:
        port.send_away()
        reader, writer = await connect(listen.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert b"\r\nConnection: close\r\n" in answer
    assert b"\r\nServer:" not in answer
