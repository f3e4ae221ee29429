"""Nodes at an API server in memory, and a leader that labels them for a ClusterPolicy: informers, queues, triggers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from api.foreign.core import Node
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.kinds.nvidia.clusterpolicy import ClusterPolicy
from kube.client import KubeClient
from kube.informer import Informer
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES, NODES
from manifests.install.crds import build_crds
from pool.facts import node_facts
from reconciler.controller_spec import ControllerSpec
from reconciler.informer_stores import InformerStores
from reconciler.node_software import deploy_labels_controller
from reconciler.pool import index_changes
from reconciler.settings import NodeSoftwareParameters
from reconciler.sinks.device import observe_device
from server.controllers.manager import ControllerManager
from simulator.apiserver.server import InMemoryApiServer
from tests.support.client_of_api import an_api_with_client
from tests.support.controllers import a_context, new_stores
from tests.support.loop_clock import ServerClock
from tests.support.recorded_events import RecordedEvents

SPECS = (index_changes.SPEC, deploy_labels_controller.SPEC)
STABLE_S = 3.0
"""Virtual: several looks for changed nodes."""


@dataclass
class LabelWorld:
    api: InMemoryApiServer
    client: KubeClient
    stores: InformerStores = field(default_factory=new_stores)
    recorder: RecordedEvents = field(default_factory=RecordedEvents)

    async def add_node(self, name: str, labels: dict[str, str]) -> None:
        meta = {"name": name, "labels": labels}
        await self.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": meta})
        runtime = {"containerRuntimeVersion": "containerd://2.1.4", "kernelVersion": "6.8.0"}
        await self.client.merge_patch(
            NODES, {"status": {"nodeInfo": runtime}}, name=name, subresource="status"
        )

    async def relabel(self, name: str, labels: dict[str, str | None]) -> None:
        await self.client.merge_patch(NODES, {"metadata": {"labels": labels}}, name=name)

    async def metadata(self, name: str = "n1") -> dict[str, Any]:
        found: dict[str, Any] = (await self.client.get(NODES, dict[str, Any], name))["metadata"]
        return found

    async def labels(self, name: str = "n1") -> dict[str, str]:
        found: dict[str, str] = (await self.metadata(name)).get("labels", {})
        return found

    def set_policy(self, policy: ClusterPolicy | None) -> None:
        self.stores.operator_objects.policy_store.replace_all([policy] if policy else [])

    def writes(self) -> list[str]:
        """Return the paths of the writes since the last call."""
        found = [write.path for write in self.api.requests.writes()]
        self.api.requests.clear()
        return found

    async def until_stable(self) -> list[str]:
        """Let the leader see what happened, and return the paths that were written since the last call."""
        await asyncio.sleep(STABLE_S)
        return self.writes()

    def events(self) -> list[tuple[str, str]]:
        return [(item.reason, item.note) for item in self.recorder.taken()]

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow nodes and devices."""
        clock = ServerClock()
        informers: list[Informer[Any]] = [
            Informer(
                self.client,
                NODES,
                Node,
                sink=self.stores.node_sink,
                clock=clock,
                project=node_facts,
            ),
            Informer(
                self.client,
                GPU_DEVICES,
                GPUDevice,
                sink=self.stores.device_sink,
                clock=clock,
                project=observe_device,
            ),
            Informer(
                self.client,
                GPU_NODE_INVENTORIES,
                GPUNodeInventory,
                sink=self.stores.inventory_sink,
                clock=clock,
            ),
        ]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(item.run()) for item in informers]
            for informer in informers:
                await informer.synced.wait()
            yield
            for task in tasks:
                task.cancel()

    @asynccontextmanager
    async def leading(self, *further: ControllerSpec) -> AsyncIterator[None]:
        """Lead for one term, with further controllers."""
        async with self.following(), asyncio.TaskGroup() as group:
            term = group.create_task(self._lead(further))
            yield
            term.cancel()

    async def _lead(self, further: tuple[ControllerSpec, ...]) -> None:
        context = a_context(
            stores=self.stores,
            client=self.client,
            recorder=self.recorder,
            clock=ServerClock(),
            node_software=NodeSoftwareParameters(is_enabled=True),
        )
        async with context.ending, asyncio.TaskGroup() as group:
            await ControllerManager(context, (*SPECS, *further)).start(group)


@asynccontextmanager
async def a_label_world() -> AsyncIterator[LabelWorld]:
    async with an_api_with_client(definitions=build_crds()) as (api, client):
        yield LabelWorld(api, client)
