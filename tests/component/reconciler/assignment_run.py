"""A process that assigns devices: what it knows of the world, its controller, and the events that it wrote."""

import contextlib
from collections.abc import Iterable
from typing import Any

from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.names import API_VERSION, ASSIGNMENT_ANNOTATION, NodeName, PoolName
from inventory.pools.validation import VALID_POOL, PoolValidity
from kube.errors import AlreadyExists
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES, GPU_POOLS
from kube.store import Store
from reconciler.assignment.controller import DeviceAssignment
from reconciler.assignment.events import AssignmentEvents
from reconciler.assignment.pool_conflicts import Conflicts, PoolConflicts
from reconciler.assignment.view import AssignmentSources
from tests.component.reconciler.cluster import Cluster, Json
from tests.support.recorded_events import RecordedEvents


class Heard(RecordedEvents):
    def take(self) -> list[tuple[str, str]]:
        """Return object and reason of every Event since the last call."""
        return [(item.regarding.name, item.reason) for item in self.taken()]


class AssignmentRun:
    """One replica; several of them may work on one cluster."""

    def __init__(self, cluster: Cluster, *, replica: bool = False) -> None:
        """With `replica` another process than the cluster's own, with its own allocation state."""
        self.cluster = Cluster(cluster.api, cluster.client) if replica else cluster
        self.cluster.time = cluster.time
        self.client = cluster.client
        self.devices = self.cluster.store
        self.inventories: Store[GPUNodeInventory] = Store()
        self.validity: dict[PoolName, PoolValidity] = {}
        self.heard = Heard()
        self.start()

    def start(self) -> None:
        """Begin again as a leader does: what is only remembered is gone."""
        self.sources = AssignmentSources(
            devices=self.devices,
            inventories=self.inventories,
            pools=self.cluster.catalog.pools,
            index=self.cluster.allocation_state.index,
            reader=self.cluster.allocation_state.reader,
            validity_of=lambda name: self.validity.get(name, VALID_POOL),
        )
        now = self.cluster.time.now
        self.conflicts = Conflicts()
        self.contested: set[PoolName] = set()
        self.conflicts.changes.subscribe(self.contested.add)
        self.controller = DeviceAssignment(
            self.client,
            self.sources,
            self.conflicts,
            events=AssignmentEvents(self.heard, now),
            now=now,
        )
        self.pool_conflicts = PoolConflicts(
            self.client,
            self.conflicts,
            self.cluster.catalog.pools,
            recorder=self.heard,
            is_complete=lambda: self.conflicts.covers(self.devices.nodes()),
            now=now,
        )

    async def observe(self) -> None:
        """See the world as it is."""
        await self.cluster.observe()
        inventories = await self.client.list_(GPU_NODE_INVENTORIES, GPUNodeInventory)
        self.inventories.replace_all(inventories.items)

    async def reconcile(self, node: str = "n1") -> float | None:
        return await self.controller.reconcile(NodeName(node))

    async def step(self) -> list[tuple[str, str]]:
        """See the world, look at every node and at every contested pool; return what was written."""
        await self.observe()
        self.cluster.writes()
        for node in sorted({*self.devices.nodes(), *map(NodeName, self.inventories.by_name)}):
            await self.reconcile(node)
        for pool in sorted(self.contested | self.cluster.catalog.pools.keys()):
            await self.pool_conflicts.reconcile(pool)
        self.contested.clear()
        return self.cluster.writes()

    async def until_stable(self) -> None:
        """Step until nothing is written any more."""
        for _ in range(20):
            if not await self.step():
                return
        raise AssertionError("it never comes to rest")

    # --- what is there -----------------------------------------------------------------------------

    async def owners(self) -> dict[str, str | None]:
        """Return whose each device is at the API server."""
        listing = await self.client.list_(GPU_DEVICES, GPUDevice)
        refs = {item.metadata.name: item.status.pool_ref for item in listing.items}
        return {name: ref.name if ref is not None else None for name, ref in refs.items()}

    async def assigned(self, name: str = "n1-0") -> tuple[str, str]:
        """Return status and reason of the condition Assigned."""
        found = await self.condition(name)
        return (found["status"], found["reason"])

    async def condition(self, name: str = "n1-0", type_: str = "Assigned") -> Json:
        device = await self.cluster.device(name)
        return _condition(device.get("conditions", ()), type_)

    async def pool_conflict(self, name: str) -> Json:
        status = await self.cluster.status_of(name)
        return _condition(status.get("conditions", ()), "Conflict")

    async def pools_of(self, node: str = "n1") -> Json:
        found = await self.client.get(GPU_NODE_INVENTORIES, dict[str, Any], node)
        pools: Json = found.get("status", {}).get("pools", {})
        return pools

    async def pooled_on(self, node: str = "n1") -> int:
        found = await self.client.get(GPU_NODE_INVENTORIES, GPUNodeInventory, node)
        return found.status.device_counts.pooled

    # --- what others do ----------------------------------------------------------------------------

    async def annotate(self, name: str, pool: str | None) -> None:
        body = {"metadata": {"annotations": {ASSIGNMENT_ANNOTATION: pool}}}
        await self.client.merge_patch(GPU_DEVICES, body, name=name)

    async def label(self, name: str, **labels: str | None) -> None:
        body = {"metadata": {"labels": {f"gpu.deckhouse.io/{k}": v for k, v in labels.items()}}}
        await self.client.merge_patch(GPU_DEVICES, body, name=name)

    async def device(self, name: str, *, annotated: str | None = None, **status: Any) -> None:
        """Add a complete device that is in no pool."""
        number = int(name.rpartition("-")[2])
        pci = {"vendor": "10de", "device": "20b2", "address": f"0000:{number:02x}:00.0"}
        await self.cluster.add_device(name, pool=None, **{"pci": pci, **status})
        if annotated is not None:
            await self.annotate(name, annotated)

    async def change_pool(self, name: str, **spec: Any) -> None:
        await self.client.merge_patch(GPU_POOLS, {"spec": spec}, name=name)

    async def inventory(self, node: str = "n1", *, ready: bool | None = True) -> None:
        """Make or change the node's inventory as others do."""
        meta = {"name": node}
        body = {"apiVersion": API_VERSION, "kind": "GPUNodeInventory", "metadata": meta}
        with contextlib.suppress(AlreadyExists):
            await self.client.create(GPU_NODE_INVENTORIES, body)
        if ready is None:
            return
        condition = {
            "type": "ReadyForPooling",
            "status": "True" if ready else "False",
            "reason": "Ready" if ready else "DriverMissing",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        await self.client.apply(
            GPU_NODE_INVENTORIES,
            {**body, "status": {"conditions": [condition]}},
            field_manager="test",
            subresource="status",
        )


def _condition(conditions: Iterable[Json], type_: str) -> Json:
    return next((condition for condition in conditions if condition["type"] == type_), {})
