"""The cluster's DNS, as far as pods of the tests ask it: addresses of Services (RFC 1035).

Answers `NAME.NAMESPACE.svc.cluster.local` with the Service's address, and nothing else.
"""

import asyncio
import struct
from typing import TYPE_CHECKING, Final, cast, final

if TYPE_CHECKING:
    from collections.abc import Mapping

ADDRESS: Final = "10.96.0.10"
"""The usual one; kubelet writes it into the resolv.conf of every pod."""
DOMAIN: Final = "cluster.local"
_A, _IN = 1, 1
_ANSWER, _AUTHORITATIVE, _RECURSION_DESIRED = 0x8000, 0x0400, 0x0100
_NXDOMAIN = 3
_HEADER = struct.Struct("!6H")
_TTL_S = 5
_SAME_NAME = 0xC00C
"""A pointer to the name of the question, which comes after the header."""


@final
class Server(asyncio.DatagramProtocol):
    """Answers from a map that its owner keeps up to date: name -> IPv4 address."""

    def __init__(self, addresses: "Mapping[str, str]") -> None:
        self._addresses = addresses
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an instance of that class before Python 3.12.
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert self._transport is not None
        self._transport.sendto(answer(data, self._addresses), addr)


def answer(query: bytes, addresses: "Mapping[str, str]") -> bytes:
    """Return the answer to a query of one question; a name without the asked type is an empty one."""
    number, flags, *_ = _HEADER.unpack_from(query)
    name, end = _read_name(query, _HEADER.size)
    kind, _ = struct.unpack_from("!2H", query, end)
    question = query[_HEADER.size : end + 4]
    address = addresses.get(name.lower())
    flags = _ANSWER | _AUTHORITATIVE | (flags & _RECURSION_DESIRED)
    if address is None:
        return _HEADER.pack(number, flags | _NXDOMAIN, 1, 0, 0, 0) + question
    if kind != _A:
        return _HEADER.pack(number, flags, 1, 0, 0, 0) + question
    octets = bytes(int(part) for part in address.split("."))
    record = struct.pack("!3HIH", _SAME_NAME, _A, _IN, _TTL_S, len(octets)) + octets
    return _HEADER.pack(number, flags, 1, 1, 0, 0) + question + record


def _read_name(message: bytes, at: int) -> tuple[str, int]:
    labels = []
    while length := message[at]:
        labels.append(message[at + 1 : at + 1 + length].decode())
        at += 1 + length
    return ".".join(labels), at + 1
