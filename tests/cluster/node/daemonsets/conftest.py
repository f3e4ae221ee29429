"""Our system as it is installed: the agents are pods of our DaemonSets, from an image that is built here."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.environment import client, components, nodes
from tests.cluster.node.environment import mounts
from tests.cluster.node.stories.devices import NodeDevices, devices_of_the_machine
from tests.cluster.node.stories.pools import Pools
from tests.cluster.system.installation import GpuSystem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.node.environment.real_node import RealNode

DEVICES = 4
STOCK = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
"""
GPU_LABEL = "nvidia.com/gpu.present"


@pytest.fixture(scope="package")
def devices(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[NodeDevices]":
    """Four devices."""
    with devices_of_the_machine(Path(tmp_path_factory.mktemp("cards")), DEVICES) as made:
        yield made


@pytest.fixture(scope="package")
def shared_root(node: "RealNode") -> "Iterator[None]":
    with mounts.shared_root(node.busybox):
        yield


@pytest.fixture
def image_name(built_image: tuple[Path, str]) -> str:
    return built_image[1]


@pytest.fixture(scope="package")
def installed_as_pods(  # all that has to be there before
    control_plane: "ControlPlane",
    kubectl: "Kubectl",
    node: "RealNode",
    devices: NodeDevices,
    reachable_services: None,
    shared_root: None,
    built_image: tuple[Path, str],
) -> "Iterator[GpuSystem]":
    """The server with its default settings but for the image."""
    tar, name = built_image
    # Of the DaemonSets' own pods.
    scheduler = components.KubeScheduler(
        control_plane, configuration=STOCK, name="daemonsets-scheduler"
    )
    settings = {"device_plugin": {"image": name}}
    system = GpuSystem(control_plane, kubectl, prefix="pods-", settings=settings)

    async def start() -> None:
        await node.import_image(tar)
        await scheduler.start()
        await system.install()
        async with client.open_client(control_plane.kubeconfig()) as api:
            label = {"metadata": {"labels": {GPU_LABEL: "true"}}}
            await api.patch(f"{nodes.NODES}/{node.name}", label)

    try:
        asyncio.run(start())
        yield system
        asyncio.run(system.check_rights())
    finally:
        asyncio.run(system.uninstall())
        scheduler.kill9()


@pytest.fixture
async def pools(
    api: "ApiClient",
    namespace: str,
    node: "RealNode",
    installed_as_pods: GpuSystem,
    devices: NodeDevices,
) -> "AsyncIterator[Pools]":
    made = Pools(api, namespace, node, devices)
    yield made
    await made.clear()
