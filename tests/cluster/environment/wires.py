"""Bytes between two parties: a Service in front of replicas, and a wire that can be held.

Both pass TLS on as it is. The Service follows Kubernetes: a new connection goes to a replica that
says it is ready; where none does, to one that is terminating and says so; else it is refused. Unlike
a kubelet, which asks once a second, it asks ten times, so that what is measured is ours.
"""

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Self, final

import aiohttp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

_ASK_EVERY_S = 0.1
_CHUNK = 64 * 1024


@final
class Wire:
    """Listens on a port and passes connections on; `hold` keeps back what clients send."""

    def __init__(self, port: int, target: int | None = None) -> None:
        self.port = port
        self._target = target
        self._open = asyncio.Event()
        self._open.set()
        self.held = 0
        """Bytes kept back since `hold`."""
        self.connections = 0
        """Made so far."""
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", self.port)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        assert self._server is not None
        self._server.close()
        self._open.set()
        for end in list(self._ends):
            end.transport.abort()
        while self._ends:  # noqa: ASYNC110  # each leaves in its own time
            await asyncio.sleep(0)

    def hold(self) -> None:
        self.held = 0
        self._open.clear()

    def let_go(self) -> None:
        self._open.set()

    def route_to(self, target: int | None) -> None:
        """Pass new connections on to this port; to none, and they are closed at once."""
        self._target = target

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(OSError):
            async with self._closing(writer):
                if self._target is not None:
                    far = await asyncio.open_connection("127.0.0.1", self._target)
                    async with self._closing(far[1]), asyncio.TaskGroup() as group:
                        group.create_task(self._copy(reader, far[1], is_held=True))
                        group.create_task(self._copy(far[0], writer, is_held=False))

    @contextlib.asynccontextmanager
    async def _closing(self, end: asyncio.StreamWriter) -> "AsyncIterator[None]":
        self._ends.add(end)
        try:
            yield
        finally:
            self._ends.discard(end)
            end.close()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_held: bool
    ) -> None:
        """Pass on until either side ends, and tell the other one, which ends the way back too."""
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                if is_held and not self._open.is_set():
                    self.held += len(data)
                    await self._open.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


@final
class Service:
    """Replicas behind one port; an async context manager."""

    def __init__(self, port: int, replicas: "list[int]") -> None:
        """Take the ports of the replicas."""
        self._wire = Wire(port)
        self._replicas = replicas
        self._terminating: set[int] = set()
        self._asking = asyncio.TaskGroup()
        self.routes: list[tuple[float, int | None]] = []
        """(monotonic time, port) whenever another replica gets the connections."""

    async def __aenter__(self) -> Self:
        await self._wire.__aenter__()
        self._stack = contextlib.AsyncExitStack()
        self._session = await self._stack.enter_async_context(
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1))
        )
        await self._asking.__aenter__()
        self._task = self._asking.create_task(self._follow())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        self._task.cancel()
        await self._asking.__aexit__(None, None, None)
        await self._stack.aclose()
        await self._wire.__aexit__(kind, error, trace)

    @property
    def route(self) -> int | None:
        """Return the port of the replica that gets new connections."""
        return self.routes[-1][1] if self.routes else None

    def terminate(self, replica: int) -> None:
        """Note that the replica was asked to end: it gets connections only where no other is ready."""
        self._terminating.add(replica)

    async def _follow(self) -> None:
        while True:
            answers = await asyncio.gather(*map(self._is_ready, self._replicas))
            ready = [
                port for port, is_ready in zip(self._replicas, answers, strict=True) if is_ready
            ]
            ready.sort(key=lambda port: port in self._terminating)
            route = ready[0] if ready else None
            if not self.routes or route != self.route:
                self.routes.append((time.monotonic(), route))
                self._wire.route_to(route)
            await asyncio.sleep(_ASK_EVERY_S)

    async def _is_ready(self, port: int) -> bool:
        try:
            async with self._session.get(f"https://127.0.0.1:{port}/readyz", ssl=False) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False
