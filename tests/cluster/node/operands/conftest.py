"""Our system with all four operands on; the programs of NVIDIA's images are doubles of ours."""

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster.environment import binaries
from tests.cluster.environment.prometheus import Prometheus
from tests.cluster.node.environment import nvidia_image
from tests.cluster.node.gpu_node import (  # noqa: F401  # fixtures
    devices_in_dev,
    labelled_gpu_node,
    root_is_shared,
)
from tests.cluster.node.operands.operand_pods import OperandPods
from tests.cluster.node.operands.switches import SwitchedSystem, settings
from tests.cluster.node.stories.pools import Pools
from tests.cluster.system.installation import GpuSystem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.node.environment.real_node import RealNode
    from tests.cluster.node.stories.devices import NodeDevices

VALUES: Final[dict[str, int]] = {
    "utilisation": 80,
    "memory_utilisation": 12,
    "used": 1024,
    "milliwatts": 411_250,
    "sm_clock": 1980,
    "memory_clock": 2619,
    "throttle": 4,
    # Temperature of memory, energy, ECC errors, remapped rows, CRC errors of NVLink.
    **dict.fromkeys(("field.82", "field.83", "field.3", "field.4"), 5),
    **dict.fromkeys(("field.142", "field.143", "field.145", "field.38"), 1),
    # Replays of PCIe, data of NVLink.
    **dict.fromkeys(("field.94", "field.138", "field.139"), 7),
}
"""What every device's driver says, by the keys of `tests.support.nvml.library`."""


@pytest.fixture(scope="package")
def installed_with_operands(
    control_plane: "ControlPlane",
    kubectl: "Kubectl",
    gpu_node: "RealNode",
    devices: "NodeDevices",
    built_image: "tuple[Path, str]",
    tmp_path_factory: pytest.TempPathFactory,
) -> "Iterator[SwitchedSystem]":
    scratch = control_plane.run.scratch / "nvidia-image"
    scratch.mkdir()
    tar = control_plane.run.scratch / "nvidia.tar"
    nvidia_image.write_nvidia_image(tar, built_image[0], gpu_node.busybox, scratch=scratch)
    for uuid in devices.uuids:
        devices.driver.set(uuid, **VALUES)
    now = settings(built_image[1])
    system = GpuSystem(control_plane, kubectl, prefix="operands-", settings=now)

    async def start() -> None:
        await gpu_node.import_image(built_image[0])
        await gpu_node.import_image(tar)
        await system.install()

    try:
        asyncio.run(start())
        yield SwitchedSystem(system, built_image[1], now)
        asyncio.run(system.check_rights())
    finally:
        asyncio.run(system.uninstall())


@pytest.fixture
async def operands(
    api: "ApiClient", node: "RealNode", installed_with_operands: SwitchedSystem
) -> OperandPods:
    """All four are on."""
    await installed_with_operands.switch()
    return OperandPods(api, node.name)


@pytest.fixture
async def pools(
    api: "ApiClient",
    namespace: str,
    node: "RealNode",
    installed_with_operands: SwitchedSystem,
    devices: "NodeDevices",
) -> "AsyncIterator[Pools]":
    made = Pools(api, namespace, node, devices)
    yield made
    await made.clear()


@pytest.fixture
def prometheus(
    control_plane: "ControlPlane", progress: "Callable[[str], None]"
) -> "Iterator[Prometheus]":
    """Not started yet."""
    program = binaries.find_prometheus("prometheus", progress)
    made = Prometheus(control_plane, program, name="prometheus-of-operands")
    yield made
    made.close()
