"""Which addresses are public, and a resolver that leads to no other ones."""

import socket

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from oci.public_addresses import PrivateAddressError, PublicResolver, is_public


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "fd00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::1",
        "192.0.0.192",
        "168.63.129.16",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b:1::7f00:1",
        "3fff::1",
        "5f00::1",
        "127.1",
        "name",
    ],
)
def test_loopback_link_local_private_and_multicast_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808"])
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


class ResolverDouble(AbstractResolver):
    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in self.addresses
        ]

    async def close(self) -> None:
        pass


async def test_a_name_with_an_address_that_is_not_public_is_refused_whenever_it_is_resolved() -> (
    None
):
    double = ResolverDouble("8.8.8.8")
    resolver = PublicResolver(lambda _, port: port == 5000, double)
    assert [found["host"] for found in await resolver.resolve("registry.test", 443)] == ["8.8.8.8"]
    double.addresses = ("8.8.8.8", "10.0.0.1")
    with pytest.raises(PrivateAddressError):
        await resolver.resolve("registry.test", 443)
    assert len(await resolver.resolve("registry.test", 5000)) == 2
    await resolver.close()
