"""A load generator: HTTP/1.1 over TLS on keep-alive connections, requests encoded beforehand.

One core is the server's and one is ours, so this must cost less than what it measures: a protocol
that writes bytes and counts bytes, no HTTP library.
"""

import asyncio
import ssl
import time
from collections.abc import Generator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Visit = Generator[bytes, bytes, None]
"""Requests on one connection, one after the other: each is yielded, and its answer's body sent back."""


def request_bytes(path: str, body: bytes) -> bytes:
    """Return a POST as it goes over the wire."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Connection(asyncio.Protocol):
    """One keep-alive connection, one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._buffer = bytearray()
        self._desired = -1
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError("closed by the server"))

    async def send(self, request: bytes) -> bytes:
        """Send a request and return the answer's body; anything but 200 raises."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._desired < 0:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._buffer[:end])
            lowered = head.lower()
            at = lowered.index(b"content-length:") + 15
            self._desired = end + 4 + int(lowered[at:].split(b"\r\n", 1)[0])
            self._body_at = end + 4
            self._ok = head.startswith(b"HTTP/1.1 200")
        if len(self._buffer) >= self._desired and self._answer is not None:
            body = bytes(self._buffer[self._body_at : self._desired])
            del self._buffer[: self._desired]
            self._desired = -1
            if self._ok:
                self._answer.set_result(body)
            else:
                self._answer.set_exception(RuntimeError(f"answered {body[:300]!r}"))

    def close(self) -> None:
        self._transport.close()


async def connect(port: int, context: ssl.SSLContext) -> Connection:
    """Open a connection to a loopback port."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(
        Connection, "127.0.0.1", port, ssl=context, server_hostname="127.0.0.1"
    )
    return connection


async def time_pairs(
    first: "tuple[Connection, Sequence[bytes]]",
    second: "tuple[Connection, Sequence[bytes]]",
    count: int,
    *,
    together: int = 1,
) -> tuple[list[float], list[float]]:
    """Time two servers in turn, A B A B, so that the machine's moods hit both.

    The requests of each are sent one after the other, so many a sample, and again from the first.
    """
    samples: tuple[list[float], list[float]] = ([], [])
    for number in range(0, count * together, together):
        for (connection, requests), taken in zip((first, second), samples, strict=True):
            sample = [requests[(number + n) % len(requests)] for n in range(together)]
            started = time.perf_counter()
            for request in sample:
                await connection.send(request)
            taken.append(time.perf_counter() - started)
    return samples


async def flood(
    port: int, context: ssl.SSLContext, visits: "Iterator[Visit]", connections: int
) -> tuple[list[float], float]:
    """Make all visits over so many connections; return each request's seconds, and the whole time."""
    samples: list[float] = []

    async def work(connection: Connection) -> None:
        for visit in visits:
            request = next(visit, None)
            while request is not None:
                started = time.perf_counter()
                answer = await connection.send(request)
                samples.append(time.perf_counter() - started)
                try:
                    request = visit.send(answer)
                except StopIteration:
                    break

    opened = [await connect(port, context) for _ in range(connections)]
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for connection in opened:
            group.create_task(work(connection))
    seconds = time.perf_counter() - started
    for connection in opened:
        connection.close()
    return samples, seconds
