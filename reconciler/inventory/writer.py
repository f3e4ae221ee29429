"""Writes of `node.inventory`, each expected until the watch shows it."""

from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

from api.kinds.gpudevice import GPUDevice
from api.meta import PartialObjectMetadata
from api.names import API_VERSION, DEVICE_NODE_ANNOTATION, DEVICE_NODE_LABEL, DeviceName, NodeName
from inventory.identity import node_digest
from kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES, NODES
from reconciler.runtime.expectations import Expectations
from reconciler.runtime.status import StatusWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from api.clock import Instant
    from api.kinds.gpunodeinventory import GPUNodeInventory
    from api.meta import ObjectMeta
    from kube.client import KubeClient
    from kube.resources import Resource
    from kube.store import Store
    from reconciler.runtime.device_store import DeviceStore

FIELD_MANAGER: Final = "gpu-control-plane/node-inventory"

_Object = tuple["Resource", str]
"""Resource and name."""


@final
class InventoryWriter:
    """Creates, updates and deletes devices and inventories; an object that is gone is no failure."""

    def __init__(
        self,
        client: "KubeClient",
        devices: "DeviceStore",
        inventories: "Store[GPUNodeInventory]",
        *,
        now: "Callable[[], Instant]",
    ) -> None:
        self._client = client
        self._devices = devices
        self._inventories = inventories
        self._device_status = StatusWriter(client, GPU_DEVICES, FIELD_MANAGER)
        self._inventory_status = StatusWriter(client, GPU_NODE_INVENTORIES, FIELD_MANAGER)
        self._now = now
        self._expected: dict[NodeName, Expectations[_Object, None]] = {}

    def are_written(self, node: NodeName) -> bool:
        """Say whether the watches have delivered every write for the node."""
        expected = self._expected.get(node)
        if expected is not None and not expected.are_seen(self._metadata):
            return False
        self._expected.pop(node, None)
        return True

    def _expectations_of(self, node: NodeName) -> "Expectations[_Object, None]":
        return self._expected.setdefault(node, Expectations(self._now))

    async def has_node(self, node: NodeName) -> bool:
        """Ask the API server for a node that the watch does not show: it may be one we cannot read."""
        try:
            await self._client.get(NODES, PartialObjectMetadata, node)
        except NotFound:
            return False
        return True

    async def create_device(self, node: NodeName, name: "DeviceName") -> "ObjectMeta | None":
        """Create a device without a status; None where one exists that the watch does not show."""
        metadata = await self._create(
            GPU_DEVICES,
            name,
            labels={DEVICE_NODE_LABEL: node_digest(node)},
            annotations={DEVICE_NODE_ANNOTATION: node},
        )
        if metadata is None:
            return None
        self._expectations_of(node).expect((GPU_DEVICES, name), None, metadata)
        return metadata

    async def create_inventory(self, node: NodeName) -> "ObjectMeta | None":
        """Create a node's inventory without a status; None where one exists that the watch does not show."""
        metadata = await self._create(GPU_NODE_INVENTORIES, node)
        if metadata is None:
            return None
        self._expectations_of(node).expect((GPU_NODE_INVENTORIES, node), None, metadata)
        return metadata

    async def disown(self, resource: "Resource", metadata: "ObjectMeta") -> None:
        """Take an object from the Node that owns it, as earlier versions made it.

        Where the Node is deleted and made again, the garbage collector would delete the object.
        """
        for position, owner in enumerate(metadata.owner_references or ()):
            if owner.kind == "Node":
                path = f"/metadata/ownerReferences/{position}"
                patch = [
                    {"op": "test", "path": f"{path}/uid", "value": owner.uid},
                    {"op": "remove", "path": path},
                ]
                with suppress(NotFound, Conflict, Invalid):
                    await self._client.json_patch(resource, patch, name=metadata.name)
                return

    async def apply_device(self, node: NodeName, name: "DeviceName", status: object) -> None:
        """Own these fields of a device's status."""
        written = await self._device_status.apply(name, status)
        if written is not None:
            self._expectations_of(node).expect((GPU_DEVICES, name), None, written)

    async def apply_inventory(self, node: NodeName, status: object) -> None:
        """Own these fields of an inventory's status."""
        written = await self._inventory_status.apply(node, status)
        if written is not None:
            self._expectations_of(node).expect((GPU_NODE_INVENTORIES, node), None, written)

    async def delete_device(self, node: NodeName, device: GPUDevice) -> None:
        if await self._delete(GPU_DEVICES, device.metadata):
            self._expectations_of(node).expect_deletion(
                (GPU_DEVICES, device.name), None, device.metadata.uid
            )

    async def delete_inventory(self, node: NodeName, metadata: "ObjectMeta") -> None:
        if await self._delete(GPU_NODE_INVENTORIES, metadata):
            self._expectations_of(node).expect_deletion(
                (GPU_NODE_INVENTORIES, node), None, metadata.uid
            )

    async def _create(
        self,
        resource: "Resource",
        name: str,
        **metadata: "Mapping[str, str]",
    ) -> "ObjectMeta | None":
        """Create an object without an owner: a Node that is created again keeps its devices.

        None: one of the name exists. It cannot be read, or the watch is late; either way it is left alone.
        """
        body = {
            "apiVersion": API_VERSION,
            "kind": resource.kind,
            "metadata": {"name": name, **metadata},
        }
        try:
            answer = await self._client.create(resource, body)
        except AlreadyExists:
            return None
        return answer.decode(PartialObjectMetadata).metadata

    async def _delete(self, resource: "Resource", metadata: "ObjectMeta") -> bool:
        """Delete the object of this uid; say whether it was there."""
        try:
            await self._client.delete(resource, metadata.name, uid=metadata.uid)
        except (NotFound, Conflict):
            return False
        return True

    def _metadata(self, key: "_Object") -> "ObjectMeta | None":
        resource, name = key
        if resource is GPU_DEVICES:
            device = self._devices.get(DeviceName(name))
            return device.metadata if device is not None else None
        inventory = self._inventories.by_name.get(name)
        return inventory.metadata if inventory is not None else None
