"""Our system as it is installed: the agents are pods of our DaemonSets, from an image that is built here."""

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.cluster.node.gpu_node import (  # noqa: F401  # fixtures
    devices_in_dev,
    labelled_gpu_node,
    root_is_shared,
)
from tests.cluster.node.stories.pools import Pools
from tests.cluster.system.installation import GpuSystem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.node.environment.real_node import RealNode
    from tests.cluster.node.stories.devices import NodeDevices


@pytest.fixture
def image_name(built_image: "tuple[Path, str]") -> str:
    return built_image[1]


@pytest.fixture(scope="package")
def installed_as_pods(
    control_plane: "ControlPlane",
    kubectl: "Kubectl",
    gpu_node: "RealNode",
    built_image: "tuple[Path, str]",
) -> "Iterator[GpuSystem]":
    """The server with its default settings but for the image."""
    tar, name = built_image
    settings = {"device_plugin": {"image": name}}
    system = GpuSystem(control_plane, kubectl, prefix="pods-", settings=settings)

    async def start() -> None:
        await gpu_node.import_image(tar)
        await system.install()

    try:
        asyncio.run(start())
        yield system
        asyncio.run(system.check_rights())
    finally:
        asyncio.run(system.uninstall())


@pytest.fixture
async def pools(
    api: "ApiClient",
    namespace: str,
    node: "RealNode",
    installed_as_pods: GpuSystem,
    devices: "NodeDevices",
) -> "AsyncIterator[Pools]":
    made = Pools(api, namespace, node, devices)
    yield made
    await made.clear()
