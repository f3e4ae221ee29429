"""Nodes that go: what was made for them stays for a grace, and for good where the node comes back."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.names import (
    API_VERSION,
    ASSIGNMENT_ANNOTATION,
    DEVICE_NODE_LABEL,
    IGNORE_LABEL,
    NodeName,
)
from inventory.discovery.node import DEFAULT_GONE_FOR
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES, NODES
from reconciler.inventory.controller import IGNORED_GONE_FOR_S
from tests.component.reconciler.inventory_run import InventoryRun, an_inventory_run
from tests.support.node_features import gpu_feature

N1 = NodeName("n1")
DEVICE, OTHER = "n1-0000-17-00.0", "n1-0000-18-00.0"
GRACE_S = DEFAULT_GONE_FOR.total_seconds()


@pytest.fixture
async def world() -> AsyncIterator[InventoryRun]:
    async with an_inventory_run() as opened:
        await opened.add_node()
        yield opened


async def taken_in(world: InventoryRun) -> None:
    await world.publish(gpu_feature("n1"))
    await world.until_stable()


async def inventories(world: InventoryRun) -> list[str]:
    listed = await world.client.list_(GPU_NODE_INVENTORIES, dict[str, Any])
    return [item["metadata"]["name"] for item in listed.items]


async def test_node_that_is_gone_takes_its_devices_with_it_after_a_grace(world: InventoryRun):
    await taken_in(world)
    await world.device_by_hand("mine", nodeName="n1")
    await world.client.delete(NODES, "n1")
    await world.observe()
    assert await world.controller.reconcile(N1) == GRACE_S
    world.time.seconds += GRACE_S - 1
    assert await world.until_stable() == 0
    assert len(await world.gpus()) == 3
    world.time.seconds += 1
    await world.until_stable()
    assert set(await world.gpus()) == {"mine"}
    assert await inventories(world) == []


async def test_node_that_went_while_nobody_looked_takes_its_devices_with_it(world: InventoryRun):
    await taken_in(world)
    await world.client.delete(NODES, "n1")
    world.restart()
    assert await world.until_stable() == 0
    world.time.seconds += GRACE_S
    await world.until_stable()
    assert await world.gpus() == {}
    assert await inventories(world) == []


async def test_feature_that_outlives_its_node_makes_no_device(world: InventoryRun):
    """gpu-operator#655: NodeFeatures stay behind by the thousand where nodes come and go."""
    await world.publish(gpu_feature("ghost", 2))
    await world.publish(gpu_feature("n1", 1))
    await world.until_stable("n1", "ghost")
    assert list(await world.gpus()) == ["n1-0000-17-00.0"]


async def test_node_that_is_made_again_keeps_its_devices(world: InventoryRun):
    await taken_in(world)
    patch = {
        "metadata": {"annotations": {ASSIGNMENT_ANNOTATION: "a"}},
    }
    await world.client.merge_patch(GPU_DEVICES, patch, name=DEVICE)
    before = await world.gpus()
    await world.client.delete(NODES, "n1")
    await world.until_stable()
    world.time.seconds += GRACE_S - 1
    await world.add_node()
    await world.until_stable()
    world.time.seconds += GRACE_S
    assert await world.until_stable() == 0
    after = await world.gpus()
    uids = {name: item.metadata.uid for name, item in before.items()}
    assert {name: item.metadata.uid for name, item in after.items()} == uids
    assert after[DEVICE].assignment == "a"
    assert all(item.metadata.owner_references is None for item in after.values())


async def test_grace_begins_again_when_the_node_goes_again(world: InventoryRun):
    await taken_in(world)
    for _ in range(2):
        await world.client.delete(NODES, "n1")
        await world.until_stable()
        world.time.seconds += GRACE_S - 1
        assert await world.until_stable() == 0
        await world.add_node()
        await world.until_stable()
    assert len(await world.gpus()) == 2


async def test_node_that_only_we_cannot_see_keeps_its_devices(world: InventoryRun):
    """As one whose object cannot be decoded: no device of it was pulled."""
    await taken_in(world)
    world.nodes.replace_all([])
    world.api.requests.clear()
    assert await world.controller.reconcile(N1) == GRACE_S
    world.time.seconds += GRACE_S
    assert await world.controller.reconcile(N1) is None
    assert world.api.requests.writes() == []
    assert len(await world.gpus()) == 2


async def test_objects_that_a_node_owns_are_taken_from_it(world: InventoryRun):
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
        await world.client.create(resource, body)
    await taken_in(world)
    for holder in (await world.gpu(DEVICE), await world.inventory()):
        owners = [
            (reference.kind, reference.name) for reference in holder.metadata.owner_references or ()
        ]
        assert owners == [("ConfigMap", "mine")]
    assert await world.until_stable() == 0


async def gone_with_a_bad_device(world: InventoryRun) -> None:
    """Delete the node, of which a device is known to be bad and the other one assigned, and let the grace pass."""
    await taken_in(world)
    bad = {"metadata": {"labels": {IGNORE_LABEL: "true"}}}
    await world.client.merge_patch(GPU_DEVICES, bad, name=DEVICE)
    assigned = {"metadata": {"annotations": {ASSIGNMENT_ANNOTATION: "a"}}}
    await world.client.merge_patch(GPU_DEVICES, assigned, name=OTHER)
    await world.client.delete(NODES, "n1")
    await world.until_stable()
    world.events()
    world.time.seconds += GRACE_S
    await world.until_stable()


async def test_a_device_that_is_known_to_be_bad_is_in_no_pool_when_its_node_comes_back(
    world: InventoryRun,
):
    await gone_with_a_bad_device(world)
    assert set(await world.gpus()) == {DEVICE}
    assert await inventories(world) == []
    world.time.seconds += IGNORED_GONE_FOR_S / 2
    assert await world.until_stable() == 0
    await world.add_node()
    await world.until_stable()
    found = await world.gpus()
    assert {name: item.is_ignored for name, item in found.items()} == {DEVICE: True, OTHER: False}


async def test_another_device_in_the_slot_is_not_taken_for_the_bad_one(world: InventoryRun):
    await gone_with_a_bad_device(world)
    await world.add_node()
    await world.publish(gpu_feature("n1", 1, uuid="GPU-of-another-device"))
    await world.until_stable()
    found = await world.gpu(DEVICE)
    assert (found.status.uuid, found.is_ignored) == ("GPU-of-another-device", False)
    ((node, note),) = (
        (regarding, note)
        for regarding, reason, note in world.events()
        if reason == "GPUDeviceRemoved" and DEVICE in note
    )
    assert node == "Node/n1"
    assert "(it had label gpu.deckhouse.io/ignore=true: repeat it if the device comes back)" in note


async def test_what_is_forgotten_of_a_device_is_named(world: InventoryRun):
    await gone_with_a_bad_device(world)
    text = (
        f"gone with their node: {OTHER} (it had annotation gpu.deckhouse.io/assignment=a:"
        " repeat it if the device comes back)"
    )
    assert world.events() == [("Node/n1", "GPUDeviceRemoved", text)]


async def test_a_bad_device_of_a_node_that_does_not_come_back_is_deleted_after_a_month(
    world: InventoryRun,
):
    await gone_with_a_bad_device(world)
    left = await world.controller.reconcile(N1)
    assert left == IGNORED_GONE_FOR_S - GRACE_S
    world.events()
    world.time.seconds += left
    await world.until_stable()
    assert await world.gpus() == {}
    assert [reason for _, reason, _ in world.events()] == ["GPUDeviceRemoved"]
