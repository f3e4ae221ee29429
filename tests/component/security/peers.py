"""Peers that send bytes instead of well-formed HTTP."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from tests.support.served_app import ServedApp

WITHIN_S = 120.0
"""For what must happen; reached only where it does not."""


class Peer:
    """One connection; closed without a goodbye at the end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.transport.abort()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def send(self, *chunks: bytes) -> None:
        """Write; where the server has closed already, what it said is still to be read."""
        with contextlib.suppress(ConnectionError):
            for chunk in chunks:
                self._writer.write(chunk)
                await self._writer.drain()

    async def answer(self) -> bytes:
        """Return everything until the server closes; empty where it closes without a word."""
        async with asyncio.timeout(WITHIN_S):
            with contextlib.suppress(ConnectionError):
                return await self._reader.read()
            return b""

    async def status(self) -> int:
        """Return the status of one answer; 0 where the server closes without a word."""
        async with asyncio.timeout(WITHIN_S):
            try:
                line = await self._reader.readline()
            except ConnectionError:
                return 0
            return int(line.split()[1]) if line else 0


def address(served: ServedApp) -> tuple[str, int]:
    return "127.0.0.1", int(served.url.rsplit(":", maxsplit=1)[1])


async def tcp(served: ServedApp) -> Peer:
    """Connect, and begin no handshake."""
    return Peer(*await asyncio.open_connection(*address(served)))


async def tls(served: ServedApp, context: ssl.SSLContext | None = None) -> Peer:
    """Connect, and shake hands."""
    context = context or served.tls()
    return Peer(*await asyncio.open_connection(*address(served), ssl=context))


@contextlib.asynccontextmanager
async def many(peers: "list[Peer]") -> AsyncIterator[None]:
    """Keep them until the end."""
    async with contextlib.AsyncExitStack() as stack:
        for peer in peers:
            await stack.enter_async_context(peer)
        yield


def post(path: str, body: bytes = b"", **headers: str) -> bytes:
    """A request; `Content_Type` names a header."""
    named = {
        "Host": "x",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **{key.replace("_", "-"): value for key, value in headers.items()},
    }
    head = "".join(f"{key}: {value}\r\n" for key, value in named.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def post_chunked(path: str) -> bytes:
    """The head of a request without a length."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    ).encode()
