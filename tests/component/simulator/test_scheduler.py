"""The scheduler double: what wakes a pod that fitted nowhere."""

import asyncio
from typing import Any

import msgspec
import pytest

from api.foreign.core import Pod
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.resources import NODES, PODS
from simulator.apiserver.server import InMemoryApiServer
from simulator.node.kubelet import register_node
from simulator.scheduler.fake import FakeScheduler
from tests.support.loop_clock import LoopClock
from tests.support.polling import until_async

pytestmark = pytest.mark.looptime


class Willing:
    """An extender that agrees to everything."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def filter(self, _pod: msgspec.Raw, nodes: list[str]) -> tuple[Any, ...]:
        return nodes, {}, {}

    async def bind(self, *, namespace: str, name: str, uid: str, node: str) -> None:
        body = {"metadata": {"name": name, "uid": uid}, "target": {"kind": "Node", "name": node}}
        await self._client.create(PODS, body, namespace=namespace, name=name, subresource="binding")


async def create_node_and_pod(client: KubeClient) -> None:
    """Create node n1, and a pod whose node selector it does not match."""
    await register_node(client, "n1", {})
    spec = {
        "schedulerName": "gpu-scheduler",
        "nodeSelector": {"example.test/gpu": "yes"},
        "containers": [{"name": "c", "image": "i"}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    await client.create(PODS, pod, namespace="default")


async def test_a_label_that_a_node_gets_wakes_the_pod_that_asks_for_it(
    server: InMemoryApiServer,
) -> None:
    clock = LoopClock()
    async with KubeClient(StaticConnection(server.url), clock) as client:
        await create_node_and_pod(client)

        async def node_of() -> str:
            return (await client.get(PODS, Pod, "p", namespace="default")).spec.node_name

        async def is_refused() -> bool:
            status = (await client.get(PODS, dict[str, Any], "p", namespace="default"))["status"]
            return any(item["type"] == "PodScheduled" for item in status.get("conditions", ()))

        async def is_bound() -> bool:
            return await node_of() == "n1"

        scheduler = FakeScheduler(client, Willing(client), clock)  # type: ignore[arg-type]
        async with asyncio.TaskGroup() as group:
            task = group.create_task(scheduler.run())
            await until_async(is_refused)
            assert not await node_of()
            labels = {"metadata": {"labels": {"example.test/gpu": "yes"}}}
            await client.merge_patch(NODES, labels, name="n1")
            await until_async(is_bound)
            task.cancel()


async def test_what_the_scheduler_says_of_a_pod_leaves_the_conditions_of_others(
    server: InMemoryApiServer,
) -> None:
    clock = LoopClock()
    async with KubeClient(StaticConnection(server.url), clock) as client:
        await create_node_and_pod(client)
        said = {"type": "example.test/Said", "status": "False"}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default"},
        }
        body["status"] = {"conditions": [said]}
        await client.apply(PODS, body, field_manager="another", subresource="status")

        async def types() -> set[str]:
            status = (await client.get(PODS, dict[str, Any], "p", namespace="default"))["status"]
            return {item["type"] for item in status.get("conditions", ())}

        async def is_refused() -> bool:
            return "PodScheduled" in await types()

        scheduler = FakeScheduler(client, Willing(client), clock)  # type: ignore[arg-type]
        async with asyncio.TaskGroup() as group:
            task = group.create_task(scheduler.run())
            await until_async(is_refused)
            task.cancel()
        assert await types() == {"PodScheduled", "example.test/Said"}
