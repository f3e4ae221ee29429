"""Open files: none of ours to be had by connections that say nothing."""

import asyncio
import contextlib
import errno
import resource
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from aiohttp import ClientSession, ClientTimeout

from http_edge.body import LargeBodies
from http_edge.connections import Acceptor, ConnectionLimiter
from http_edge.limits import Limits
from http_edge.listener import Port
from http_edge.peer_connection import PortState
from http_edge.protocol import HttpProtocol
from http_edge.replies import TEXT, Reply, ReplyEncoder
from http_edge.routes import Routes
from manifests.constants import LIVENESS_PATH
from server.settings import ListenSettings
from tests.support.loop_clock import LoopClock
from tests.support.polling import LIMIT_S, until
from tests.support.ports import free_port
from tests.support.running_server import Cluster, a_cluster, settings_for
from tests.support.served_app import hang_up, sample

SOFT, HARD = 64, 400
"""What the process is given; the soft limit is too small to live with."""
SILENT = 1_200
CALL_WITHIN_S = 10.0
"""Enough on a busy machine; a connection that is kept out is never answered."""
_LIMITED = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
runpy.run_module("cli", run_name="__main__", alter_sys=True)
"""


@contextlib.contextmanager
def silent_connections(port: int, count: int) -> Iterator[None]:
    """Open so many and say nothing; those that the server drops stay open here."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            peer = stack.enter_context(socket.socket())
            peer.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                peer.connect(("127.0.0.1", port))
        yield


async def test_silent_connections_beyond_the_limit_of_open_files_keep_nobody_out(
    tmp_path: Path,
) -> None:
    """The process has its own; what is the system's default would not do."""
    async with a_cluster(tmp_path) as cluster:
        await cluster.install()
        limited = _LIMITED.format(soft=SOFT, hard=HARD)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            limited,
            "serve",
            *("--kubeconfig", str(cluster.kubeconfig())),
            *flags(cluster),
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            await until_it_answers(cluster.port)
            with silent_connections(cluster.port, SILENT):
                for _ in range(10):
                    assert await asks(cluster.port) == 200
        finally:
            process.terminate()
            _, reported = await process.communicate()
    assert b"cannot accept a connection" not in reported
    assert b'"connections":200' in reported.replace(b" ", b""), "half of the files, it says"


def flags(cluster: Cluster) -> list[str]:
    settings = settings_for(cluster, cluster.port)
    return [
        *("--listen.host", settings.listen.host, "--listen.port", str(cluster.port)),
        *("--device_plugin.image", settings.device_plugin.image),
    ]


async def asks(port: int) -> int:
    """Ask over a new connection, as long as a caller would wait."""
    url = f"https://127.0.0.1:{port}{LIVENESS_PATH}"
    timeout = ClientTimeout(total=CALL_WITHIN_S)
    async with ClientSession(timeout=timeout) as session, session.get(url, ssl=False) as answer:
        return answer.status


async def until_it_answers(port: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        while True:
            with contextlib.suppress(OSError):
                if await asks(port) == 200:
                    return
            await asyncio.sleep(0.05)


class ShortOfFiles(socket.socket):
    """A listener in a process that may open no more files until one is closed."""

    is_short = False

    def accept(self) -> tuple[socket.socket, object]:
        if self.is_short:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_connection_that_asked_nothing_gives_way_where_files_are_short() -> None:
    before = sample("gpu_connections_dropped_total", cause="files")
    limits = Limits(connections=16, body_bytes=1024)
    limiter = ConnectionLimiter(limits.connections)
    listener = ShortOfFiles(fileno=socket.create_server(("127.0.0.1", 0)).detach())
    listener.setblocking(False)
    port = listener.getsockname()[1]

    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        state = PortState(
            routes=Routes(pages={"/": lambda *_: Reply(200, b"ok", TEXT)}),
            limits=limits,
            limiter=limiter,
            encoder=ReplyEncoder(LoopClock()),
            tasks=group,
            large_bodies=LargeBodies(limits.large_bodies),
        )
        acceptor = Acceptor(
            listener,
            lambda slot: HttpProtocol(state, slot),
            None,
            limiter=limiter,
            limits=limits,
        )
        accepting = group.create_task(acceptor.run())
        silent, writer = await asyncio.open_connection("127.0.0.1", port)
        while not len(limiter):  # noqa: ASYNC110  # nothing signals it
            await asyncio.sleep(0)
        listener.is_short = True
        async with ClientSession() as session:
            call = group.create_task(session.get(f"http://127.0.0.1:{port}/"))
            with contextlib.suppress(ConnectionError):
                assert await silent.read() == b"", "it was closed to make room"
            listener.is_short = False
            assert await (await call).text() == "ok"
        accepting.cancel()
        writer.close()
        for connection in state.connections:
            connection.close()
    listener.close()
    assert sample("gpu_connections_dropped_total", cause="files") == before + 1


@contextlib.contextmanager
def at_most_open(count: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_half_of_the_open_files_are_for_connections_at_most() -> None:
    listen = ListenSettings(host="127.0.0.1", port=free_port())
    before = sample("gpu_connections_dropped_total", cause="limit")
    with at_most_open(300):
        limits = Limits().within_open_files()
        port = Port(Routes(), listen, None, clock=LoopClock(), limits=limits)
    async with port:
        with silent_connections(listen.port, 155):
            await until(
                lambda: sample("gpu_connections_dropped_total", cause="limit") == before + 5
            )
            assert len(port._state.limiter) == 150
        hang_up(port)
