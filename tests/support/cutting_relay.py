"""A relay of TCP that cuts connections in the middle of an answer, TLS or not."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self

_CHUNK = 65_536


class CuttingRelay:
    """Relays to `host:port`, and cuts the first connections after so many bytes of answers.

    An async context; at its end nothing of its connections is left.
    """

    def __init__(self, target: str, *, after: int, cuts: int) -> None:
        self._target = target
        self._after = after
        self._cuts = cuts
        self.host = ""
        self.sent: list[int] = []
        """Bytes of answers over each connection."""
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.host = f"{host}:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._relay(reader, writer))
        self._connections.add(task)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.sent)
        self.sent.append(0)
        host, _, port = self._target.partition(":")
        upstream_reader, upstream = await asyncio.open_connection(host, int(port))
        ends = (
            asyncio.ensure_future(self._copy(reader, upstream)),  # noqa: TID251  # both end here
            asyncio.ensure_future(self._copy_back(upstream_reader, writer, number)),  # noqa: TID251
        )
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
            for transport in (upstream.transport, writer.transport):
                transport.abort()
            await asyncio.gather(*ends, return_exceptions=True)
            # The transports' sockets are closed at the loop's next turn.
            await asyncio.sleep(0)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                writer.write(chunk)
                await writer.drain()

    async def _copy_back(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                writer.write(chunk)
                await writer.drain()
                self.sent[number] += len(chunk)
                if number < self._cuts and self.sent[number] > self._after:
                    return
