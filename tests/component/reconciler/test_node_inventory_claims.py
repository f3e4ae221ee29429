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
async def world() -> AsyncIterator[InventoryRun]:
    """Node n1 with two devices that are known, and node n2 that has told of nothing yet."""
    async with an_inventory_run() as opened:
        for node in (N1, N2):
            await opened.add_node(node)
        await opened.publish(gpu_feature(N1, 2))
        await opened.until_stable(N1, N2)
        opened.events()
        yield opened


def claims(node: str, *uuids: str) -> dict[str, Any]:
    """The NodeFeature of an agent that tells of devices with these UUIDs."""
    return agent_feature(
        node, [agent_device(node, number) | {"uuid": uuid} for number, uuid in enumerate(uuids)]
    )


def usable(world: InventoryRun) -> dict[str, bool]:
    return {str(device.facts.name): device.is_usable for device in world.index.devices.all()}


def duplicates_reported(world: InventoryRun) -> list[tuple[str, str]]:
    return [(about, note) for about, why, note in world.events() if why == "GPUDuplicateUUID"]


async def current(world: InventoryRun) -> dict[str, str]:
    return {name: item.status.uuid for name, item in (await world.gpus()).items()}


def instances_of(device: GPUDevice) -> list[str]:
    return [instance.uuid for instance in device.status.mig.instances or ()]


async def test_node_that_tells_of_all_uuids_of_another_takes_nothing_away(world: InventoryRun):
    before = await current(world)
    forged = claims(N2, *before.values())
    await world.publish(forged)
    await world.until_stable(N1, N2)
    assert await current(world) == before
    assert usable(world) == dict.fromkeys(before, True)
    status, reason, message = condition(await world.inventory(N2), "InventoryIncomplete")
    assert (status, reason) == ("True", "UUIDsClaimed")
    assert f"{uuid_of(N1, 0)} at 0000:17:00.0 (of {FIRST})" in message
    await world.withdraw(forged)
    await world.until_stable(N1, N2)
    assert await current(world) == before
    assert condition(await world.inventory(N2), "InventoryIncomplete")[1] != "UUIDsClaimed"


async def test_node_is_told_once_what_is_not_believed_and_so_is_each_owner(world: InventoryRun):
    await world.publish(claims(N2, uuid_of(N1, 0)))
    await world.until_stable(N1, N2)
    reported = duplicates_reported(world)
    assert [about for about, _ in reported] == ["GPUNodeInventory/n2", f"GPUDevice/{FIRST}"]
    assert f"{uuid_of(N1, 0)} at 0000:17:00.0 (of {FIRST})" in reported[0][1]
    assert reported[1][1].startswith(f"node n2 reports {uuid_of(N1, 0)} too")
    await world.until_stable(N1, N2)
    assert duplicates_reported(world) == []


async def test_device_of_a_node_takes_no_uuid_of_another_over(world: InventoryRun):
    """Devices that were there before the UUIDs of others: without a driver, and with instances of MIG."""
    await world.publish(claims(N2, "", "GPU-own"))
    await world.until_stable(N1, N2)
    one = f'[{{"profile": "1g.18gb", "uuid": "{uuid_of(N1, 1)}"}}, {{"profile": "1g.18gb", "uuid": "MIG-a"}}]'
    forged = claims(N2, uuid_of(N1, 0), "GPU-own")
    elements = forged["spec"]["features"]["instances"]
    (devices,) = elements.values()
    devices["elements"][1]["attributes"] |= {"mig.mode": "Enabled", "mig.instances": one}
    await world.publish(forged)
    await world.until_stable(N1, N2)
    nameless, cut = await world.gpu(SECOND), await world.gpu("n2-0000-18-00.0")
    assert (nameless.status.uuid, cut.status.uuid) == ("", "GPU-own")
    assert instances_of(cut) == ["MIG-a"]
    assert all(usable(world).values())


async def test_device_that_was_moved_gets_its_device_when_its_old_place_has_none(
    world: InventoryRun,
):
    await world.publish(gpu_feature(N2, 1, uuid=uuid_of(N1, 0)))
    await world.until_stable(N1, N2)
    assert SECOND not in await world.gpus()
    assert await world.controller.reconcile(N2) == REFUSED_AGAIN_S
    left = gpu_feature(N1, 2)
    del left["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"][0]
    await world.publish(left)
    await world.until_stable(N2, N1)
    assert await current(world) == {SECOND: uuid_of(N1, 0), "n1-0000-18-00.0": uuid_of(N1, 1)}
    assert condition(await world.inventory(N2), "InventoryIncomplete")[0] == "False"


async def test_devices_that_two_nodes_exchanged_are_exchanged(world: InventoryRun):
    await world.publish(gpu_feature(N2, 1))
    await world.until_stable(N1, N2)
    await world.publish(gpu_feature(N2, 1, uuid=uuid_of(N1, 0)))
    await world.publish(gpu_feature(N1, 1, uuid=uuid_of(N2, 0)))
    await world.until_stable(N1, N2)
    assert await current(world) == {FIRST: uuid_of(N2, 0), SECOND: uuid_of(N1, 0)}


async def test_device_that_changed_its_slot_keeps_its_uuid(world: InventoryRun):
    moved = gpu_feature(N1, 2, **{"pci.address": "00000000:42:00.0"})
    del moved["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"][1]
    await world.publish(moved)
    await world.until_stable(N1)
    assert await current(world) == {"n1-0000-42-00.0": uuid_of(N1, 0)}


async def test_uuid_that_a_device_made_by_hand_has_is_its_own(world: InventoryRun):
    await world.device_by_hand("mine", nodeName="n3", uuid="GPU-mine")
    await world.publish(gpu_feature(N2, 1, uuid="GPU-mine"))
    await world.until_stable(N1, N2)
    assert SECOND not in await world.gpus()
    await world.client.delete(GPU_DEVICES, "mine")
    await world.until_stable(N1, N2)
    assert (await world.gpu(SECOND)).status.uuid == "GPU-mine"


async def test_of_two_nodes_that_tell_of_one_uuid_at_once_one_keeps_it(world: InventoryRun):
    """Neither has seen the other's device when it makes its own: the later one goes again."""
    for node in (N1, N2):
        await world.publish(gpu_feature(node, 3 if node == N1 else 1))
    await world.until_stable(N1, N2)
    third = "n1-0000-19-00.0"
    for name in (third, SECOND):
        await world.client.merge_patch(
            GPU_DEVICES, {"status": {"uuid": "GPU-both"}}, name=name, subresource="status"
        )
    for node in (N1, N2):
        count = 3 if node == N1 else 1
        feature = gpu_feature(node, count)
        elements = feature["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"]
        elements[-1]["attributes"]["uuid"] = "GPU-both"
        await world.publish(feature)
    world.events()
    await world.observe()
    assert [name for name, is_usable in usable(world).items() if not is_usable] == [SECOND]
    await world.until_stable(N1, N2)
    assert SECOND not in await world.gpus()
    assert (await world.gpu(third)).status.uuid == "GPU-both"
    reported = [about for about, _ in duplicates_reported(world)]
    assert {f"GPUDevice/{third}", "GPUNodeInventory/n2"} <= set(reported)


async def test_duplicate_in_a_pool_is_kept_while_its_node_tells_of_it(world: InventoryRun):
    """Its pods are accounted on it; it is told, and goes with the claim."""
    feature = gpu_feature(N2, 1)
    await world.publish(feature)
    await world.until_stable(N1, N2)
    for name in (FIRST, SECOND):
        status = {"poolRef": {"name": "a"}, "uuid": uuid_of(N1, 0)}
        await world.client.merge_patch(
            GPU_DEVICES, {"status": status}, name=name, subresource="status"
        )
    forged = gpu_feature(N2, 1, uuid=uuid_of(N1, 0))
    await world.publish(forged)
    await world.until_stable(N1, N2)
    assert usable(world)[SECOND] is False
    reported = dict(duplicates_reported(world))
    assert reported[f"GPUDevice/{SECOND}"].startswith(f"{FIRST} had {uuid_of(N1, 0)} first")
    assert f"GPUDevice/{FIRST}" in reported
    await world.until_stable(N2, N1)
    assert duplicates_reported(world) == []
    await world.withdraw(forged)
    await world.until_stable(N1, N2)
    assert SECOND not in await world.gpus()
    assert usable(world)[FIRST]


async def test_nodes_that_are_gone_have_no_uuid(world: InventoryRun):
    await world.publish(claims(N2, uuid_of(N1, 0)))
    await world.until_stable(N1, N2)
    await world.client.delete(NODES, N1)
    await world.withdraw(gpu_feature(N1))
    await world.until_stable(N1, N2)
    world.time.seconds += 600
    await world.until_stable(N1, N2)
    assert await current(world) == {SECOND: uuid_of(N1, 0)}
