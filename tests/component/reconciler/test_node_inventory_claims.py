"""A UUID that a second node tells of: it stays with the device that showed it first, until that is gone."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.kinds.gpudevice import GPUDevice
from api.names import NodeName
from kube.resources import GPU_DEVICES, NODES
from reconciler.inventory.controller import REFUSED_AGAIN_S
from tests.component.reconciler.inventory_run import InventoryRun, an_inventory_run, condition
from tests.support.node_features import agent_device, agent_feature, gpu_feature, uuid_of

N1, N2 = NodeName("n1"), NodeName("n2")
FIRST, SECOND = "n1-0000-17-00.0", "n2-0000-17-00.0"


@pytest.fixture
async def caches() -> AsyncIterator[InventoryRun]:
    """Node n1 with two devices that are known, and node n2 that has told of nothing yet."""
    async with an_inventory_run() as opened:
        for node in (N1, N2):
            await opened.add_node(node)
        await opened.publish(gpu_feature(N1, 2))
        await opened.settle(N1, N2)
        opened.events()
        yield opened


def claims(node: str, *uuids: str) -> dict[str, Any]:
    """The NodeFeature of an agent that tells of devices with these UUIDs."""
    return agent_feature(
        node, [agent_device(node, number) | {"uuid": uuid} for number, uuid in enumerate(uuids)]
    )


def usable(caches: InventoryRun) -> dict[str, bool]:
    return {str(device.facts.name): device.is_usable for device in caches.index.devices.all()}


def duplicates_told(caches: InventoryRun) -> list[tuple[str, str]]:
    return [(about, note) for about, why, note in caches.events() if why == "GPUDuplicateUUID"]


async def shown(caches: InventoryRun) -> dict[str, str]:
    return {name: item.status.uuid for name, item in (await caches.gpus()).items()}


def instances_of(device: GPUDevice) -> list[str]:
    return [instance.uuid for instance in device.status.mig.instances or ()]


async def test_node_that_tells_of_all_uuids_of_another_takes_nothing_away(caches: InventoryRun):
    before = await shown(caches)
    forged = claims(N2, *before.values())
    await caches.publish(forged)
    await caches.settle(N1, N2)
    assert await shown(caches) == before
    assert usable(caches) == dict.fromkeys(before, True)
    status, reason, message = condition(await caches.inventory(N2), "InventoryIncomplete")
    assert (status, reason) == ("True", "UUIDsClaimed")
    assert f"{uuid_of(N1, 0)} at 0000:17:00.0 (of {FIRST})" in message
    await caches.withdraw(forged)
    await caches.settle(N1, N2)
    assert await shown(caches) == before
    assert condition(await caches.inventory(N2), "InventoryIncomplete")[1] != "UUIDsClaimed"


async def test_node_is_told_once_what_is_not_believed_and_so_is_each_owner(caches: InventoryRun):
    await caches.publish(claims(N2, uuid_of(N1, 0)))
    await caches.settle(N1, N2)
    told = duplicates_told(caches)
    assert [about for about, _ in told] == ["GPUNodeInventory/n2", f"GPUDevice/{FIRST}"]
    assert f"{uuid_of(N1, 0)} at 0000:17:00.0 (of {FIRST})" in told[0][1]
    assert told[1][1].startswith(f"node n2 reports {uuid_of(N1, 0)} too")
    await caches.settle(N1, N2)
    assert duplicates_told(caches) == []


async def test_device_of_a_node_takes_no_uuid_of_another_over(caches: InventoryRun):
    """Devices that were there before the UUIDs of others: without a driver, and with instances of MIG."""
    await caches.publish(claims(N2, "", "GPU-own"))
    await caches.settle(N1, N2)
    one = f'[{{"profile": "1g.18gb", "uuid": "{uuid_of(N1, 1)}"}}, {{"profile": "1g.18gb", "uuid": "MIG-a"}}]'
    forged = claims(N2, uuid_of(N1, 0), "GPU-own")
    elements = forged["spec"]["features"]["instances"]
    (devices,) = elements.values()
    devices["elements"][1]["attributes"] |= {"mig.mode": "Enabled", "mig.instances": one}
    await caches.publish(forged)
    await caches.settle(N1, N2)
    nameless, cut = await caches.gpu(SECOND), await caches.gpu("n2-0000-18-00.0")
    assert (nameless.status.uuid, cut.status.uuid) == ("", "GPU-own")
    assert instances_of(cut) == ["MIG-a"]
    assert all(usable(caches).values())


async def test_device_that_was_moved_gets_its_device_when_its_old_place_has_none(
    caches: InventoryRun,
):
    await caches.publish(gpu_feature(N2, 1, uuid=uuid_of(N1, 0)))
    await caches.settle(N1, N2)
    assert SECOND not in await caches.gpus()
    assert await caches.controller.reconcile(N2) == REFUSED_AGAIN_S
    left = gpu_feature(N1, 2)
    del left["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"][0]
    await caches.publish(left)
    await caches.settle(N2, N1)
    assert await shown(caches) == {SECOND: uuid_of(N1, 0), "n1-0000-18-00.0": uuid_of(N1, 1)}
    assert condition(await caches.inventory(N2), "InventoryIncomplete")[0] == "False"


async def test_devices_that_two_nodes_exchanged_are_exchanged(caches: InventoryRun):
    await caches.publish(gpu_feature(N2, 1))
    await caches.settle(N1, N2)
    await caches.publish(gpu_feature(N2, 1, uuid=uuid_of(N1, 0)))
    await caches.publish(gpu_feature(N1, 1, uuid=uuid_of(N2, 0)))
    await caches.settle(N1, N2)
    assert await shown(caches) == {FIRST: uuid_of(N2, 0), SECOND: uuid_of(N1, 0)}


async def test_device_that_changed_its_slot_keeps_its_uuid(caches: InventoryRun):
    moved = gpu_feature(N1, 2, **{"pci.address": "00000000:42:00.0"})
    del moved["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"][1]
    await caches.publish(moved)
    await caches.settle(N1)
    assert await shown(caches) == {"n1-0000-42-00.0": uuid_of(N1, 0)}


async def test_uuid_that_a_device_made_by_hand_has_is_its_own(caches: InventoryRun):
    await caches.device_by_hand("mine", nodeName="n3", uuid="GPU-mine")
    await caches.publish(gpu_feature(N2, 1, uuid="GPU-mine"))
    await caches.settle(N1, N2)
    assert SECOND not in await caches.gpus()
    await caches.client.delete(GPU_DEVICES, "mine")
    await caches.settle(N1, N2)
    assert (await caches.gpu(SECOND)).status.uuid == "GPU-mine"


async def test_of_two_nodes_that_tell_of_one_uuid_at_once_one_keeps_it(caches: InventoryRun):
    """Neither has seen the other's device when it makes its own: the later one goes again."""
    for node in (N1, N2):
        await caches.publish(gpu_feature(node, 3 if node == N1 else 1))
    await caches.settle(N1, N2)
    third = "n1-0000-19-00.0"
    for name in (third, SECOND):
        await caches.client.merge_patch(
            GPU_DEVICES, {"status": {"uuid": "GPU-both"}}, name=name, subresource="status"
        )
    for node in (N1, N2):
        count = 3 if node == N1 else 1
        feature = gpu_feature(node, count)
        elements = feature["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"]
        elements[-1]["attributes"]["uuid"] = "GPU-both"
        await caches.publish(feature)
    caches.events()
    await caches.observe()
    assert [name for name, is_usable in usable(caches).items() if not is_usable] == [SECOND]
    await caches.settle(N1, N2)
    assert SECOND not in await caches.gpus()
    assert (await caches.gpu(third)).status.uuid == "GPU-both"
    told = [about for about, _ in duplicates_told(caches)]
    assert {f"GPUDevice/{third}", "GPUNodeInventory/n2"} <= set(told)


async def test_duplicate_in_a_pool_is_kept_while_its_node_tells_of_it(caches: InventoryRun):
    """Its pods are accounted on it; it is told, and goes with the claim."""
    feature = gpu_feature(N2, 1)
    await caches.publish(feature)
    await caches.settle(N1, N2)
    for name in (FIRST, SECOND):
        status = {"poolRef": {"name": "a"}, "uuid": uuid_of(N1, 0)}
        await caches.client.merge_patch(
            GPU_DEVICES, {"status": status}, name=name, subresource="status"
        )
    forged = gpu_feature(N2, 1, uuid=uuid_of(N1, 0))
    await caches.publish(forged)
    await caches.settle(N1, N2)
    assert usable(caches)[SECOND] is False
    told = dict(duplicates_told(caches))
    assert told[f"GPUDevice/{SECOND}"].startswith(f"{FIRST} had {uuid_of(N1, 0)} first")
    assert f"GPUDevice/{FIRST}" in told
    await caches.settle(N2, N1)
    assert duplicates_told(caches) == []
    await caches.withdraw(forged)
    await caches.settle(N1, N2)
    assert SECOND not in await caches.gpus()
    assert usable(caches)[FIRST]


async def test_nodes_that_are_gone_have_no_uuid(caches: InventoryRun):
    await caches.publish(claims(N2, uuid_of(N1, 0)))
    await caches.settle(N1, N2)
    await caches.client.delete(NODES, N1)
    await caches.withdraw(gpu_feature(N1))
    await caches.settle(N1, N2)
    caches.time.seconds += 600
    await caches.settle(N1, N2)
    assert await shown(caches) == {SECOND: uuid_of(N1, 0)}
