"""An API server in memory with our kinds, a client of it, and what one process knows of it.

Nothing runs by itself: `observe` shows the world to the sinks, as their informers would, and a test
calls `reconcile` when it wants to.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from api import names
from api.foreign.core import Node, Pod
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpupool import GPUPool
from inventory.pools.validation import PoolValidity
from kube.client import KubeClient
from kube.resources import (
    GPU_DEVICES,
    GPU_POOLS,
    NODES,
    PODS,
)
from manifests.install.crds import build_crds
from pool.allocation_state import AllocationState
from pool.catalog import Catalog
from pool.facts import node_facts, pod_facts
from reconciler.device.state import DeviceStatus
from reconciler.pool.lifecycle import LifecycleDependencies, PoolLifecycle, PoolReferences
from reconciler.pool.node_labels import PoolNodeLabels
from reconciler.pool.status import PoolStatus
from reconciler.pool.validation_cache import PoolValidityCache
from reconciler.runtime.device_store import DeviceStore
from reconciler.sinks.device import DeviceSink, observe_device
from reconciler.sinks.node import NodeSink
from reconciler.sinks.pod import PodSink
from reconciler.sinks.pool import PoolSink
from simulator.apiserver.server import InMemoryApiServer
from telemetry.metrics import REGISTRY
from tests.support.client_of_api import an_api_with_client
from tests.support.listings import replace_listed
from tests.support.recorded_events import RecordedEvents
from tests.support.scheduling import Time

Json = dict[str, Any]


@dataclass
class Cluster:
    """The world (`api`), and a process that follows it."""

    api: InMemoryApiServer
    client: KubeClient
    allocation_state: AllocationState = field(default_factory=AllocationState)
    catalog: Catalog = field(default_factory=Catalog)
    time: Time = field(default_factory=Time)

    def __post_init__(self) -> None:
        index = self.allocation_state.index
        self.pools = PoolSink(index, self.catalog)
        self.devices = DeviceSink(index)
        self.nodes = NodeSink(index)
        self.pods = PodSink(self.allocation_state, self.time.now)
        self.store = DeviceStore()
        self.workloads: dict[str, list[str]] = {}
        self.recorder = RecordedEvents()
        self.rules = PoolValidityCache(self.catalog, self.store)
        self.pool_status = PoolStatus(
            self.client,
            index,
            self.catalog,
            reader=self.allocation_state.reader,
            now=self.time.now,
            validity_of=self.validity_of,
            recorder=self.recorder,
        )
        references = PoolReferences(index, lambda pool: self.workloads.get(pool, []))
        context = LifecycleDependencies(
            allocation_state=self.allocation_state,
            index=index,
            catalog=self.catalog,
            validity_of=self.validity_of,
            references=references.of,
            recorder=self.recorder,
            now=self.time.now,
        )
        self.pool_life = PoolLifecycle(self.client, context)
        self.node_marks = PoolNodeLabels(
            self.client, index, self.catalog, validity_of=self.validity_of, now=self.time.now
        )
        self.device_status = DeviceStatus(self.client, index, self.devices.store, now=self.time.now)

    def events(self) -> list[tuple[str, str]]:
        """Return reason and note of the events since the last call."""
        return [(item.reason, item.note) for item in self.recorder.taken()]

    def validity_of(self, name: names.PoolName) -> PoolValidity:
        return self.rules.validity_of(name)

    async def observe(self) -> None:
        """Let the process see the world as it is now."""
        pools = await self.client.list_(GPU_POOLS, GPUPool)
        replace_listed(self.pools, pools)
        devices = await self.client.list_as(GPU_DEVICES, GPUDevice, observe_device)
        self.devices.replace_all(devices.items)
        gpus = await self.client.list_(GPU_DEVICES, GPUDevice)
        for _ in self.store.replace_in_steps(gpus.items):
            pass
        self.rules = PoolValidityCache(self.catalog, self.store)
        nodes = await self.client.list_as(NODES, Node, node_facts)
        self.nodes.replace_all(nodes.items)
        pods = await self.client.list_as(PODS, Pod, pod_facts)
        self.pods.replace_all(pods.items)

    async def reconcile_pool(self, name: str = "whole") -> None:
        assert await self.pool_status.reconcile(names.PoolName(name)) is None

    async def reconcile_device(self, name: str = "n1-0") -> None:
        assert await self.device_status.reconcile(names.DeviceName(name)) is None

    async def status_of(self, name: str = "whole") -> Json:
        return await self._status(GPU_POOLS.path(None, name))

    async def device(self, name: str = "n1-0") -> Json:
        return await self._status(GPU_DEVICES.path(None, name))

    async def labels_of(self, node: str = "n1") -> set[str]:
        """Return the pools that a node is labelled with."""
        labels = (await self.client.get(NODES, Node, node)).metadata.labels or {}
        return {
            key.removeprefix(names.POOL_NODE_LABEL_PREFIX)
            for key in labels
            if key.startswith(names.POOL_NODE_LABEL_PREFIX)
        }

    async def _status(self, path: str) -> Json:
        resource = GPU_POOLS if "gpupools" in path else GPU_DEVICES
        seen = await self.client.get(resource, dict[str, Any], path.rpartition("/")[2])
        status: Json = seen.get("status", {})
        return status

    def writes(self) -> list[tuple[str, str]]:
        """Return method and path of every write since the last call."""
        found = [(write.method, write.path) for write in self.api.requests.writes()]
        self.api.requests.clear()
        return found

    # --- what others do --------------------------------------------------------------------------

    async def add_pool(self, name: str = "whole", **spec: Any) -> None:
        meta = {"name": name}
        body = {"apiVersion": names.API_VERSION, "kind": "GPUPool", "metadata": meta, "spec": spec}
        await self.client.create(GPU_POOLS, body)

    async def add_node(self, name: str = "n1", **labels: str) -> None:
        meta = {"name": name, "labels": labels}
        await self.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": meta})
        # What the node controller does once the kubelet is up: the API server taints every new node.
        await self.client.merge_patch(NODES, {"spec": {"taints": None}}, name=name)
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        await self.client.merge_patch(NODES, {"status": ready}, name=name, subresource="status")

    async def add_device(
        self, name: str = "n1-0", *, pool: str | None = "whole", **more: Any
    ) -> None:
        meta: Json = {"name": name}
        if pool is not None:
            meta["annotations"] = {names.ASSIGNMENT_ANNOTATION: pool}
        body = {"apiVersion": names.API_VERSION, "kind": "GPUDevice", "metadata": meta}
        await self.client.create(GPU_DEVICES, body)
        status: Json = {"nodeName": name.partition("-")[0], "uuid": f"GPU-{name}", **more}
        if pool is not None:
            status["poolRef"] = {"name": pool}
        await self.report(name, **status)

    async def report(self, name: str = "n1-0", **status: Any) -> None:
        """Change a device's status as the inventory does."""
        await self.client.merge_patch(
            GPU_DEVICES, {"status": status}, name=name, subresource="status"
        )

    async def add_pod(self, name: str = "p", *, pool: str = "whole") -> None:
        limits = {f"{names.RESOURCE_PREFIX}{pool}": "1"}
        container = {"name": "c0", "image": "cuda", "resources": {"limits": limits}}
        await self.client.create(
            PODS,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"containers": [container]},
            },
        )


@asynccontextmanager
async def a_cluster() -> AsyncIterator[Cluster]:
    """One node with two devices of the pool `whole`, seen by the process."""
    async with an_api_with_client(definitions=build_crds()) as (api, client):
        cluster = Cluster(api, client)
        await cluster.add_pool()
        await cluster.add_node()
        await cluster.add_device("n1-0")
        await cluster.add_device("n1-1")
        await cluster.observe()
        api.requests.clear()
        yield cluster


def gauge(name: str, pool: str = "whole") -> float | None:
    return REGISTRY.get_sample_value(name, {"pool": pool})
