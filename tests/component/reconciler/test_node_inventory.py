"""Devices and inventories of nodes: made of what sources tell, kept, and taken away."""

from collections.abc import AsyncIterator

import pytest

from api.names import DEVICE_NODE_ANNOTATION, DEVICE_NODE_LABEL, NodeName
from inventory.identity import node_digest
from kube.resources import GPU_DEVICES
from reconciler.runtime.expectations import SHOWN_WITHIN_S
from tests.component.reconciler.stocktaking import Stocktaking, a_stocktaking, condition
from tests.support.node_features import (
    address_of,
    agent_card,
    agent_feature,
    gfd_labels,
    gpu_feature,
    gpu_instance,
    rule_labels,
    uuid_of,
)

N1 = NodeName("n1")


@pytest.fixture
async def stock() -> AsyncIterator[Stocktaking]:
    async with a_stocktaking() as opened:
        await opened.add_node()
        yield opened


async def test_a_node_with_cards_gets_its_devices_and_its_inventory(stock: Stocktaking):
    await stock.label_all({**gfd_labels()})
    await stock.publish(gpu_feature("n1"))
    await stock.settle()
    assert list(await stock.cards()) == ["n1-0000-17-00.0", "n1-0000-18-00.0"]
    card = await stock.card("n1-0000-18-00.0")
    status = card.status
    assert status.inventory_id == "n1-0000:18:00.0"
    assert (status.node_name, status.uuid) == ("n1", uuid_of("n1", 1))
    assert (status.product, status.memory_mib) == ("NVIDIA-H200", 143771)
    assert (status.compute_capability, status.numa_node) == ("9.0", 0)
    assert (status.pci.vendor, status.pci.device, status.pci.class_) == ("10de", "2335", "0302")
    assert status.mig.capable
    assert condition(card, "Stale") == ("False", "Fresh", "")
    inventory = await stock.inventory()
    assert inventory.status.devices == ["n1-0000-17-00.0", "n1-0000-18-00.0"]
    assert inventory.status.driver.version == "570.86.15"
    assert condition(inventory, "InventoryIncomplete") == ("False", "Complete", "")
    assert condition(inventory, "ManagedDisabled")[0] == "False"


async def test_no_node_owns_devices_and_inventory(stock: Stocktaking):
    await stock.publish(gpu_feature("n1", 1))
    await stock.settle()
    card, inventory = await stock.card("n1-0000-17-00.0"), await stock.inventory()
    assert card.metadata.labels == {DEVICE_NODE_LABEL: node_digest(NodeName("n1"))}
    assert card.metadata.annotations == {DEVICE_NODE_ANNOTATION: "n1"}
    for holder in (card, inventory):
        assert holder.metadata.owner_references is None


async def test_a_settled_node_costs_no_write(stock: Stocktaking):
    """defect 11: a reconcile in the steady state makes zero writes."""
    await stock.publish(agent_feature("n1", [agent_card("n1", 0)], heartbeat=stock.now()))
    # Two writes for the device, two for the inventory.
    assert await stock.settle() == 4
    assert await stock.settle() == 0
    stock.restart()
    assert await stock.settle() == 0


async def test_a_heartbeat_costs_no_write(stock: Stocktaking):
    await stock.publish(agent_feature("n1", [agent_card("n1", 0)], heartbeat=stock.now()))
    await stock.settle()
    stock.time.seconds += 90
    await stock.publish(agent_feature("n1", [agent_card("n1", 0)], heartbeat=stock.now()))
    assert await stock.settle() == 0


async def test_nothing_is_written_twice_before_the_watch_shows_it(stock: Stocktaking):
    await stock.publish(gpu_feature("n1"))
    await stock.observe()
    stock.api.requests.clear()
    await stock.controller.reconcile(N1)
    assert len(stock.api.requests.writes()) == 6
    assert await stock.controller.reconcile(N1) == SHOWN_WITHIN_S
    assert len(stock.api.requests.writes()) == 6


async def test_links_lead_to_the_other_cards_of_the_node(stock: Stocktaking):
    cards = [agent_card("n1", number, of=3) for number in range(3)]
    await stock.publish(agent_feature("n1", cards, heartbeat=stock.now()))
    await stock.settle()
    links = (await stock.card("n1-0000-18-00.0")).status.links or []
    assert [(one.peer, one.type, one.count) for one in links] == [
        ("n1-0000:17:00.0", "NVLink", 18),
        ("n1-0000:19:00.0", "NVLink", 18),
    ]


async def test_a_pulled_card_goes_and_the_others_keep_everything(stock: Stocktaking):
    """defect 9: pull a card: its object goes, the other cards keep name, uuid and pool."""
    await stock.label_all({**rule_labels(3)})
    await stock.publish(gpu_feature("n1", 3))
    await stock.settle()
    await stock.client.merge_patch(
        GPU_DEVICES,
        {"status": {"poolRef": {"name": "a"}}},
        name="n1-0000-19-00.0",
        subresource="status",
    )
    before = await stock.cards()
    stock.events()
    left = gpu_feature("n1", 3)
    del left["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"][1]
    await stock.publish(left)
    labels = dict.fromkeys(rule_labels(3))
    await stock.label_all({**labels, **rule_labels(2)})
    await stock.settle()
    after = await stock.cards()
    assert before.keys() - after.keys() == {"n1-0000-18-00.0"}
    for name, card in after.items():
        assert card.metadata.uid == before[name].metadata.uid
        assert card.status == before[name].status
    assert (await stock.inventory()).status.devices == sorted(after)
    ((regarding, reason, note),) = stock.events()
    assert (regarding, reason) == ("Node/n1", "GPUDeviceRemoved")
    assert "n1-0000-18-00.0" in note
    assert uuid_of("n1", 1) in note


async def test_a_card_that_fell_off_the_bus_unseen_by_nvml_is_kept_and_stale(stock: Stocktaking):
    await stock.label_all({**rule_labels(2)})
    await stock.publish(gpu_feature("n1", 2))
    await stock.settle()
    await stock.publish(gpu_feature("n1", 1))
    await stock.settle()
    assert len(await stock.cards()) == 2
    lost = await stock.card("n1-0000-18-00.0")
    assert condition(lost, "Stale")[:2] == ("True", "SourceSilent")
    assert condition(await stock.card("n1-0000-17-00.0"), "Stale")[0] == "False"


async def test_a_swapped_card_is_a_new_device(stock: Stocktaking):
    await stock.publish(gpu_feature("n1", 2))
    await stock.settle()
    before = await stock.cards()
    swapped = gpu_feature("n1", 2)
    cards = swapped["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"]
    cards[0] = {"attributes": gpu_instance("n1", 0, uuid="GPU-another", product="NVIDIA H100 PCIe")}
    await stock.publish(swapped)
    await stock.settle()
    after = await stock.cards()
    assert after.keys() == before.keys()
    new, old = after["n1-0000-17-00.0"], before["n1-0000-17-00.0"]
    assert new.metadata.uid != old.metadata.uid
    assert (new.status.uuid, new.status.product) == ("GPU-another", "NVIDIA-H100-PCIe")
    assert after["n1-0000-18-00.0"].metadata.uid == before["n1-0000-18-00.0"].metadata.uid


async def test_mig_instances_are_those_of_each_card(stock: Stocktaking):
    """defect 5: node-wide counts never become a card's: capacity is the sum of real instances."""
    one = '[{"profile": "1g.18gb", "uuid": "MIG-a"}, {"profile": "1g.18gb", "uuid": "MIG-b"}]'
    cards = [
        agent_card("n1", 0) | {"mig.mode": "Enabled", "mig.instances": one},
        agent_card("n1", 1),
    ]
    await stock.label_all({**gfd_labels(2, **{"nvidia.com/mig-1g.18gb.count": "2"})})
    await stock.publish(agent_feature("n1", cards, heartbeat=stock.now()))
    await stock.settle()
    first, second = (await stock.cards()).values()
    assert [i.uuid for i in first.status.mig.instances or ()] == ["MIG-a", "MIG-b"]
    assert second.status.mig.instances is None
    assert (first.status.mig.mode, second.status.mig.mode) == ("Enabled", "Disabled")


async def test_labels_without_addresses_make_no_device_and_say_what_is_missing(stock: Stocktaking):
    """defect 9: the number that a label gives a card is no identity."""
    await stock.label_all({**rule_labels(2), **gfd_labels(2)})
    await stock.settle()
    assert await stock.cards() == {}
    status, reason, message = condition(await stock.inventory(), "InventoryIncomplete")
    assert (status, reason) == ("True", "AddressesMissing")
    assert "device.00, device.01" in message
    await stock.publish(gpu_feature("n1"))
    await stock.settle()
    assert len(await stock.cards()) == 2
    assert condition(await stock.inventory(), "InventoryIncomplete")[0] == "False"


async def test_a_node_that_opts_out_keeps_its_devices_unmanaged(stock: Stocktaking):
    await stock.publish(gpu_feature("n1", 1))
    await stock.settle()
    await stock.label_all({"gpu.deckhouse.io/enabled": "False"})
    await stock.settle()
    assert not (await stock.card("n1-0000-17-00.0")).status.managed
    inventory = await stock.inventory()
    assert not inventory.status.managed
    assert condition(inventory, "ManagedDisabled")[:2] == ("True", "DisabledByLabel")
    await stock.label_all({"gpu.deckhouse.io/enabled": None})
    await stock.settle()
    assert (await stock.card("n1-0000-17-00.0")).status.managed


async def test_a_node_without_cards_gets_nothing(stock: Stocktaking):
    await stock.label_all({"zone": "a", "nvidia.com/gpu.deploy.driver": "true"})
    assert await stock.settle() == 0


async def test_devices_made_by_hand_are_left_alone(stock: Stocktaking):
    await stock.device_by_hand("mine", nodeName="n1", uuid=uuid_of("n1", 0))
    assert await stock.settle() == 0
    await stock.publish(gpu_feature("n1", 2))
    await stock.settle()
    assert set(await stock.cards()) == {"mine", "n1-0000-18-00.0"}
    assert (await stock.inventory()).status.devices == ["mine", "n1-0000-18-00.0"]


async def test_a_device_left_without_its_status_gets_it(stock: Stocktaking):
    """A crash between the two writes that make a device."""
    await stock.publish(gpu_feature("n1", 1))
    stock.api.faults.fail("PATCH", "/gpudevices/.*/status$", status=500, times=1)
    await stock.observe()
    with pytest.raises(Exception, match="500"):
        await stock.controller.reconcile(N1)
    assert (await stock.card("n1-0000-17-00.0")).status.node_name == ""
    stock.restart()
    await stock.settle()
    assert (await stock.card("n1-0000-17-00.0")).status.uuid == uuid_of("n1", 0)


async def test_a_device_left_without_its_status_whose_card_was_pulled_meanwhile_goes(
    stock: Stocktaking,
):
    await stock.publish(gpu_feature("n1", 1))
    stock.api.faults.fail("PATCH", "/gpudevices/.*/status$", status=500, times=1)
    await stock.observe()
    with pytest.raises(Exception, match="500"):
        await stock.controller.reconcile(N1)
    stock.restart()
    await stock.publish(gpu_feature("n1", 0))
    await stock.settle()
    assert await stock.cards() == {}


async def test_long_node_names_give_distinct_devices(stock: Stocktaking):
    """defect 9: 200-character node names give distinct, valid names."""
    names = ["a" * 199 + last for last in "bc"]
    for name in names:
        await stock.add_node(name)
        feature = gpu_feature(name, 2, uuid="")
        # A label's value is shorter: NFD names the object after the node.
        feature["metadata"] |= {"labels": {}, "name": name}
        await stock.publish(feature)
    await stock.settle(*names)
    cards = await stock.cards()
    assert len(cards) == 4
    assert {one.status.node_name for one in cards.values()} == set(names)
    assert {one.status.pci.address for one in cards.values()} == {address_of(0), address_of(1)}
