"""The port of the agent's pod: what kubelet and Prometheus ask, and what else may come."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest

from agent.probes import LIMITS, DevicePages, ProcessHealth, serving_probes
from http_edge.limits import Limits
from http_edge.open_files import raise_limit
from tests.support.loop_clock import LoopClock
from tests.support.metric_samples import Counted
from tests.support.polling import until

WITHIN_S = 5.0
"""kubelet's time-out."""
FLOOD = 1_500
"""Of silent connections; 1,024 open files are a usual limit."""


@dataclass
class Health:
    is_alive: bool = True
    missing: list[str] = field(default_factory=list)


@pytest.fixture
def health() -> Health:
    return Health()


class Listen(NamedTuple):
    port: int
    host: str = "127.0.0.1"


def serving(
    health: ProcessHealth,
    port: int,
    pages: DevicePages | None = None,
    limits: Limits = LIMITS,
) -> AbstractAsyncContextManager[None]:
    return serving_probes(health, Listen(port), LoopClock(), device_metrics=pages, limits=limits)


@pytest.fixture
async def port(health: Health, unused_tcp_port: int) -> AsyncIterator[int]:
    async with serving(health, unused_tcp_port):
        yield unused_tcp_port


@dataclass
class Pages:
    made: asyncio.Event = field(default_factory=asyncio.Event)
    asked: int = 0

    async def page(self) -> bytes:
        self.asked += 1
        await self.made.wait()
        return b"page\n"


async def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    url = f"http://127.0.0.1:{port}{path}"
    async with aiohttp.ClientSession() as session, session.request(method, url) as answer:
        return answer.status, await answer.text()


async def say(port: int, *parts: bytes) -> bytes:
    """Send the parts apart from each other, and return all that comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        async with asyncio.timeout(WITHIN_S / 2):
            return await reader.read()
    finally:
        await close(writer)


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_ready_names_the_missing_conditions(port: int, health: Health):
    assert await ask(port, "/readyz") == (200, "ready\n")
    health.missing = ["this", "that"]
    assert await ask(port, "/readyz") == (503, "this\nthat\n")


async def test_alive_until_it_is_not(port: int, health: Health):
    assert await ask(port, "/livez") == (200, "")
    health.is_alive = False
    assert await ask(port, "/livez") == (503, "")


async def test_metrics_are_what_prometheus_reads(port: int):
    url = f"http://127.0.0.1:{port}/metrics?name=any"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.content_type == "text/plain"
        assert "# TYPE gpu_agent_plugin_registered gauge" in await answer.text()


async def test_one_client_asks_again_and_again(port: int):
    async with aiohttp.ClientSession() as session:
        for _ in range(3):
            async with session.get(f"http://127.0.0.1:{port}/livez") as answer:
                assert answer.status == 200


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        pytest.param("/", "GET", 404, id="no such path"),
        pytest.param("/livez/", "GET", 404, id="not quite the path"),
        pytest.param("/livez", "POST", 405, id="a write"),
    ],
)
async def test_anything_else_is_refused(port: int, path: str, method: str, status: int):
    assert (await ask(port, path, method))[0] == status


async def test_a_request_may_come_in_pieces(port: int):
    answer = await say(port, b"GET /li", b"vez HTTP/1.1\r\nHost: n1\r", b"\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    "nonsense",
    [b"\x16\x03\x01\r\n\r\n", b"GET /livez\r\n\r\n", b"GET \xff HTTP/2\r\n\r\n"],
)
async def test_a_malformed_request_is_a_bad_request(port: int, nonsense: bytes):
    assert (await say(port, nonsense)).startswith(b"HTTP/1.1 400 ")


async def test_an_endless_request_is_refused(port: int):
    endless = b"GET /" + b"x" * LIMITS.head_bytes
    assert (await say(port, endless)).startswith(b"HTTP/1.1 431 ")


async def test_a_silent_connection_is_closed(health: Health, unused_tcp_port: int):
    limits = replace(LIMITS, first_request_s=0.05, head_s=0.05)
    async with serving(health, unused_tcp_port, limits=limits):
        for sent in ((), (b"\r\n\r\n",), (b"GET /livez",)):
            with contextlib.suppress(ConnectionResetError):
                assert await say(unused_tcp_port, *sent) == b""


async def test_a_fault_of_ours_is_counted_and_answered(unused_tcp_port: int):
    class Broken:
        is_alive = True

        @property
        def missing(self) -> list[str]:
            raise LookupError("broken")

    counted = Counted()
    async with serving(Broken(), unused_tcp_port):
        assert (await ask(unused_tcp_port, "/readyz"))[0] == 500
        assert (await ask(unused_tcp_port, "/livez"))[0] == 200
    assert counted.growth("gpu_task_failures_total") == {("answering",): 1}


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@contextlib.contextmanager
def silent_connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Open so many, and say nothing; whatever becomes of them."""
    raise_limit()
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(socket.socket()) for _ in range(count)]
        for peer in peers:
            peer.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                peer.connect(("127.0.0.1", port))
        yield peers


async def test_liveness_is_answered_beside_a_flood_of_connections(port: int):
    before = open_files()
    with silent_connections(port, FLOOD):
        for _ in range(5):
            async with asyncio.timeout(WITHIN_S):
                assert (await ask(port, "/livez"))[0] == 200
        # Of ours; the answered one may be on its way out, and so are those that one turn of the loop accepted too many.
        await until(lambda: open_files() - before - FLOOD <= LIMITS.connections + 1)


async def test_of_too_many_connections_the_oldest_goes_first(port: int):
    peers = [await asyncio.open_connection("127.0.0.1", port)]
    peers += [
        await asyncio.open_connection("127.0.0.1", port) for _ in range(LIMITS.connections - 1)
    ]
    (oldest, _), (second, second_writer) = peers[:2]
    last = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionResetError):
        async with asyncio.timeout(WITHIN_S / 2):
            assert await oldest.read() == b""
    second_writer.write(b"GET /livez HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(WITHIN_S / 2):
        assert (await second.read()).startswith(b"HTTP/1.1 200 OK\r\n")
    for _, writer in (*peers, last):
        await close(writer)


async def test_the_port_is_closed_after_the_end(health: Health, unused_tcp_port: int):
    async with serving(health, unused_tcp_port):
        reader, writer = await asyncio.open_connection("127.0.0.1", unused_tcp_port)
        assert (await ask(unused_tcp_port, "/livez"))[0] == 200
    with contextlib.suppress(ConnectionResetError):
        async with asyncio.timeout(WITHIN_S / 2):
            assert await reader.read() == b""
    await close(writer)
    with pytest.raises(aiohttp.ClientConnectionError):
        await ask(unused_tcp_port, "/livez")


async def test_page_of_devices_comes_once_it_is_made(unused_tcp_port: int):
    pages = Pages()
    port = unused_tcp_port
    async with serving(Health(), port, pages), asyncio.TaskGroup() as group:
        asking = group.create_task(ask(port, "/metrics/devices"))
        await until(lambda: pages.asked > 0)
        # The others do not wait for it.
        assert await ask(port, "/livez") == (200, "")
        pages.made.set()
        assert await asking == (200, "page\n")


async def test_page_of_devices_that_is_not_made_is_given_up(unused_tcp_port: int):
    limits = replace(LIMITS, answer_s=0.05)
    async with serving(Health(), unused_tcp_port, Pages(), limits):
        assert (await ask(unused_tcp_port, "/metrics/devices"))[0] == 503


async def test_clients_that_leave_cannot_make_more_wait_than_may_be_connected(
    unused_tcp_port: int,
):
    pages = Pages()
    limits = replace(LIMITS, connections=2)
    async with serving(Health(), unused_tcp_port, pages, limits):
        peers = [await asyncio.open_connection("127.0.0.1", unused_tcp_port) for _ in range(2)]
        for _, writer in peers:
            writer.write(b"GET /metrics/devices HTTP/1.1\r\n\r\n")
        await until(lambda: pages.asked == 2)
        for _, writer in peers:
            await close(writer)
        assert (await ask(unused_tcp_port, "/metrics/devices"))[0] == 503
        assert await ask(unused_tcp_port, "/livez") == (200, "")
    assert pages.asked == 2


async def test_those_in_use_go_first_where_they_are_older(unused_tcp_port: int):
    """Connections whose requests wait cannot take all places from those that come."""
    pages = Pages()
    limits = replace(LIMITS, connections=2)
    async with serving(Health(), unused_tcp_port, pages, limits):
        (used, writer), (unused, other) = [
            await asyncio.open_connection("127.0.0.1", unused_tcp_port) for _ in range(2)
        ]
        writer.write(b"GET /metrics/devices HTTP/1.1\r\n\r\n")
        await until(lambda: pages.asked > 0)
        assert await ask(unused_tcp_port, "/livez") == (200, "")
        with contextlib.suppress(ConnectionResetError):
            assert await used.read() == b""
        other.write(b"GET /livez HTTP/1.1\r\n\r\n")
        assert (await unused.read()).startswith(b"HTTP/1.1 200 OK\r\n")
        for either in (writer, other):
            await close(either)


async def test_agent_without_the_role_has_no_page_of_devices(port: int):
    assert (await ask(port, "/metrics/devices"))[0] == 404


async def test_page_of_devices_is_only_read(unused_tcp_port: int):
    pages = Pages()
    async with serving(Health(), unused_tcp_port, pages):
        assert (await ask(unused_tcp_port, "/metrics/devices", "POST"))[0] == 405
    assert pages.asked == 0
