"""Our system as it is installed: the agents are pods of our DaemonSets, from an image that is built here."""

import asyncio
import os
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.environment import client, components, nodes
from tests.cluster.node.daemonsets import image
from tests.cluster.node.environment import service_proxy
from tests.cluster.node.stories.devices import SHARED, NodeDevices
from tests.cluster.node.stories.pools import Pools
from tests.cluster.system.installation import GpuSystem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

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
    """Four GPUs, whose device files are in /dev, where a driver has them."""
    made = NodeDevices(Path(tmp_path_factory.mktemp("devices")), DEVICES)
    files = [Path("/dev") / name for name in (*SHARED, *(f"nvidia{n}" for n in range(DEVICES)))]
    there = [str(file) for file in files if file.exists()]
    if there:
        raise AssertionError(f"this machine has devices of its own: {', '.join(there)}")
    for file in files:
        os.mknod(file, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    yield made
    for file in files:
        file.unlink()
    made.remove()


@pytest.fixture(scope="package")
def shared_root(node: "RealNode") -> "Iterator[None]":
    """The root is a shared mount, as systemd makes it: the node agent follows mounts of the node."""
    was_shared = _is_root_shared()
    subprocess.run([node.busybox, "mount", "--make-rshared", "/"], check=True)
    yield
    if not was_shared:
        subprocess.run([node.busybox, "mount", "--make-rprivate", "/"], check=True)


@pytest.fixture(scope="package")
def reachable_api_server(control_plane: "ControlPlane", node: "RealNode") -> "Iterator[None]":
    """Pods reach the API server by its Service's address."""
    proxy = service_proxy.ServiceProxy(control_plane.run, node.busybox, control_plane.port)
    asyncio.run(proxy.start())
    yield
    proxy.close()


@pytest.fixture(scope="package")
def built_image(progress: "Callable[[str], None]") -> tuple[Path, str]:
    """The tar of our image, and its name."""
    return image.build(progress)


@pytest.fixture
def image_name(built_image: tuple[Path, str]) -> str:
    return built_image[1]


@pytest.fixture(scope="package")
def installed_as_pods(  # all that has to be there before
    control_plane: "ControlPlane",
    kubectl: "Kubectl",
    node: "RealNode",
    devices: NodeDevices,
    reachable_api_server: None,
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


def _is_root_shared() -> bool:
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    (root,) = [line for line in mounts if line.split()[4] == "/"]
    return "shared:" in root
