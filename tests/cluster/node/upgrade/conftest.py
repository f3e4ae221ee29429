"""Our system with `node_software` on, on the node of real containers; its driver comes with a ClusterPolicy."""

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.environment import client, nodes
from tests.cluster.node.environment import nvidia_image
from tests.cluster.node.gpu_node import labelled_gpu_node, root_is_shared  # noqa: F401  # fixtures
from tests.cluster.node.stories.devices import DRIVER_ROOT, NodeDevices, devices_of_the_machine
from tests.cluster.node.stories.pools import Pools
from tests.cluster.node.upgrade import driver_images
from tests.cluster.node.upgrade.driven_node import VERSIONS, DrivenNode
from tests.cluster.operator_states.conftest import FEATURE, NOBLE
from tests.cluster.system.installation import SAMPLE_EVERY_S, GpuSystem, until_gone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.node.environment.real_node import RealNode

DEVICES = 2


@pytest.fixture(name="devices", scope="package")
def devices_without_driver(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[NodeDevices]":
    """Their files are in /dev, and their driver comes with its container."""
    with devices_of_the_machine(Path(tmp_path_factory.mktemp("devices")), DEVICES) as made:
        shutil.rmtree(DRIVER_ROOT / "usr")
        yield made


@pytest.fixture(scope="package")
def installed_with_software(
    control_plane: "ControlPlane",
    kubectl: "Kubectl",
    gpu_node: "RealNode",
    devices: NodeDevices,
    built_image: tuple[Path, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> "Iterator[GpuSystem]":
    tar, image = built_image
    settings = {
        "device_plugin": {"image": image},
        "bootstrap": {"operands": "External", "period_s": SAMPLE_EVERY_S},
        "node_software": {"enabled": True},
    }
    system = GpuSystem(control_plane, kubectl, prefix="upgrade-", settings=settings)
    scratch = tmp_path_factory.mktemp("driver-images")

    async def start() -> None:
        made = driver_images.write_images(scratch, gpu_node.busybox, devices.devices, VERSIONS)
        operands, layer = scratch / "operands.tar", control_plane.run.scratch / "upgrade-operands"
        layer.mkdir()
        nvidia_image.write_nvidia_image(operands, tar, gpu_node.busybox, scratch=layer)
        for item in (tar, operands, *made):
            await gpu_node.import_image(item)
        # A suite before this one has left its devices, which had a driver.
        for kind in ("gpudevices", "gpunodeinventories"):
            await kubectl("delete", kind, "--all", check=False)
        await describe(NOBLE.labels)
        await system.install()

    async def describe(labels: "dict[str, str | None] | dict[str, str]") -> None:
        """Label the node as Node Feature Discovery does."""
        found = {key: value for key, value in labels.items() if key.startswith(FEATURE)}
        async with client.open_client(control_plane.kubeconfig()) as api:
            await api.patch(f"{nodes.NODES}/{gpu_node.name}", {"metadata": {"labels": found}})

    try:
        asyncio.run(start())
        yield system
        asyncio.run(system.check_rights())
    finally:
        asyncio.run(system.uninstall())
        asyncio.run(describe(dict.fromkeys(NOBLE.labels)))


@pytest.fixture
async def driven(
    api: "ApiClient",
    node: "RealNode",
    installed_with_software: GpuSystem,
) -> "AsyncIterator[DrivenNode]":
    """The node, once it has the first version of the driver; at the end the ClusterPolicy is deleted."""
    made = DrivenNode(api, node)
    try:
        await made.roll_out(VERSIONS[0])
        await made.until_done(VERSIONS[0])
        yield made
    finally:
        await api.delete(made.policy)
        await until_gone(api, made.policy, within=120)


@pytest.fixture
async def pools(
    api: "ApiClient",
    namespace: str,
    node: "RealNode",
    driven: DrivenNode,
    devices: NodeDevices,
) -> "AsyncIterator[Pools]":
    del driven
    made = Pools(api, namespace, node, devices)
    yield made
    await made.clear()
