"""Our whole system on the node of real containers: server, stock scheduler, agent, twelve devices."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.environment import client
from tests.cluster.kubectl_gpu.conftest import kubectl_gpu, plugin_environment  # noqa: F401  # fixtures
from tests.cluster.node.stories.agents import Agent
from tests.cluster.node.stories.devices import NodeDevices
from tests.cluster.node.stories.pools import Pools
from tests.cluster.system.installation import GpuSystem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.node.environment.real_node import RealNode


WHOLE = range(8)
SLICED = (8, 9)
"""Numbers of devices; those after them are for tests that want pools of their own."""


@pytest.fixture(scope="package")
def devices(node: "RealNode", tmp_path_factory: pytest.TempPathFactory) -> "Iterator[NodeDevices]":
    made = NodeDevices(Path(tmp_path_factory.mktemp("devices")))
    asyncio.run(made.make_devices(node))
    yield made
    made.remove()


@pytest.fixture(scope="package")
def installed_here(
    control_plane: "ControlPlane", kubectl: "Kubectl", node: "RealNode"
) -> "Iterator[GpuSystem]":
    """The server, which runs no device plugins itself: the agent of these tests is a process."""
    settings = {"device_plugin": {"mode": "None"}, "node_agent": {"enabled": False}}
    system = GpuSystem(control_plane, kubectl, prefix="node-", settings=settings)
    try:
        asyncio.run(system.install())
        yield system
        asyncio.run(system.check_rights())
    finally:
        asyncio.run(system.uninstall())


@pytest.fixture(scope="package")
def running_agent(
    installed_here: GpuSystem, control_plane: "ControlPlane", node: "RealNode", devices: NodeDevices
) -> "Iterator[Agent]":
    started = Agent(control_plane, node, devices)
    asyncio.run(started.start())
    yield started
    asyncio.run(started.stop())


@pytest.fixture
async def agent(running_agent: Agent, installed_here: GpuSystem) -> Agent:
    """The agent, running and ready; tests may kill it."""
    await installed_here.restore()
    if not running_agent.process.running:
        await running_agent.start()
    await running_agent.wait_ready()
    return running_agent


@pytest.fixture(scope="package")
def kept_pools(
    control_plane: "ControlPlane", node: "RealNode", running_agent: Agent, devices: NodeDevices
) -> dict[str, str]:
    """The pools that most tests share: name -> resource."""

    async def make() -> dict[str, str]:
        async with client.open_client(control_plane.kubeconfig()) as api:
            made = Pools(api, "default", node, devices)
            slices = {"mode": "TimeSlice", "slicesPerDevice": 8}
            return {
                "whole": await made.make(*WHOLE),
                "sliced": await made.make(*SLICED, units=8 * len(SLICED), allocation=slices),
            }

    return asyncio.run(make())


@pytest.fixture
async def pools(  # what must be there before
    api: "ApiClient",
    namespace: str,
    node: "RealNode",
    agent: Agent,
    devices: NodeDevices,
    kept_pools: dict[str, str],
) -> "AsyncIterator[Pools]":
    """Pools on the node's devices; those that the test makes are deleted afterwards, with all its pods."""
    made = Pools(api, namespace, node, devices)
    yield made
    await made.clear()


@pytest.fixture
def whole(kept_pools: dict[str, str]) -> str:
    """The resource of a pool of eight whole devices."""
    return kept_pools["whole"]


@pytest.fixture
def sliced(kept_pools: dict[str, str]) -> str:
    """The resource of a pool of two devices of eight slices each."""
    return kept_pools["sliced"]
