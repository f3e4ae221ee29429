"""A UUID that a second node tells of: it stays with the device that showed it first, until that is gone."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.kinds.gpudevice import GPUDevice
from api.names import NodeName
from kube.resources import GPU_DEVICES, NODES
from reconciler.inventory.controller import REFUSED_AGAIN_S
from tests.component.reconciler.stocktaking import Stocktaking, a_stocktaking, condition
from tests.support.node_features import agent_card, agent_feature, gpu_feature, uuid_of

N1, N2 = NodeName("n1"), NodeName("n2")
FIRST, SECOND = "n1-0000-17-00.0", "n2-0000-17-00.0"


@pytest.fixture
async def stock() -> AsyncIterator[Stocktaking]:
    """Node n1 with two cards that are known, and node n2 that has told of nothing yet."""
    async with a_stocktaking() as opened:
        for node in (N1, N2):
            await opened.add_node(node)
        await opened.publish(gpu_feature(N1, 2))
        await opened.settle(N1, N2)
        opened.events()
        yield opened


def claims(node: str, *uuids: str) -> dict[str, Any]:
    """The NodeFeature of an agent that tells of cards with these UUIDs."""
    return agent_feature(
        node, [agent_card(node, number) | {"uuid": uuid} for number, uuid in enumerate(uuids)]
    )


def usable(stock: Stocktaking) -> dict[str, bool]:
    return {str(one.facts.name): one.is_usable for one in stock.index.devices()}


def duplicates_told(stock: Stocktaking) -> list[tuple[str, str]]:
    return [(about, note) for about, why, note in stock.events() if why == "GPUDuplicateUUID"]


async def shown(stock: Stocktaking) -> dict[str, str]:
    return {name: one.status.uuid for name, one in (await stock.cards()).items()}


def instances_of(device: GPUDevice) -> list[str]:
    return [one.uuid for one in device.status.mig.instances or ()]


async def test_node_that_tells_of_all_uuids_of_another_takes_nothing_away(stock: Stocktaking):
    before = await shown(stock)
    forged = claims(N2, *before.values())
    await stock.publish(forged)
    await stock.settle(N1, N2)
    assert await shown(stock) == before
    assert usable(stock) == dict.fromkeys(before, True)
    status, reason, message = condition(await stock.inventory(N2), "InventoryIncomplete")
    assert (status, reason) == ("True", "UUIDsClaimed")
    assert f"{uuid_of(N1, 0)} at 0000:17:00.0 (of {FIRST})" in message
    await stock.withdraw(forged)
    await stock.settle(N1, N2)
    assert await shown(stock) == before
    assert condition(await stock.inventory(N2), "InventoryIncomplete")[1] != "UUIDsClaimed"


async def test_node_is_told_once_what_is_not_believed_and_so_is_each_owner(stock: Stocktaking):
    await stock.publish(claims(N2, uuid_of(N1, 0)))
    await stock.settle(N1, N2)
    told = duplicates_told(stock)
    assert [about for about, _ in told] == ["GPUNodeInventory/n2", f"GPUDevice/{FIRST}"]
    assert f"{uuid_of(N1, 0)} at 0000:17:00.0 (of {FIRST})" in told[0][1]
    assert told[1][1].startswith(f"node n2 tells of {uuid_of(N1, 0)} too")
    await stock.settle(N1, N2)
    assert duplicates_told(stock) == []


async def test_device_of_a_node_takes_no_uuid_of_another_over(stock: Stocktaking):
    """Cards that were there before the UUIDs of others: without a driver, and with instances of MIG."""
    await stock.publish(claims(N2, "", "GPU-own"))
    await stock.settle(N1, N2)
    one = f'[{{"profile": "1g.18gb", "uuid": "{uuid_of(N1, 1)}"}}, {{"profile": "1g.18gb", "uuid": "MIG-a"}}]'
    forged = claims(N2, uuid_of(N1, 0), "GPU-own")
    elements = forged["spec"]["features"]["instances"]
    (cards,) = elements.values()
    cards["elements"][1]["attributes"] |= {"mig.mode": "Enabled", "mig.instances": one}
    await stock.publish(forged)
    await stock.settle(N1, N2)
    nameless, cut = await stock.card(SECOND), await stock.card("n2-0000-18-00.0")
    assert (nameless.status.uuid, cut.status.uuid) == ("", "GPU-own")
    assert instances_of(cut) == ["MIG-a"]
    assert all(usable(stock).values())


async def test_card_that_was_moved_gets_its_device_when_its_old_place_has_none(stock: Stocktaking):
    await stock.publish(gpu_feature(N2, 1, uuid=uuid_of(N1, 0)))
    await stock.settle(N1, N2)
    assert SECOND not in await stock.cards()
    assert await stock.controller.reconcile(N2) == REFUSED_AGAIN_S
    left = gpu_feature(N1, 2)
    del left["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"][0]
    await stock.publish(left)
    await stock.settle(N2, N1)
    assert await shown(stock) == {SECOND: uuid_of(N1, 0), "n1-0000-18-00.0": uuid_of(N1, 1)}
    assert condition(await stock.inventory(N2), "InventoryIncomplete")[0] == "False"


async def test_cards_that_two_nodes_exchanged_are_exchanged(stock: Stocktaking):
    await stock.publish(gpu_feature(N2, 1))
    await stock.settle(N1, N2)
    await stock.publish(gpu_feature(N2, 1, uuid=uuid_of(N1, 0)))
    await stock.publish(gpu_feature(N1, 1, uuid=uuid_of(N2, 0)))
    await stock.settle(N1, N2)
    assert await shown(stock) == {FIRST: uuid_of(N2, 0), SECOND: uuid_of(N1, 0)}


async def test_card_that_changed_its_slot_keeps_its_uuid(stock: Stocktaking):
    moved = gpu_feature(N1, 2, **{"pci.address": "00000000:42:00.0"})
    del moved["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"][1]
    await stock.publish(moved)
    await stock.settle(N1)
    assert await shown(stock) == {"n1-0000-42-00.0": uuid_of(N1, 0)}


async def test_uuid_that_a_device_made_by_hand_has_is_its_own(stock: Stocktaking):
    await stock.device_by_hand("mine", nodeName="n3", uuid="GPU-mine")
    await stock.publish(gpu_feature(N2, 1, uuid="GPU-mine"))
    await stock.settle(N1, N2)
    assert SECOND not in await stock.cards()
    await stock.client.delete(GPU_DEVICES, "mine")
    await stock.settle(N1, N2)
    assert (await stock.card(SECOND)).status.uuid == "GPU-mine"


async def test_of_two_nodes_that_tell_of_one_uuid_at_once_one_keeps_it(stock: Stocktaking):
    """Neither has seen the other's device when it makes its own: the later one goes again."""
    for node in (N1, N2):
        await stock.publish(gpu_feature(node, 3 if node == N1 else 1))
    await stock.settle(N1, N2)
    third = "n1-0000-19-00.0"
    for name in (third, SECOND):
        await stock.client.merge_patch(
            GPU_DEVICES, {"status": {"uuid": "GPU-both"}}, name=name, subresource="status"
        )
    for node in (N1, N2):
        count = 3 if node == N1 else 1
        feature = gpu_feature(node, count)
        elements = feature["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"]
        elements[-1]["attributes"]["uuid"] = "GPU-both"
        await stock.publish(feature)
    stock.events()
    await stock.observe()
    assert [name for name, is_usable in usable(stock).items() if not is_usable] == [SECOND]
    await stock.settle(N1, N2)
    assert SECOND not in await stock.cards()
    assert (await stock.card(third)).status.uuid == "GPU-both"
    told = [about for about, _ in duplicates_told(stock)]
    assert {f"GPUDevice/{third}", "GPUNodeInventory/n2"} <= set(told)


async def test_duplicate_in_a_pool_is_kept_while_its_node_tells_of_it(stock: Stocktaking):
    """Its pods are accounted on it; it is told, and goes with the claim."""
    feature = gpu_feature(N2, 1)
    await stock.publish(feature)
    await stock.settle(N1, N2)
    for name in (FIRST, SECOND):
        status = {"poolRef": {"name": "a"}, "uuid": uuid_of(N1, 0)}
        await stock.client.merge_patch(
            GPU_DEVICES, {"status": status}, name=name, subresource="status"
        )
    forged = gpu_feature(N2, 1, uuid=uuid_of(N1, 0))
    await stock.publish(forged)
    await stock.settle(N1, N2)
    assert usable(stock)[SECOND] is False
    told = dict(duplicates_told(stock))
    assert told[f"GPUDevice/{SECOND}"].startswith(f"{FIRST} had {uuid_of(N1, 0)} first")
    assert f"GPUDevice/{FIRST}" in told
    await stock.settle(N2, N1)
    assert duplicates_told(stock) == []
    await stock.withdraw(forged)
    await stock.settle(N1, N2)
    assert SECOND not in await stock.cards()
    assert usable(stock)[FIRST]


async def test_nodes_that_are_gone_have_no_uuid(stock: Stocktaking):
    await stock.publish(claims(N2, uuid_of(N1, 0)))
    await stock.settle(N1, N2)
    await stock.client.delete(NODES, N1)
    await stock.withdraw(gpu_feature(N1))
    await stock.settle(N1, N2)
    stock.time.seconds += 600
    await stock.settle(N1, N2)
    assert await shown(stock) == {SECOND: uuid_of(N1, 0)}
