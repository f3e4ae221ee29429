"""A real TLS server and client on the loopback."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from certs.bundle import KeyPair
from certs.tls import ServingContext, client_context, peer_common_name


@dataclass(frozen=True, slots=True)
class Seen:
    """What a handshake showed to each side."""

    server_serial: int
    client_name: str | None


@asynccontextmanager
async def served(serving: ServingContext) -> AsyncIterator[int]:
    """Answer each connection with the client's CN; yield the port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while line := await reader.readline():
                name = peer_common_name(writer.transport)
                writer.write(line if line != b"who\n" else f"{name or ''}\n".encode())
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=serving.context)
    async with server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def connected(
    port: int,
    trust_pem: bytes,
    pair: KeyPair | None = None,
    *,
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    server_name: str | None = None,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open one connection; strict, as clients of Python 3.13 are."""
    context = client_context(trust_pem, pair)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.minimum_version = context.maximum_version = version
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname=server_name
    )
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


async def shake_hands(
    port: int,
    trust_pem: bytes,
    pair: KeyPair | None = None,
    *,
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    server_name: str | None = None,
) -> Seen:
    """Connect again and ask who we are; ConnectionError or SSLError where the server refuses."""
    async with connected(
        port, trust_pem, pair, version=version, server_name=server_name
    ) as streams:
        return await ask(*streams)


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Seen:
    writer.write(b"who\n")
    line = await reader.readline()
    if not line:
        raise ConnectionResetError("the server closed the connection")
    certificate = writer.get_extra_info("peercert")
    return Seen(int(certificate["serialNumber"], 16), line.decode().strip() or None)
