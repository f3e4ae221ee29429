"""Tokens, users and passwords: which are shown, when they are renewed, and to whom never."""

import pytest

from oci.docker_config import BasicCredentials, DockerConfig
from oci.errors import AccessDenied, AddressRefused, UnexpectedAnswer
from oci.registry_client import RegistryClient
from tests.component.oci.conftest import ANONYMOUS, Connect, a_login
from tests.support.loop_clock import LoopClock
from tests.support.registry_double import TOKEN_LIFE_S, Lie, RegistryDouble, Status

pytestmark = pytest.mark.looptime

IMAGE = {"schemaVersion": 2, "config": {}, "layers": []}


async def a_registry(registry: RegistryDouble, auth: str) -> RegistryDouble:
    registry.auth = auth
    registry.add_manifest(IMAGE)
    return registry


def authorizations(registry: RegistryDouble) -> list[str]:
    return [item.headers.get("Authorization", "").partition(" ")[0] for item in registry.seen]


async def test_basic_is_shown_once_it_is_asked_for_and_then_at_once(
    registry: RegistryDouble, connect: Connect, clock: LoopClock
) -> None:
    await a_registry(registry, "basic")
    async with connect(registry) as connections:
        client = RegistryClient(connections, a_login(registry.host), clock)
        await client.resolve(registry.reference())
        await client.resolve(registry.reference())
    assert authorizations(registry) == ["", "Basic", "Basic"]


async def test_a_token_serves_until_it_expires(
    registry: RegistryDouble, connect: Connect, clock: LoopClock
) -> None:
    await a_registry(registry, "token")
    async with connect(registry) as connections:
        client = RegistryClient(connections, a_login(registry.host), clock)
        await client.resolve(registry.reference())
        await client.resolve(registry.reference())
        assert registry.count("GET", "/token") == 1
        (asked,) = [item for item in registry.seen if item.path == "/token"]
        assert asked.query == {"service": "the, registry", "scope": "repository:team/cache:pull"}
        assert asked.headers["Authorization"].startswith("Basic ")
        clock.offset_s += TOKEN_LIFE_S
        await client.resolve(registry.reference())
        assert registry.count("GET", "/token") == 2


async def test_a_token_that_is_revoked_is_renewed_once(
    registry: RegistryDouble, connect: Connect, clock: LoopClock
) -> None:
    await a_registry(registry, "token")
    async with connect(registry) as connections:
        client = RegistryClient(connections, a_login(registry.host), clock)
        await client.resolve(registry.reference())
        registry.tokens.clear()
        await client.resolve(registry.reference())
        assert registry.count("GET", "/token") == 2


async def test_a_registry_that_refuses_its_own_tokens_is_asked_once_more_only(
    registry: RegistryDouble, connect: Connect, clock: LoopClock
) -> None:
    await a_registry(registry, "token")
    registry.will_fail(Lie(content=b'{"token": "another"}'), "GET", "/token", times=100)
    async with connect(registry) as connections:
        client = RegistryClient(connections, a_login(registry.host), clock)
        with pytest.raises(AccessDenied, match="pull secret of a user who has the right"):
            await client.resolve(registry.reference())
    assert [item.path for item in registry.seen].count("/token") == 1
    assert registry.count("HEAD", "/manifests/") == 2


async def test_a_public_repository_needs_no_user(
    registry: RegistryDouble, connect: Connect, clock: LoopClock
) -> None:
    await a_registry(registry, "token")
    registry.public = True
    async with connect(registry) as connections:
        await RegistryClient(connections, ANONYMOUS, clock).resolve(registry.reference())
    assert authorizations(registry) == ["", "", "Bearer"]


@pytest.mark.parametrize("auth", ["basic", "token"])
async def test_without_a_pull_secret_access_is_denied(
    registry: RegistryDouble, connect: Connect, clock: LoopClock, auth: str
) -> None:
    """W6: nothing but the pull secrets that were given is used."""
    await a_registry(registry, auth)
    async with connect(registry) as connections:
        client = RegistryClient(connections, ANONYMOUS, clock)
        with pytest.raises(AccessDenied, match="pull secret") as caught:
            await client.resolve(registry.reference())
    assert caught.value.content.startswith(f"{registry.host}/team/cache")
    assert not caught.value.is_transient


@pytest.mark.parametrize("auth", ["basic", "token"])
async def test_of_several_pull_secrets_the_one_that_is_good_is_found(
    registry: RegistryDouble, connect: Connect, clock: LoopClock, auth: str
) -> None:
    """W6: as the kubelet, which tries them in turn."""
    await a_registry(registry, auth)
    stale = a_login(registry.host, password="old")  # of the test
    both = DockerConfig(entries=stale.entries + a_login(registry.host).entries)
    async with connect(registry) as connections:
        await RegistryClient(connections, both, clock).resolve(registry.reference())


async def test_a_wrong_password_is_not_quoted(
    registry: RegistryDouble, connect: Connect, clock: LoopClock
) -> None:
    await a_registry(registry, "token")
    async with connect(registry) as connections:
        login = a_login(registry.host, password="hunter2-hunter2")
        client = RegistryClient(connections, login, clock)
        with pytest.raises(AccessDenied) as caught:
            await client.resolve(registry.reference())
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(login)
    assert "(token)" in str(caught.value)


async def test_a_token_server_may_be_busy_for_a_while(
    registry: RegistryDouble, connect: Connect, clock: LoopClock
) -> None:
    await a_registry(registry, "token")
    registry.will_fail(Status(503), "GET", "/token")
    registry.will_fail(Status(429, {"Retry-After": "7"}), "GET", "/token")
    async with connect(registry) as connections:
        client = RegistryClient(connections, a_login(registry.host), clock)
        started = clock.monotonic()
        await client.resolve(registry.reference())
    assert clock.monotonic() - started >= 7


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"token": ""}', b'{"token": "a\\r\\nHost: evil"}', b"x" * 500]
)
async def test_a_token_that_is_none_is_not_shown(
    registry: RegistryDouble, connect: Connect, clock: LoopClock, content: bytes
) -> None:
    await a_registry(registry, "token")
    registry.will_fail(Lie(content=content), "GET", "/token", times=100)
    async with connect(registry) as connections:
        client = RegistryClient(connections, a_login(registry.host), clock)
        with pytest.raises(UnexpectedAnswer, match="without a token"):
            await client.resolve(registry.reference())


@pytest.mark.parametrize("realm", ["http://192.0.2.1/token", "ftp://x/", "/token", "", "http://["])
async def test_a_token_server_without_tls_gets_no_password(
    registry: RegistryDouble, connect: Connect, clock: LoopClock, realm: str
) -> None:
    challenge = f'Bearer realm="{realm}",service="s"'
    registry.will_fail(Status(401, {"WWW-Authenticate": challenge}), "HEAD", times=100)
    async with connect(registry) as connections:
        client = RegistryClient(connections, a_login(registry.host), clock)
        with pytest.raises((AddressRefused, AccessDenied)):
            await client.resolve(registry.reference())
    assert authorizations(registry) == [""]


async def test_credentials_of_a_part_of_the_registry_stay_there(
    registry: RegistryDouble, connect: Connect, clock: LoopClock
) -> None:
    await a_registry(registry, "basic")
    one = BasicCredentials(username="x", password="y")
    async with connect(registry) as connections:
        client = RegistryClient(
            connections, DockerConfig(entries=((f"{registry.host}/other", one),)), clock
        )
        with pytest.raises(AccessDenied, match="no pull secret has any for it"):
            await client.resolve(registry.reference())
    assert authorizations(registry) == [""]
