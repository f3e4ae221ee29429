"""The shorter way takes plain requests only, and gives what the long way would."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web

from manifests import constants
from server.http.app import SHORTCUTS
from server.http.body import Unread
from server.http.endpoints import Reply
from server.http.fast_path import FastPathHandler, FastPathRoute
from tests.support.served_app import ServedApp, TestAuthority

WITHIN_S = 20.0
"""For what must happen; reached only where it does not."""


class AnEndpoint:
    """Answers `short <body>`; refuses who says so."""

    def refusal_of(
        self, _transport: asyncio.BaseTransport | None, headers: Mapping[str, str]
    ) -> Unread | None:
        return Unread(401, "Unauthorized", "no") if "X-Refused" in headers else None

    def answer(self, body: bytes) -> Reply:
        return Reply(200, b"short " + body)


@dataclass
class Peer:
    """One connection; `connections` has its other end."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    connections: list[FastPathHandler]
    gate: asyncio.Event
    """Opened, lets requests for `/slow` be answered."""

    async def answer(self) -> str:
        """Return the body of the next answer."""
        async with asyncio.timeout(WITHIN_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            lines = head.decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines[1:-2])
            body = await self.reader.readexactly(int(headers["content-length"]))
        return f"{lines[0].split()[1]} {body.decode()}"

    async def ask(self, *pieces: bytes) -> str:
        for piece in pieces:
            self.writer.write(piece)
        return await self.answer()


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    """A connection to a server on which the long way says that it is long; one answer has come."""

    open_gate = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.Response:
        body = await request.read()
        if request.path == "/slow":
            await open_gate.wait()
        return web.Response(body=b"long " + body)

    loop = asyncio.get_running_loop()
    server = web.Server(answer)
    connections: list[FastPathHandler] = []

    def connect() -> FastPathHandler:
        shortcuts = {"/ask": FastPathRoute(AnEndpoint(), 40)}
        connections.append(FastPathHandler(server, shortcuts=shortcuts, access_log=None))
        return connections[-1]

    listener = await loop.create_server(connect, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
    peer = Peer(reader, writer, connections, open_gate)
    assert await peer.ask(a_request(path="/other")) == "200 long body"
    yield peer
    writer.transport.abort()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    await server.shutdown(0.1)
    listener.close()
    await listener.wait_closed()


def a_request(
    body: bytes = b"body",
    *,
    line: str = "POST {} HTTP/1.1",
    path: str = "/ask",
    length: str | None = "",
    **headers: str,
) -> bytes:
    given = {"Host": "x", **{key.replace("_", "-"): value for key, value in headers.items()}}
    if length is not None:
        given["Content-Length"] = length or str(len(body))
    lines = [line.format(path), *(f"{key}: {value}" for key, value in given.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def test_plain_requests_go_the_shorter_way_one_after_the_other(peer: Peer) -> None:
    for number in range(3):
        body = b"%d" % number
        assert await peer.ask(a_request(body)) == f"200 short {number}"


@pytest.mark.parametrize("cut", [1, 40, -3, -1])
async def test_pieces_of_a_request_are_put_together(peer: Peer, cut: int) -> None:
    request = a_request()
    peer.writer.write(request[:cut])
    await settled()
    assert await peer.ask(request[cut:]) in {"200 short body", "200 long body"}
    assert await peer.ask(a_request()) == "200 short body"


async def test_a_body_that_lets_itself_be_waited_for_goes_the_long_way(peer: Peer) -> None:
    request = a_request()
    peer.writer.write(request[:-2])
    connection = peer.connections[0]
    async with asyncio.timeout(WITHIN_S):
        while connection._held is None:  # noqa: ASYNC110  # nothing signals it
            await asyncio.sleep(0)
    connection._held.end_of_patience.cancel()
    connection._take_long_way()
    await settled()
    assert await peer.ask(request[-2:]) == "200 long body"
    assert await peer.ask(a_request()) == "200 short body"


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(a_request(path="/ask?x=1"), id="another path"),
        pytest.param(a_request(line="PUT {} HTTP/1.1"), id="another method"),
        pytest.param(a_request(Connection="close"), id="the last request"),
        pytest.param(a_request(line="POST {} HTTP/1.0"), id="HTTP/1.0"),
        pytest.param(a_request(Content_Encoding="identity"), id="an encoding"),
        pytest.param(a_request(Expect="100-continue"), id="an expectation"),
        pytest.param(a_request(X_Refused="yes"), id="refused"),
        pytest.param(a_request(b"b" * 41), id="too long"),
        pytest.param(a_request(b""), id="nothing"),
        pytest.param(
            a_request(b"4\r\nbody\r\n0\r\n\r\n", length=None, Transfer_Encoding="chunked"),
            id="chunks",
        ),
    ],
)
async def test_everything_else_goes_the_long_way(peer: Peer, request_: bytes) -> None:
    assert (await peer.ask(request_)).startswith("200 long")


async def test_requests_sent_at_once_are_answered_in_their_order(peer: Peer) -> None:
    bodies = [b"%d" % number for number in range(8)]
    for body in bodies:
        peer.writer.write(a_request(body))
    peer.writer.write(a_request(b"last", path="/other"))
    answers = [await peer.answer() for _ in range(9)]
    assert [answer.rpartition(" ")[2] for answer in answers] == [*"01234567", "last"]


async def test_nothing_overtakes_a_request_on_the_long_way(peer: Peer) -> None:
    peer.writer.write(a_request(path="/slow"))
    connection = peer.connections[0]
    async with asyncio.timeout(WITHIN_S):
        while connection._waiter is not None:  # noqa: ASYNC110  # nothing signals it
            await asyncio.sleep(0)
    peer.writer.write(a_request())
    async with asyncio.timeout(WITHIN_S):
        while not connection._messages:  # noqa: ASYNC110  # nothing signals it
            await asyncio.sleep(0)
    peer.gate.set()
    assert [await peer.answer(), await peer.answer()] == ["200 long body", "200 long body"]


async def test_a_peer_that_leaves_in_the_middle_of_a_body_harms_nobody(peer: Peer) -> None:
    peer.writer.write(a_request()[:-2])
    connection = peer.connections[0]
    async with asyncio.timeout(WITHIN_S):
        while connection._held is None:  # noqa: ASYNC110  # nothing signals it
            await asyncio.sleep(0)
        timer = connection._held.end_of_patience
        peer.writer.transport.abort()
        while connection.transport is not None:  # noqa: ASYNC110  # nothing signals it
            await asyncio.sleep(0)
    assert timer.cancelled()
    assert connection._held is None


async def test_an_answer_puts_off_the_end_of_an_idle_connection(peer: Peer) -> None:
    connection = peer.connections[0]
    before = connection._next_keepalive_close_time
    assert await peer.ask(a_request()) == "200 short body"
    assert connection._next_keepalive_close_time > before
    connection._process_keepalive()
    assert await peer.ask(a_request()) == "200 short body"


async def test_what_awaits_the_api_server_has_no_shortcut(
    authority: TestAuthority, tmp_path: Path
) -> None:
    app = ServedApp(authority, tmp_path / "token").app()
    shortcuts: dict[str, FastPathRoute] = app[SHORTCUTS]
    assert shortcuts.keys() == {
        constants.MUTATE_PODS_PATH,
        constants.VALIDATE_PODS_PATH,
        constants.VALIDATE_POOLS_PATH,
        constants.VALIDATE_DEVICES_PATH,
        constants.FILTER_PATH,
        constants.PRIORITIZE_PATH,
        constants.PREEMPT_PATH,
    }


async def settled() -> None:
    """Let what was written be read."""
    for _ in range(20):
        await asyncio.sleep(0)
