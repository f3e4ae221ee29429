"""Names that lead to public addresses only: a user who may name a registry must not reach what is beside the server.

Addresses are judged as a connection is made, so that a name that leads elsewhere a moment later gains nothing.
"""

import ipaddress
from typing import TYPE_CHECKING, Final, final

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

_TRANSLATED: Final = ipaddress.ip_network("64:ff9b::/96")
"""IPv4 addresses behind a NAT64, as RFC 6052 writes them."""
_NOT_PUBLIC: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            "192.0.0.0/24",  # protocol assignments; a cloud's metadata is at 192.0.0.192
            "168.63.129.16/32",  # Azure's host, from each of its machines
            "::/96",  # and the next one: IPv4 addresses in further forms
            "::ffff:0:0:0/96",
            "64:ff9b:1::/48",  # a NAT64 of the own network
            "3fff::/20",  # documentation
            "5f00::/16",  # segment routing
        ),
    )
)
"""What releases of Python take for global, or took before a patch release."""


class PrivateAddressError(Exception):
    """A host's address is not public; aiohttp passes it through, as it is no OSError."""


@final
class PublicResolver(AbstractResolver):
    """Refuses hosts of which an address is not public, unless they may have such addresses."""

    def __init__(
        self,
        may_be_private: "Callable[[str, int], bool]",
        resolver: AbstractResolver | None = None,
    ) -> None:
        """`resolver` is the system's by default; made in the event loop."""
        self._may_be_private = may_be_private
        self._resolver = resolver or DefaultResolver()

    async def resolve(
        self, host: str, port: int = 0, family: "socket.AddressFamily | int" = 0
    ) -> list[ResolveResult]:
        """Return the addresses of the host.

        Raises:
            PrivateAddressError: one of them is not public.
            OSError: the host has none.
        """
        found = await self._resolver.resolve(host, port, family)  # type: ignore[arg-type]
        if not self._may_be_private(host, port) and not all(
            is_public(address["host"]) for address in found
        ):
            raise PrivateAddressError
        return found

    async def close(self) -> None:
        """Release the resolver."""
        await self._resolver.close()


def is_public(address: str) -> bool:
    """Say whether an IP address is one of the public internet; what is no address is not public."""
    try:
        # An IPv6 address may name its network interface after a percent sign.
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found.is_site_local:
            return False
        hidden = found.sixtofour or found.ipv4_mapped
        if found in _TRANSLATED:
            hidden = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        found = hidden or found
    is_inside = found.is_multicast or any(found in network for network in _NOT_PUBLIC)
    return found.is_global and not is_inside
