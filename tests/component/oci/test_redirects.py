"""Redirects to blob stores: followed without credentials, never to plain HTTP."""

from pathlib import Path

import pytest

from oci.errors import AddressRefused, RegistryUntrusted
from oci.registry_client import RegistryClient
from tests.component.oci.conftest import ANONYMOUS, Connect, a_login
from tests.support.loop_clock import LoopClock
from tests.support.registry_double import RegistryDouble, Status
from tests.support.self_signed import self_signed, serving_tls

pytestmark = pytest.mark.looptime

CONTENT = b"kernels" * 1000


def redirect(to: str) -> Status:
    return Status(307, {"Location": to})


async def read(client: RegistryClient, registry: RegistryDouble) -> bytes:
    blob = registry.add_blob(CONTENT)
    return b"".join([item async for item in client.blob(registry.reference(), blob)])


async def test_a_blob_store_gets_no_credentials(
    registry: RegistryDouble, connect: Connect, clock: LoopClock
) -> None:
    registry.auth = "basic"
    async with RegistryDouble() as store, connect(registry, store) as connections:
        blob = store.add_blob(CONTENT)
        client = RegistryClient(connections, a_login(registry.host), clock)
        registry.will_fail(Status(401, {"WWW-Authenticate": "Basic"}), "GET", "/blobs/")
        registry.will_fail(redirect(f"{store.url}/v2/x/blobs/{blob.digest}?sig=a%2Fb"))
        assert await read(client, registry) == CONTENT
        (seen,) = store.seen
        assert "Authorization" not in seen.headers
        assert "Authorization" in registry.seen[-1].headers


async def test_credentials_do_not_come_back_with_a_redirect_from_elsewhere(
    registry: RegistryDouble, connect: Connect, clock: LoopClock
) -> None:
    async with RegistryDouble() as store, connect(registry, store) as connections:
        registry.auth = "basic"
        client = RegistryClient(connections, a_login(registry.host), clock)
        registry.add_manifest({})
        await client.resolve(registry.reference())
        registry.auth = ""
        registry.will_fail(redirect(f"{store.url}/v2/x/blobs/y"), "GET", "/blobs/")
        blob = registry.add_blob(CONTENT)
        store.will_fail(redirect(f"{registry.url}/v2/x/blobs/{blob.digest}"))
        assert await read(client, registry) == CONTENT
        first, second = registry.seen[-2:]
        assert "Authorization" in first.headers
        assert "Authorization" not in second.headers


async def test_a_redirect_within_the_registry_keeps_them(
    registry: RegistryDouble, connect: Connect, clock: LoopClock
) -> None:
    registry.auth = "basic"
    blob = registry.add_blob(CONTENT)
    async with connect(registry) as connections:
        client = RegistryClient(connections, a_login(registry.host), clock)
        registry.will_fail(redirect(f"/v2/other/blobs/{blob.digest}"))
        assert await read(client, registry) == CONTENT


async def test_a_store_that_wants_a_password_does_not_get_ours(
    registry: RegistryDouble, connect: Connect, clock: LoopClock
) -> None:
    async with RegistryDouble(auth="basic") as store, connect(registry, store) as connections:
        client = RegistryClient(connections, a_login(registry.host), clock)
        registry.will_fail(redirect(f"{store.url}/v2/x/blobs/y"))
        with pytest.raises(Exception, match="401"):
            await read(client, registry)
        assert ["Authorization" in item.headers for item in store.seen] == [False]


@pytest.mark.parametrize(
    ("location", "message"),
    [
        pytest.param(
            "http://192.0.2.1/blob", "192.0.2.1:80 would be asked without TLS", id="plain"
        ),
        pytest.param("", "leads to no address", id="nowhere"),
        pytest.param("http://[", "leads to no address", id="no address"),
        pytest.param("https://a:b@192.0.2.1/", "leads to no address", id="with credentials"),
        pytest.param("ftp://192.0.2.1/blob", "is no address of a server", id="another scheme"),
        pytest.param("file:///etc/passwd", "leads to no address", id="a file"),
    ],
)
async def test_what_a_redirect_must_not_lead_to(
    registry: RegistryDouble, client: RegistryClient, location: str, message: str
) -> None:
    registry.will_fail(redirect(location))
    with pytest.raises(AddressRefused, match=message):
        await read(client, registry)
    assert len(registry.seen) == 1


async def test_redirects_have_an_end(registry: RegistryDouble, client: RegistryClient) -> None:
    registry.will_fail(redirect("/v2/again/blobs/x"), times=100)
    with pytest.raises(AddressRefused, match="more than 5 times"):
        await read(client, registry)
    assert len(registry.seen) == 6


async def test_from_tls_to_plain_http_is_refused_even_for_hosts_that_may_be_asked_so(
    registry: RegistryDouble, connect: Connect, clock: LoopClock, tmp_path: Path
) -> None:
    files = self_signed(tmp_path, "registry")
    async with (
        RegistryDouble(tls=serving_tls(files)) as safe,
        connect(registry, ca_file=Path(files.certificate)) as connections,
    ):
        client = RegistryClient(connections, ANONYMOUS, clock)
        safe.will_fail(redirect(f"{registry.url}/v2/x/blobs/y"))
        with pytest.raises(AddressRefused, match="leads from TLS to http://"):
            await read(client, safe)
        assert await read(client, safe) == CONTENT
    assert registry.seen == []


async def test_an_unknown_authority_is_not_trusted_and_not_tried_again(
    connect: Connect, clock: LoopClock, tmp_path: Path
) -> None:
    files = self_signed(tmp_path, "registry")
    other = self_signed(tmp_path, "other")
    async with RegistryDouble(tls=serving_tls(files)) as safe:
        for settings in ({}, {"ca_file": Path(other.certificate)}):
            async with connect(**settings) as connections:
                client = RegistryClient(connections, ANONYMOUS, clock)
                started = clock.monotonic()
                with pytest.raises(RegistryUntrusted, match="file of the authority"):
                    await read(client, safe)
                assert clock.monotonic() - started < 0.5
        assert safe.seen == []


async def test_docker_hub_has_another_host_for_its_api(connect: Connect) -> None:
    async with connect() as connections:
        assert str(connections.registry_url("docker.io")) == "https://registry-1.docker.io/v2/"
        assert str(connections.registry_url("[::1]:5000")) == "https://[::1]:5000/v2/"


async def test_plain_http_is_for_the_hosts_of_the_setting_only(
    registry: RegistryDouble, connect: Connect, clock: LoopClock
) -> None:
    """Without it the registry is asked with TLS, which it does not speak."""
    async with connect(attempts=1) as connections:
        client = RegistryClient(connections, ANONYMOUS, clock)
        with pytest.raises(Exception, match=registry.host):
            await read(client, registry)
    assert registry.seen == []
