"""An API server in memory with our kinds and NFD's, and the inventory of one process that follows it.

Nothing runs by itself: `observe` shows the world to the sinks, and `until_stable` reconciles a node until nothing
is left to do.
"""

import datetime as dt
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from api.foreign.core import Node
from api.foreign.nodefeature import NodeFeature
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.names import API_VERSION, NodeName
from inventory.discovery.node import InventoryParameters
from kube.client import KubeClient
from kube.errors import NotFound
from kube.resources import (
    GPU_DEVICES,
    GPU_NODE_INVENTORIES,
    NODE_FEATURES,
    NODES,
)
from kube.store import Store
from manifests.install.crds import build_crds
from pool.facts import node_facts
from pool.index.device_index import DeviceIndex
from reconciler.inventory.controller import DeviceStores, NodeInventory
from reconciler.inventory.present_label import NodePresentLabel
from reconciler.sinks.device import DeviceSink, observe_device
from reconciler.sinks.node import NodeSink
from reconciler.sinks.node_feature import NodeFeatureSink, observe_feature
from simulator.apiserver.server import InMemoryApiServer
from simulator.node.nfd import NAMESPACE, node_feature_crd
from tests.support.client_of_api import an_api_with_client
from tests.support.listings import replace_listed
from tests.support.recorded_events import RecordedEvents
from tests.support.scheduling import Time

Json = dict[str, Any]
ROUNDS = 6


@dataclass
class InventoryRun:
    """The world (`api`), and an inventory that follows it."""

    api: InMemoryApiServer
    client: KubeClient
    time: Time = field(default_factory=Time)
    recorder: RecordedEvents = field(default_factory=RecordedEvents)

    def __post_init__(self) -> None:
        self._begin()

    def restart(self) -> None:
        """Begin again with nothing known, as a process that was restarted."""
        self.controller.forget_all()
        self._begin()

    def _begin(self) -> None:
        self.index = DeviceIndex()
        self.devices = DeviceSink(self.index)
        self.nodes = NodeSink(self.index)
        self.features = NodeFeatureSink()
        self.inventories: Store[GPUNodeInventory] = Store()
        self.controller = NodeInventory(
            self.client,
            DeviceStores(
                index=self.index,
                devices=self.devices.store,
                inventories=self.inventories,
                features=self.features,
            ),
            self.recorder,
            now=self.time.now,
            parameters=InventoryParameters(),
        )
        self.present_label = NodePresentLabel(
            self.client,
            self.index,
            self.features,
            devices=self.devices.store,
            absent_for_s=InventoryParameters().gone_for.total_seconds(),
            now=self.time.now,
        )

    def events(self) -> list[tuple[str, str, str]]:
        """Kind and name, reason and note of the events since the last call."""
        return [
            (f"{e.regarding.kind}/{e.regarding.name}", e.reason, e.note)
            for e in self.recorder.taken()
        ]

    async def observe(self) -> None:
        """Let the process see the world as it is now."""
        nodes = await self.client.list_as(NODES, Node, node_facts)
        self.nodes.replace_all(nodes.items)
        await self.observe_features()
        devices = await self.client.list_as(GPU_DEVICES, GPUDevice, observe_device)
        replace_listed(self.devices, devices)
        inventories = await self.client.list_(GPU_NODE_INVENTORIES, GPUNodeInventory)
        replace_listed(self.inventories, inventories)

    async def observe_features(self) -> None:
        features = await self.client.list_as(NODE_FEATURES, NodeFeature, observe_feature)
        self.features.replace_all(features.items)

    async def until_stable(self, *nodes: str) -> int:
        """Observe and reconcile until nothing is written; return how many writes there were."""
        total = 0
        for _ in range(ROUNDS):
            await self.observe()
            self.api.requests.clear()
            for node in nodes or ("n1",):
                await self.controller.reconcile(NodeName(node))
            count = len(self.api.requests.writes())
            total += count
            if not count:
                return total
        raise AssertionError(f"still writing after {ROUNDS} rounds: {self.writes()}")

    def writes(self) -> Counter[str]:
        return Counter(f"{write.method} {write.path}" for write in self.api.requests.writes())

    def now(self) -> dt.datetime:
        return self.time.now().utc

    # --- the world -------------------------------------------------------------------------------

    async def add_node(self, name: str = "n1", labels: dict[str, str] | None = None) -> None:
        meta = {"name": name, "labels": labels or {}}
        await self.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": meta})

    async def label(self, node: str = "n1", **labels: str | None) -> None:
        await self.label_all(labels, node)

    async def label_all(self, labels: "dict[str, str | None]", node: str = "n1") -> None:
        await self.client.merge_patch(NODES, {"metadata": {"labels": labels}}, name=node)

    async def publish(self, feature: Json) -> None:
        """Write a NodeFeature again."""
        name = feature["metadata"]["name"]
        with suppress(NotFound):
            await self.client.delete(NODE_FEATURES, name, namespace=NAMESPACE)
        await self.client.create(NODE_FEATURES, feature)

    async def withdraw(self, feature: Json) -> None:
        await self.client.delete(NODE_FEATURES, feature["metadata"]["name"], namespace=NAMESPACE)

    async def device_by_hand(self, name: str, **status: Any) -> None:
        body = {"apiVersion": API_VERSION, "kind": "GPUDevice", "metadata": {"name": name}}
        await self.client.create(GPU_DEVICES, body)
        await self.client.merge_patch(
            GPU_DEVICES, {"status": status}, name=name, subresource="status"
        )

    async def gpus(self) -> dict[str, GPUDevice]:
        """All devices by name."""
        found = await self.client.list_(GPU_DEVICES, GPUDevice)
        return {item.name: item for item in found.items}

    async def gpu(self, name: str) -> GPUDevice:
        return await self.client.get(GPU_DEVICES, GPUDevice, name)

    async def inventory(self, node: str = "n1") -> GPUNodeInventory:
        return await self.client.get(GPU_NODE_INVENTORIES, GPUNodeInventory, node)


@asynccontextmanager
async def an_inventory_run() -> AsyncIterator[InventoryRun]:
    """A cluster without a node."""
    definitions = (*build_crds(), node_feature_crd())
    async with an_api_with_client(namespace=NAMESPACE, definitions=definitions) as (api, client):
        api.requests.clear()
        world = InventoryRun(api, client)
        yield world
        world.controller.forget_all()


def condition(holder: GPUDevice | GPUNodeInventory, type_: str) -> tuple[str, str, str]:
    """Status, reason and message of a condition."""
    for item in holder.status.conditions or ():
        if item.type == type_:
            return item.status, item.reason, item.message
    raise AssertionError(f"no condition {type_}: {holder.status.conditions}")
