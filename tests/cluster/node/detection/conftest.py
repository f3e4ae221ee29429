"""A node without any label, and our system as pods; the node's PCI bus is a directory of the test's."""

import asyncio
from typing import TYPE_CHECKING

import pytest

from api.names import PRESENT_LABEL
from tests.cluster.node.gpu_node import (  # noqa: F401  # fixtures
    default_scheduler,
    devices_in_dev,
    root_is_shared,
)
from tests.cluster.system.installation import GpuSystem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.node.environment.real_node import RealNode
    from tests.cluster.node.stories.devices import NodeDevices


@pytest.fixture(scope="package")
def system(  # all that has to be there before
    control_plane: "ControlPlane",
    kubectl: "Kubectl",
    node: "RealNode",
    devices: "NodeDevices",
    reachable_services: None,
    shared_root: None,
    built_image: "tuple[Path, str]",
) -> "Iterator[GpuSystem]":
    """The server with its default settings but for the image: operands and steadiness too."""
    tar, name = built_image
    settings: dict[str, dict[str, str]] = {
        "device_plugin": {"image": name},
        "bootstrap": {},
        "health": {},
    }
    made = GpuSystem(control_plane, kubectl, prefix="bare-", settings=settings)

    async def start() -> None:
        # A suite before this one has left its devices, for which our server labels the node.
        for kind in ("gpudevices", "gpunodeinventories"):
            await kubectl("delete", kind, "--all", check=False)
        await kubectl("label", "node", node.name, f"{PRESENT_LABEL}-")
        await node.import_image(tar)
        await made.install()

    with default_scheduler(control_plane):
        try:
            asyncio.run(start())
            yield made
            asyncio.run(made.check_rights())
        finally:
            asyncio.run(made.uninstall())


@pytest.fixture
def bus(tmp_path: "Path") -> "Path":
    """The directory that the detector has as /sys/bus/pci; its user is not root."""
    made = tmp_path / "pci"
    (made / "devices").mkdir(parents=True)
    for item in (made, made / "devices"):
        item.chmod(0o755)
    return made
