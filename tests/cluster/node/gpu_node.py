"""The node as DaemonSets of ours find one: devices in /dev, a driver, a label, and a scheduler for their pods.

Fixtures for the conftest of a package that installs our system as pods; `gpu_node` needs all others.
"""

import asyncio
import contextlib
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.inventory.cdi import file_name
from agent.settings import CDI_KIND
from tests.cluster.environment import client, components, nodes
from tests.cluster.node.environment import mounts, paths
from tests.cluster.node.stories.devices import NodeDevices, devices_of_the_machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.node.environment.real_node import RealNode

DEVICES = 4
_GPU_LABEL = "nvidia.com/gpu.present"


@pytest.fixture(name="devices", scope="package")
def devices_in_dev(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[NodeDevices]":
    with devices_of_the_machine(Path(tmp_path_factory.mktemp("devices")), DEVICES) as made:
        yield made


@pytest.fixture(name="shared_root", scope="package")
def root_is_shared(node: "RealNode") -> "Iterator[None]":
    with mounts.shared_root(node.busybox):
        yield


@pytest.fixture(name="gpu_node", scope="package")
def labelled_gpu_node(  # all that has to be there before
    control_plane: "ControlPlane",
    node: "RealNode",
    devices: NodeDevices,
    reachable_services: None,
    shared_root: None,
) -> "Iterator[RealNode]":
    """The node, labelled, while kube-scheduler binds the pods that name no scheduler of ours."""

    async def label(value: str | None) -> None:
        async with client.open_client(control_plane.kubeconfig()) as api:
            labels = {"metadata": {"labels": {_GPU_LABEL: value}}}
            await api.patch(f"{nodes.NODES}/{node.name}", labels)

    with default_scheduler(control_plane):
        asyncio.run(label("true"))
        yield node
        asyncio.run(label(None))
    # An agent leaves it to the pods that run, and containerd would prefer it to that of the next package's agent.
    (paths.USUAL_CDI / file_name(CDI_KIND)).unlink(missing_ok=True)


@contextlib.contextmanager
def default_scheduler(control_plane: "ControlPlane") -> "Iterator[None]":
    """Run the kube-scheduler of the cluster."""
    scheduler = components.KubeScheduler(
        control_plane, name=f"default-scheduler-{secrets.token_hex(3)}"
    )
    try:
        asyncio.run(scheduler.start())
        yield
    finally:
        scheduler.kill9()
