"""A registry in this process and a client of it, on virtual time where a test asks for it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

import pytest

from oci.docker_config import BasicCredentials, DockerConfig
from oci.registry_client import RegistryClient
from oci.registry_connections import RegistryConnections
from oci.registry_push import RegistryPush
from oci.registry_settings import RegistrySettings
from tests.support.loop_clock import LoopClock
from tests.support.registry_double import PASSWORD, USER, RegistryDouble

Connect = Callable[..., AbstractAsyncContextManager[RegistryConnections]]

SETTINGS = RegistrySettings(user_agent="tests")
ANONYMOUS = DockerConfig()


def a_login(host: str, user: str = USER, password: str = PASSWORD) -> DockerConfig:
    return DockerConfig(entries=((host, BasicCredentials(username=user, password=password)),))


@pytest.fixture
async def registry() -> AsyncIterator[RegistryDouble]:
    async with RegistryDouble() as registry:
        yield registry


@pytest.fixture
async def clock() -> LoopClock:
    return LoopClock()


@pytest.fixture
def connect() -> Connect:
    """`async with connect(registry, attempts=2) as connections`: plain HTTP to it is allowed."""

    @asynccontextmanager
    async def opened(
        *plain: RegistryDouble, **changes: object
    ) -> AsyncIterator[RegistryConnections]:
        hosts = frozenset(item.host for item in plain)
        settings = replace(SETTINGS, plain_http_hosts=hosts, **changes)  # type: ignore[arg-type]
        async with RegistryConnections(settings) as connections:
            yield connections

    return opened


@pytest.fixture
async def client(
    registry: RegistryDouble, connect: Connect, clock: LoopClock
) -> AsyncIterator[RegistryClient]:
    """Without credentials."""
    async with connect(registry) as connections:
        yield RegistryClient(connections, ANONYMOUS, clock)


@pytest.fixture
async def push(
    registry: RegistryDouble, connect: Connect, clock: LoopClock
) -> AsyncIterator[RegistryPush]:
    """Without credentials."""
    async with connect(registry) as connections:
        yield RegistryPush(connections, ANONYMOUS, clock)
