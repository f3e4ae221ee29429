"""What a node of Karpenter does follows its pods: without that of the agent nobody reports."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from api.foreign.karpenter import NODE_POOL_LABEL, REGISTERED_LABEL
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.resources import NAMESPACES, NODES, PODS
from simulator.apiserver.server import InMemoryApiServer
from simulator.node import nfd
from simulator.node.joining_nodes import JoiningNodes, NodeBehaviour
from simulator.node.node_agent import FakeDevice
from tests.support.loop_clock import LoopClock
from tests.support.polling import until

pytestmark = pytest.mark.looptime


async def make_pod(client: KubeClient) -> None:
    spec: dict[str, Any] = {"nodeName": "n1", "containers": [{"name": "main", "image": "i"}]}
    body = {"metadata": {"name": "agent-1", "namespace": "default"}, "spec": spec}
    await client.create(PODS, body)
    await client.merge_patch(
        PODS,
        {"status": {"phase": "Running"}},
        name="agent-1",
        namespace="default",
        subresource="status",
    )


async def test_an_agent_works_while_its_pod_runs(server: InMemoryApiServer):
    working: list[str] = []

    async def work(node: str, _: Sequence[FakeDevice]) -> None:
        working.append(node)
        try:
            await asyncio.Event().wait()
        finally:
            working.remove(node)

    behaviour = {"scaled": NodeBehaviour(pods_before_report=("agent-",), beside_report=work)}
    async with KubeClient(StaticConnection(server.url), LoopClock()) as client:
        await client.create(NAMESPACES, {"metadata": {"name": nfd.NAMESPACE}})
        labels = {NODE_POOL_LABEL: "scaled", REGISTERED_LABEL: "true"}
        await client.create(NODES, {"metadata": {"name": "n1", "labels": labels}})
        async with asyncio.TaskGroup() as group:
            running = group.create_task(JoiningNodes(client, LoopClock(), behaviour).run())
            await make_pod(client)
            await until(lambda: working == ["n1"])
            await client.delete(PODS, "agent-1", namespace="default", grace_period_s=0)
            await until(lambda: working == [])
            await make_pod(client)
            await until(lambda: working == ["n1"])
            running.cancel()
