"""Nodes that go: what was made for them stays for a grace, and for good where the node comes back."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.names import API_VERSION, ASSIGNMENT_ANNOTATION, DEVICE_NODE_LABEL, NodeName
from inventory.discovery.node import DEFAULT_GONE_FOR
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES, NODES
from tests.component.reconciler.stocktaking import Stocktaking, a_stocktaking
from tests.support.node_features import gpu_feature

N1 = NodeName("n1")
CARD = "n1-0000-17-00.0"
GRACE_S = DEFAULT_GONE_FOR.total_seconds()


@pytest.fixture
async def stock() -> AsyncIterator[Stocktaking]:
    async with a_stocktaking() as opened:
        await opened.add_node()
        yield opened


async def taken_in(stock: Stocktaking) -> None:
    await stock.publish(gpu_feature("n1"))
    await stock.settle()


async def inventories(stock: Stocktaking) -> list[str]:
    listed = await stock.client.list_(GPU_NODE_INVENTORIES, dict[str, Any])
    return [one["metadata"]["name"] for one in listed.items]


async def test_node_that_is_gone_takes_its_devices_with_it_after_a_grace(stock: Stocktaking):
    await taken_in(stock)
    await stock.device_by_hand("mine", nodeName="n1")
    await stock.client.delete(NODES, "n1")
    await stock.observe()
    assert await stock.controller.reconcile(N1) == GRACE_S
    stock.time.seconds += GRACE_S - 1
    assert await stock.settle() == 0
    assert len(await stock.cards()) == 3
    stock.time.seconds += 1
    await stock.settle()
    assert set(await stock.cards()) == {"mine"}
    assert await inventories(stock) == []


async def test_node_that_went_while_nobody_looked_takes_its_devices_with_it(stock: Stocktaking):
    await taken_in(stock)
    await stock.client.delete(NODES, "n1")
    stock.restart()
    assert await stock.settle() == 0
    stock.time.seconds += GRACE_S
    await stock.settle()
    assert await stock.cards() == {}
    assert await inventories(stock) == []


async def test_node_that_is_made_again_keeps_its_devices(stock: Stocktaking):
    await taken_in(stock)
    patch = {
        "metadata": {"annotations": {ASSIGNMENT_ANNOTATION: "a"}},
    }
    await stock.client.merge_patch(GPU_DEVICES, patch, name=CARD)
    before = await stock.cards()
    await stock.client.delete(NODES, "n1")
    await stock.settle()
    stock.time.seconds += GRACE_S - 1
    await stock.add_node()
    await stock.settle()
    stock.time.seconds += GRACE_S
    assert await stock.settle() == 0
    after = await stock.cards()
    uids = {name: one.metadata.uid for name, one in before.items()}
    assert {name: one.metadata.uid for name, one in after.items()} == uids
    assert after[CARD].assignment == "a"
    assert all(one.metadata.owner_references is None for one in after.values())


async def test_grace_begins_anew_when_the_node_goes_again(stock: Stocktaking):
    await taken_in(stock)
    for _ in range(2):
        await stock.client.delete(NODES, "n1")
        await stock.settle()
        stock.time.seconds += GRACE_S - 1
        assert await stock.settle() == 0
        await stock.add_node()
        await stock.settle()
    assert len(await stock.cards()) == 2


async def test_node_that_only_we_cannot_see_keeps_its_devices(stock: Stocktaking):
    """As one whose object cannot be decoded: no card of it was pulled."""
    await taken_in(stock)
    stock.nodes.replace_all([])
    stock.api.requests.clear()
    assert await stock.controller.reconcile(N1) == GRACE_S
    stock.time.seconds += GRACE_S
    assert await stock.controller.reconcile(N1) is None
    assert stock.api.requests.writes() == []
    assert len(await stock.cards()) == 2


async def test_objects_that_a_node_owns_are_taken_from_it(stock: Stocktaking):
    """As earlier versions made them; owners that others wrote stay."""
    node = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-of-another-life"}
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "mine", "uid": "uid-mine"}
    for resource, name in ((GPU_DEVICES, CARD), (GPU_NODE_INVENTORIES, "n1")):
        metadata = {
            "name": name,
            "labels": {DEVICE_NODE_LABEL: "x"},
            "ownerReferences": [other, node],
        }
        body = {"apiVersion": API_VERSION, "kind": resource.kind, "metadata": metadata}
        await stock.client.create(resource, body)
    await taken_in(stock)
    for holder in (await stock.card(CARD), await stock.inventory()):
        owners = [(one.kind, one.name) for one in holder.metadata.owner_references or ()]
        assert owners == [("ConfigMap", "mine")]
    assert await stock.settle() == 0
