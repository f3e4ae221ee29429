"""Our whole system on the node of real containers: server, stock scheduler, agent, eight cards."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.node.stories.agents import Agent
from tests.cluster.node.stories.cards import NodeCards
from tests.cluster.node.stories.pools import Pools
from tests.cluster.system.installation import GpuSystem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.node.environment.real_node import RealNode


@pytest.fixture(scope="package")
def cards(node: "RealNode", tmp_path_factory: pytest.TempPathFactory) -> "Iterator[NodeCards]":
    made = NodeCards(Path(tmp_path_factory.mktemp("cards")))
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
    installed_here: GpuSystem, control_plane: "ControlPlane", node: "RealNode", cards: NodeCards
) -> "Iterator[Agent]":
    started = Agent(control_plane, node, cards)
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


@pytest.fixture
async def pools(
    api: "ApiClient", namespace: str, node: "RealNode", agent: Agent, cards: NodeCards
) -> "AsyncIterator[Pools]":
    """Pools on the node's cards; deleted afterwards with their pods."""
    made = Pools(api, namespace, node, cards)
    yield made
    await made.clear()
