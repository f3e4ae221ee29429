"""One node with two devices and an inventory, and the controllers of readiness and health that follow it.

Nothing runs by itself: a test says when the process sees the world, and when it looks at the node.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from api.foreign.core import Node, Pod
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.names import API_VERSION, NodeName
from inventory.health.device import ExporterSample, HealthDebounceLimits, HealthReport
from inventory.readiness.software import BootstrapParameters
from kube.client import KubeClient
from kube.resources import (
    GPU_DEVICES,
    GPU_NODE_INVENTORIES,
    NODES,
    PODS,
)
from kube.store import Store
from manifests.install.crds import build_crds
from pool.allocation_state import AllocationState
from pool.facts import node_facts, pod_facts
from reconciler.controller_spec import ControllerContext
from reconciler.device.health import DeviceHealthController, FaultEvents, HealthSources
from reconciler.readiness.controller import NodeBootstrap, NodeSources
from reconciler.sinks.device import DeviceSink, observe_device
from reconciler.sinks.node import NodeSink
from reconciler.sinks.operand_pod import OperandParameters, OperandPodObject, projection
from reconciler.sinks.operand_pod_sink import OperandPodSink
from reconciler.sinks.pod import PodSink
from simulator.apiserver.server import InMemoryApiServer
from tests.support.builders import a_pool
from tests.support.client_of_api import an_api_with_client
from tests.support.controllers import a_context
from tests.support.operands import an_operand_pod
from tests.support.recorded_events import RecordedEvents
from tests.support.scheduling import Time

if TYPE_CHECKING:
    import datetime as dt

Json = dict[str, Any]
N1 = NodeName("n1")
DEVICES = ("n1-0", "n1-1")


class Recorder(RecordedEvents):
    def seen(self) -> list[tuple[str, str, str]]:
        """Return reason, kind and name of each Event since the last call."""
        return [(item.reason, item.regarding.kind, item.regarding.name) for item in self.taken()]


class Process:
    """What one process knows, and its two controllers."""

    def __init__(self, client: KubeClient, time: Time) -> None:
        self.client = client
        self.time = time
        self.allocation_state = AllocationState()
        self.allocation_state.index.replace_pool(a_pool())
        self.devices = DeviceSink(self.allocation_state.index)
        self.nodes = NodeSink(self.allocation_state.index)
        self.pods = PodSink(self.allocation_state, time.now)
        self.inventories: Store[GPUNodeInventory] = Store()
        self.operands = OperandPodSink()
        self.recorder = Recorder()
        self.page: ExporterSample | None = None
        self.reports: dict[str, HealthReport] = {}
        self.heartbeat_age_s: float | None = None
        self.dcgm_heard_at: dt.datetime | None = None
        sources = NodeSources(
            inventories=self.inventories,
            devices=self.devices.store,
            operands=self.operands,
            index=self.allocation_state.index,
            heartbeats=(lambda _node: None, lambda _node: self.heartbeat_age_s),
            dcgm_heard_at=lambda _node: self.dcgm_heard_at,
        )
        self.bootstrap_recorder = Recorder()
        self.bootstrap = NodeBootstrap(
            client,
            sources,
            parameters=BootstrapParameters(),
            recorder=self.bootstrap_recorder,
            now=time.now,
        )
        speaking = HealthSources(
            page=lambda _node: self.page,
            reports=lambda _node: self.reports,
        )
        self.health = DeviceHealthController(
            client,
            self.devices.store,
            speaking,
            events=FaultEvents(self.recorder, self.allocation_state.reader),
            limits=HealthDebounceLimits(),
            now=time.now,
        )

    def context(self) -> ControllerContext:
        """Return a context of the same caches."""
        context = a_context(client=self.client)
        context.stores.devices, context.stores.inventories = self.devices.store, self.inventories
        context.stores.operands = self.operands
        return context

    async def observe(self) -> None:
        """See the world as it is now."""
        client = self.client
        devices = await client.list_as(GPU_DEVICES, GPUDevice, observe_device)
        self.devices.replace_all(devices.items)
        nodes = await client.list_as(NODES, Node, node_facts)
        self.nodes.replace_all(nodes.items)
        pods = await client.list_as(PODS, Pod, pod_facts)
        self.pods.replace_all(pods.items)
        inventories = await client.list_(GPU_NODE_INVENTORIES, GPUNodeInventory)
        self.inventories.replace_all(inventories.items)
        operands = await client.list_as(PODS, OperandPodObject, projection(OperandParameters()))
        self.operands.replace_all(operands.items)

    async def run_pass(self, *, times: int = 1, every_s: float = 10.0) -> float | None:
        """See and judge the node so often, time passing in between; return when it wants the next."""
        again_s: float | None = None
        for number in range(times):
            self.time.seconds += every_s if number else 0
            await self.observe()
            again_s = await self.bootstrap.reconcile(N1)
        return again_s

    async def examine(self, *, times: int = 1, every_s: float = 10.0) -> float | None:
        """See and examine the node's devices so often."""
        again_s: float | None = None
        for number in range(times):
            self.time.seconds += every_s if number else 0
            await self.observe()
            again_s = await self.health.reconcile(N1)
        return again_s


class World:
    """The API server, and a process that follows it."""

    def __init__(self, api: InMemoryApiServer, client: KubeClient) -> None:
        self.api = api
        self.client = client
        self.time = Time()
        self.process = Process(client, self.time)

    async def restart(self) -> Process:
        """Have a new process that knows nothing but what the API server has."""
        self.process = Process(self.client, self.time)
        await self.process.observe()
        return self.process

    def writes(self) -> list[tuple[str, str]]:
        """Return method and name of what was written since the last call."""
        found = [
            (write.method, write.path.rpartition("/v1alpha1/")[2])
            for write in self.api.requests.writes()
        ]
        self.api.requests.clear()
        return found

    # --- what others do --------------------------------------------------------------------------

    async def add_node(self) -> None:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
        await self.client.create(NODES, body)

    async def add_device(self, name: str) -> None:
        body = {"apiVersion": API_VERSION, "kind": "GPUDevice", "metadata": {"name": name}}
        await self.client.create(GPU_DEVICES, body)
        address = f"0000:0{name[-1]}:00.0"
        await self.report_device(
            name,
            nodeName="n1",
            uuid=f"GPU-{name}",
            pci={"address": address},
            poolRef={"name": "whole"},
        )

    async def report_device(self, name: str, **status: Any) -> None:
        await self.client.merge_patch(
            GPU_DEVICES, {"status": status}, name=name, subresource="status"
        )

    async def report_inventory(self, **status: Any) -> None:
        """Say of the node's inventory what `node.inventory` says."""
        body = {
            "apiVersion": API_VERSION,
            "kind": "GPUNodeInventory",
            "metadata": {"name": "n1"},
        }
        await self.client.apply(GPU_NODE_INVENTORIES, body, field_manager="inventory")
        body["status"] = {"managed": True, "devices": list(DEVICES), **status}
        await self.client.apply(
            GPU_NODE_INVENTORIES, body, field_manager="inventory", subresource="status"
        )

    async def run_operand(self, app: str, **changes: Any) -> None:
        """Have an operand's pod on the node, started or changed."""
        name = f"{app}-n1"
        body = an_operand_pod(app, name=name, **changes)
        status = body.pop("status")
        found = await self.client.list_(PODS, Pod, namespace="gpu-operator")
        if name not in {pod.metadata.name for pod in found.items}:
            await self.client.create(PODS, body)
        await self.client.merge_patch(
            PODS, {"status": status}, name=name, namespace="gpu-operator", subresource="status"
        )

    # --- what is seen of it ----------------------------------------------------------------------

    async def inventory(self) -> Json:
        seen = await self.client.get(GPU_NODE_INVENTORIES, dict[str, Any], "n1")
        status: Json = seen.get("status") or {}
        return status

    async def conditions(self) -> dict[str, tuple[str, str]]:
        """Return status and reason of each condition of the inventory."""
        found = (await self.inventory()).get("conditions", [])
        return {item["type"]: (item["status"], item["reason"]) for item in found}

    async def healthy(self, name: str = "n1-0") -> Json | None:
        """Return a device's condition Healthy."""
        seen = await self.client.get(GPU_DEVICES, dict[str, Any], name)
        found = seen.get("status", {}).get("conditions", [])
        return next((item for item in found if item["type"] == "Healthy"), None)


@asynccontextmanager
async def a_world() -> AsyncIterator[World]:
    definitions = build_crds()
    async with an_api_with_client(namespace="gpu-operator", definitions=definitions) as (
        api,
        client,
    ):
        world = World(api, client)
        await world.add_node()
        for name in DEVICES:
            await world.add_device(name)
        await world.report_inventory()
        await world.process.observe()
        world.writes()
        yield world
