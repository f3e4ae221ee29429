"""The protocol that a client chose in its handshake (ALPN): HTTP/2, or HTTP/1.1 where it chose none."""

import asyncio
from typing import TYPE_CHECKING, cast, final

from http_edge.http2.http2_protocol import Http2Protocol
from http_edge.peer_connection import PortState
from http_edge.protocol import HttpProtocol

if TYPE_CHECKING:
    from http_edge.connections import ConnectionSlot

PROTOCOLS = ("h2", "http/1.1")
"""What the port offers, the first for preference."""


@final
class NegotiatedProtocol(asyncio.Protocol):
    """Gives way to the protocol at the end of the handshake."""

    def __init__(self, port: PortState, slot: "ConnectionSlot") -> None:
        self._port = port
        self._slot = slot

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connection = transport.get_extra_info("ssl_object")
        is_http2 = connection is not None and connection.selected_alpn_protocol() == PROTOCOLS[0]
        chosen = (Http2Protocol if is_http2 else HttpProtocol)(self._port, self._slot)
        cast("asyncio.Transport", transport).set_protocol(chosen)
        chosen.connection_made(transport)
