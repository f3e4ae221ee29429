"""Both registries, each for the package; they need no Kubernetes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from api.image_reference import ImageReference
from http_edge.system_clock import SystemClock
from oci.docker_config import BasicCredentials, DockerConfig
from oci.registry_client import RegistryClient
from oci.registry_connections import RegistryConnections
from oci.registry_push import RegistryPush
from oci.registry_settings import RegistrySettings
from tests.cluster.environment import binaries, processes, registries
from tests.cluster.environment.registries import RunningRegistry

DOCKER, REFERRERS = "docker-registry", "referrers"


@dataclass(frozen=True)
class Registry:
    """A registry, and what reads and writes there as its user."""

    kind: str
    running: RunningRegistry
    client: RegistryClient
    push: RegistryPush

    def reference(self, repository: str, tag: str = "1") -> ImageReference:
        return ImageReference(registry=self.running.host, repository=repository, tag=tag)


def a_login(host: str, password: str = registries.PASSWORD) -> DockerConfig:
    credentials = BasicCredentials(username=registries.USER, password=password)
    return DockerConfig(entries=((host, credentials),))


def settings_of(ca_file: Path) -> RegistrySettings:
    return RegistrySettings(user_agent="tests", ca_file=ca_file)


@pytest.fixture(scope="session")
def docker_registry_program(progress: Callable[[str], None]) -> Path:
    return binaries.find_docker_registry(progress)


@pytest.fixture(scope="package")
def running(
    run: processes.Run, progress: Callable[[str], None], docker_registry_program: Path
) -> dict[str, RunningRegistry]:
    async def start() -> dict[str, RunningRegistry]:
        return {
            DOCKER: await registries.start_docker_registry(run, docker_registry_program),
            REFERRERS: await registries.start_referrers_registry(
                run, binaries.find_registry(progress)
            ),
        }

    return asyncio.run(start())


@pytest.fixture(params=[DOCKER, REFERRERS])
async def registry(
    request: pytest.FixtureRequest, running: dict[str, RunningRegistry]
) -> AsyncIterator[Registry]:
    """Each of the two."""
    one = running[request.param]
    async with RegistryConnections(settings_of(one.ca_file)) as connections:
        login = a_login(one.host)
        yield Registry(
            kind=request.param,
            running=one,
            client=RegistryClient(connections, login, SystemClock()),
            push=RegistryPush(connections, login, SystemClock()),
        )
