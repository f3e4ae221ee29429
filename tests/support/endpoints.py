"""Endpoints of the port for tests, the port that serves them, and its protocol without a port."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from http_edge.body import LargeBodies, Unread
from http_edge.connections import ConnectionLimiter
from http_edge.http2.http2_protocol import Http2Protocol
from http_edge.limits import Limits
from http_edge.listener import Port
from http_edge.peer_connection import PortState
from http_edge.protocol import HttpProtocol
from http_edge.replies import TEXT, Reply, ReplyEncoder
from http_edge.routes import Routes
from server.settings import ListenSettings
from tests.support.loop_clock import LoopClock
from tests.support.ports import free_port
from tests.support.served_app import hang_up

if TYPE_CHECKING:
    from http_edge.routes import Answer, Headers

LIMITS = Limits(connections=1024, body_bytes=8 * 2**20)


def text(body: bytes, status: int = 200) -> Reply:
    return Reply(status, body, TEXT)


@dataclass
class AnsweredBy:
    """Answers each body by a function, and refuses callers by another."""

    answer: "Callable[[bytes], Answer]" = text
    refuse: "Callable[[Headers], Unread | None]" = lambda _headers: None
    knows_callers: bool = True
    unread: list[Unread] = field(default_factory=list)
    """Why bodies were not read."""

    def refusal_of(
        self, _transport: "asyncio.BaseTransport | None", headers: "Headers"
    ) -> Unread | None:
        return self.refuse(headers)

    def answer_unread(self, unread: Unread, _remote: str | None) -> Reply:
        self.unread.append(unread)
        return text(unread.text.encode(), unread.status)


def awaited(
    wait: "Callable[[], Awaitable[object]]", answer_to: "Callable[[bytes], Reply]" = text
) -> "Callable[[bytes], Answer]":
    """Answer after a wait."""

    async def answer(body: bytes) -> Reply:
        await wait()
        return answer_to(body)

    return answer


@asynccontextmanager
async def a_port(
    endpoint: AnsweredBy | None = None, limits: Limits = LIMITS
) -> AsyncIterator[tuple[Port, int]]:
    """Serve the endpoint on `/`, as plain TCP; yield the port and its number."""
    number = free_port()
    listen = ListenSettings(host="127.0.0.1", port=number)
    routes = Routes(endpoints={"/": endpoint or AnsweredBy()})
    async with Port(routes, listen, None, clock=LoopClock(), limits=limits) as port:
        try:
            yield port, number
        finally:
            hang_up(port)


class MemoryTransport(asyncio.Transport):
    """Keeps what the protocol writes; `close` is the end at once."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__({"peername": ("192.0.2.1", 1)})
        self.protocol = protocol
        self.written = b""
        self.is_closed = False
        self.is_paused = False

    def write(self, data: "bytes | bytearray | memoryview") -> None:
        assert not self.is_closed, "written to a closed connection"
        self.written += bytes(data)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self.is_closed

    def is_held(self) -> bool:
        """Return whether the protocol reads nothing for now."""
        return self.is_paused

    def pause_reading(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_reading(self) -> None:
        assert self.is_paused
        self.is_paused = False


class OneConnection:
    """A connection in memory; what is fed while nothing is read comes when reading goes on."""

    def __init__(
        self, state: PortState, protocol: type[HttpProtocol | Http2Protocol] = HttpProtocol
    ) -> None:
        self.slot = state.limiter.acquire(lambda: None)
        self.protocol = protocol(state, self.slot)
        self.transport = MemoryTransport(self.protocol)
        self.protocol.connection_made(self.transport)
        self._waiting: deque[bytes] = deque()

    async def feed(self, *pieces: bytes) -> None:
        self._waiting.extend(pieces)
        await self.drain()

    async def drain(self) -> None:
        """Deliver what can be delivered, and give tasks their turns."""
        for _ in range(5):
            while self._waiting and not self.transport.is_paused and not self.transport.is_closed:
                self.protocol.data_received(self._waiting.popleft())
            await asyncio.sleep(0)

    @property
    def written(self) -> bytes:
        return self.transport.written


@asynccontextmanager
async def port_state(routes: Routes, limits: "Limits") -> AsyncIterator[PortState]:
    async with asyncio.TaskGroup() as group:
        yield PortState(
            routes=routes,
            limits=limits,
            limiter=ConnectionLimiter(limits.connections),
            encoder=ReplyEncoder(LoopClock()),
            tasks=group,
            large_bodies=LargeBodies(limits.large_bodies),
        )


class Peer(Protocol):
    """The other end of a connection in memory."""

    @property
    def transport(self) -> MemoryTransport: ...


P = TypeVar("P", bound=Peer)


class Served(Generic[P]):
    """Routes with one endpoint of each kind, and connections to them."""

    def __init__(self, open_: "Callable[..., P]", page: bytes) -> None:
        self.recorded = AnsweredBy()
        self.finish = asyncio.Event()
        """Lets `/awaited` answer."""
        self.state: PortState
        self.routes = Routes(
            endpoints={
                "/known": self.recorded,
                "/open": AnsweredBy(knows_callers=False),
                "/awaited": AnsweredBy(awaited(self.finish.wait)),
                "/failing": AnsweredBy(_fail),  # type: ignore[arg-type]  # a defect
                "/failing-later": AnsweredBy(_fail_later),  # type: ignore[arg-type]  # a defect
            },
            pages={"/page": lambda *_: text(b"page"), "/long": lambda *_: text(page)},
        )
        self.connections: list[P] = []
        self._open = open_

    def connect(self, **options: Any) -> P:
        self.connections.append(self._open(self.state, **options))
        return self.connections[-1]


def _fail(*_: object) -> None:
    raise ZeroDivisionError("inside")


async def _fail_later(*_: object) -> None:
    raise ZeroDivisionError("inside")


@asynccontextmanager
async def serving_all_kinds(
    limits: "Limits", open_: "Callable[..., P]", *, long_page: bytes = b""
) -> AsyncIterator[Served[P]]:
    """Serve an endpoint of each kind; at the end nothing of the connections is left.

    Args:
        limits: limits of the port.
        open_: opens a connection to a port of this state.
        long_page: what `/long` shows.
    """
    served = Served(open_, long_page)
    async with port_state(served.routes, limits) as state:
        served.state = state
        yield served
        served.finish.set()
        for connection in served.connections:
            connection.transport.close()
        await asyncio.sleep(0.01)
        assert state.connections == set()
        assert len(state.limiter) == 0
        assert state.large_bodies._free == limits.large_bodies
