"""Nodes that go: what was made for them stays for a grace, and for good where the node comes back."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.names import API_VERSION, ASSIGNMENT_ANNOTATION, DEVICE_NODE_LABEL, NodeName
from inventory.discovery.node import DEFAULT_GONE_FOR
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES, NODES
from tests.component.reconciler.inventory_run import InventoryRun, an_inventory_run
from tests.support.node_features import gpu_feature

N1 = NodeName("n1")
DEVICE = "n1-0000-17-00.0"
GRACE_S = DEFAULT_GONE_FOR.total_seconds()


@pytest.fixture
async def caches() -> AsyncIterator[InventoryRun]:
    async with an_inventory_run() as opened:
        await opened.add_node()
        yield opened


async def taken_in(caches: InventoryRun) -> None:
    await caches.publish(gpu_feature("n1"))
    await caches.settle()


async def inventories(caches: InventoryRun) -> list[str]:
    listed = await caches.client.list_(GPU_NODE_INVENTORIES, dict[str, Any])
    return [item["metadata"]["name"] for item in listed.items]


async def test_node_that_is_gone_takes_its_devices_with_it_after_a_grace(caches: InventoryRun):
    await taken_in(caches)
    await caches.device_by_hand("mine", nodeName="n1")
    await caches.client.delete(NODES, "n1")
    await caches.observe()
    assert await caches.controller.reconcile(N1) == GRACE_S
    caches.time.seconds += GRACE_S - 1
    assert await caches.settle() == 0
    assert len(await caches.gpus()) == 3
    caches.time.seconds += 1
    await caches.settle()
    assert set(await caches.gpus()) == {"mine"}
    assert await inventories(caches) == []


async def test_node_that_went_while_nobody_looked_takes_its_devices_with_it(caches: InventoryRun):
    await taken_in(caches)
    await caches.client.delete(NODES, "n1")
    caches.restart()
    assert await caches.settle() == 0
    caches.time.seconds += GRACE_S
    await caches.settle()
    assert await caches.gpus() == {}
    assert await inventories(caches) == []


async def test_feature_that_outlives_its_node_makes_no_device(caches: InventoryRun):
    """gpu-operator#655: NodeFeatures stay behind by the thousand where nodes come and go."""
    await caches.publish(gpu_feature("ghost", 2))
    await caches.publish(gpu_feature("n1", 1))
    await caches.settle("n1", "ghost")
    assert list(await caches.gpus()) == ["n1-0000-17-00.0"]


async def test_node_that_is_made_again_keeps_its_devices(caches: InventoryRun):
    await taken_in(caches)
    patch = {
        "metadata": {"annotations": {ASSIGNMENT_ANNOTATION: "a"}},
    }
    await caches.client.merge_patch(GPU_DEVICES, patch, name=DEVICE)
    before = await caches.gpus()
    await caches.client.delete(NODES, "n1")
    await caches.settle()
    caches.time.seconds += GRACE_S - 1
    await caches.add_node()
    await caches.settle()
    caches.time.seconds += GRACE_S
    assert await caches.settle() == 0
    after = await caches.gpus()
    uids = {name: item.metadata.uid for name, item in before.items()}
    assert {name: item.metadata.uid for name, item in after.items()} == uids
    assert after[DEVICE].assignment == "a"
    assert all(item.metadata.owner_references is None for item in after.values())


async def test_grace_begins_again_when_the_node_goes_again(caches: InventoryRun):
    await taken_in(caches)
    for _ in range(2):
        await caches.client.delete(NODES, "n1")
        await caches.settle()
        caches.time.seconds += GRACE_S - 1
        assert await caches.settle() == 0
        await caches.add_node()
        await caches.settle()
    assert len(await caches.gpus()) == 2


async def test_node_that_only_we_cannot_see_keeps_its_devices(caches: InventoryRun):
    """As one whose object cannot be decoded: no device of it was pulled."""
    await taken_in(caches)
    caches.nodes.replace_all([])
    caches.api.requests.clear()
    assert await caches.controller.reconcile(N1) == GRACE_S
    caches.time.seconds += GRACE_S
    assert await caches.controller.reconcile(N1) is None
    assert caches.api.requests.writes() == []
    assert len(await caches.gpus()) == 2


async def test_objects_that_a_node_owns_are_taken_from_it(caches: InventoryRun):
    """As earlier versions made them; owners that others wrote stay."""
    node = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-of-another-life"}
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "mine", "uid": "uid-mine"}
    for resource, name in ((GPU_DEVICES, DEVICE), (GPU_NODE_INVENTORIES, "n1")):
        metadata = {
            "name": name,
            "labels": {DEVICE_NODE_LABEL: "x"},
            "ownerReferences": [other, node],
        }
        body = {"apiVersion": API_VERSION, "kind": resource.kind, "metadata": metadata}
        await caches.client.create(resource, body)
    await taken_in(caches)
    for holder in (await caches.gpu(DEVICE), await caches.inventory()):
        owners = [
            (reference.kind, reference.name) for reference in holder.metadata.owner_references or ()
        ]
        assert owners == [("ConfigMap", "mine")]
    assert await caches.settle() == 0
