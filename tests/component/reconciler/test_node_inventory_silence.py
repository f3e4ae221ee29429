"""Sources that go silent, contradict each other, or make no sense: what is known stays, and people hear once."""

from collections.abc import AsyncIterator

import pytest

from api.kinds.gpudevice import GPUDevice
from inventory.discovery.node import DEFAULT_GONE_FOR
from kube.resources import NODES
from telemetry.metrics import REGISTRY
from tests.component.reconciler.stocktaking import Stocktaking, a_stocktaking, condition
from tests.support.node_features import (
    agent_card,
    agent_feature,
    gfd_labels,
    gpu_feature,
    rule_labels,
)

CARD = "n1-0000-17-00.0"


@pytest.fixture
async def stock() -> AsyncIterator[Stocktaking]:
    async with a_stocktaking() as opened:
        await opened.add_node()
        yield opened


def facts(card: GPUDevice) -> object:
    """The status without its conditions."""
    return {
        field: getattr(card.status, field)
        for field in card.status.__struct_fields__
        if field != "conditions"
    }


def bad_features(source: str) -> float:
    return REGISTRY.get_sample_value("gpu_inventory_bad_features_total", {"source": source}) or 0.0


async def test_an_outage_of_every_source_changes_no_fact(stock: Stocktaking):
    """defect 2: uuid, address, product and MIG stay as they are, and are marked stale."""
    await stock.label_all({**rule_labels(1), **gfd_labels(1)})
    feature = gpu_feature("n1", 1)
    await stock.publish(feature)
    await stock.settle()
    before = facts(await stock.card(CARD))
    stock.events()
    await stock.withdraw(feature)
    await stock.label_all(dict.fromkeys({**rule_labels(1), **gfd_labels(1)}))
    await stock.settle()
    card = await stock.card(CARD)
    assert facts(card) == before
    assert condition(card, "Stale")[:2] == ("True", "SourceSilent")
    ((regarding, reason, note),) = stock.events()
    assert (regarding, reason) == ("GPUNodeInventory/n1", "GPUSourceSilent")
    assert CARD in note
    stock.restart()
    assert await stock.settle() == 0
    assert stock.events() == []
    await stock.publish(feature)
    await stock.settle()
    assert facts(await stock.card(CARD)) == before
    assert condition(await stock.card(CARD), "Stale") == ("False", "Fresh", "")


async def test_labels_that_vanish_leave_what_they_said_and_name_it(stock: Stocktaking):
    """defect 2: what only a label told stays, though the card itself is still listed."""
    feature = gpu_feature("n1", 1, **{"pci.device": "2999"})
    (element,) = feature["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"]
    for key in ("product", "memory.total", "compute.major"):
        del element["attributes"][key]
    await stock.label_all({**gfd_labels(1)})
    await stock.publish(feature)
    await stock.settle()
    before = facts(await stock.card(CARD))
    await stock.label_all(dict.fromkeys(gfd_labels(1)))
    await stock.settle()
    card = await stock.card(CARD)
    assert facts(card) == before
    status, _, message = condition(card, "Stale")
    assert status == "True"
    assert "computeCapability, memoryMiB, product" in message


async def test_a_heartbeat_that_stops_marks_stale_and_one_that_comes_back_does_not(
    stock: Stocktaking,
):
    cards = [agent_card("n1", 0)]
    await stock.publish(agent_feature("n1", cards, heartbeat=stock.now()))
    await stock.settle()
    before = facts(await stock.card(CARD))
    last = stock.now()
    stock.time.seconds += 119
    assert await stock.settle() == 0
    stock.time.seconds += 2
    await stock.settle()
    card = await stock.card(CARD)
    assert facts(card) == before
    assert condition(card, "Stale")[0] == "True"
    assert (await stock.inventory()).status.last_heartbeat == last.strftime("%Y-%m-%dT%H:%M:%SZ")
    told: list[str] = []
    with stock.features.listeners.told(told.append):
        await stock.publish(agent_feature("n1", cards, heartbeat=stock.now()))
        await stock.observe_features()
    assert told == ["n1"]
    await stock.settle()
    assert condition(await stock.card(CARD), "Stale")[0] == "False"


async def test_a_silent_agent_proves_no_card_gone(stock: Stocktaking):
    cards = [agent_card("n1", number) for number in range(2)]
    await stock.publish(agent_feature("n1", cards, heartbeat=stock.now()))
    await stock.settle()
    await stock.publish(agent_feature("n1", cards[:1], heartbeat=stock.now()))
    stock.time.seconds += 121
    await stock.settle()
    assert len(await stock.cards()) == 2
    await stock.publish(agent_feature("n1", cards[:1], heartbeat=stock.now()))
    await stock.settle()
    assert list(await stock.cards()) == [CARD]


async def test_a_silent_agent_swaps_no_card(stock: Stocktaking):
    await stock.publish(gpu_feature("n1", 1))
    await stock.settle()
    before = await stock.card(CARD)
    old = agent_feature("n1", [agent_card("n1", 0) | {"uuid": "GPU-before"}], heartbeat=stock.now())
    stock.time.seconds += 500
    await stock.publish(old)
    await stock.publish(gpu_feature("n1", 1, uuid=""))
    await stock.settle()
    after = await stock.card(CARD)
    assert after.metadata.uid == before.metadata.uid
    assert after.status.uuid == before.status.uuid


async def test_a_second_source_of_the_same_card_changes_nothing_when_the_first_goes(
    stock: Stocktaking,
):
    """defect 2: three spellings of a product and two of a size, one device."""
    agent = agent_feature(
        "n1",
        [agent_card("n1", 0) | {"product": "NVIDIA H200", "memory.mib": "143771"}],
        heartbeat=stock.now(),
    )
    await stock.label_all({**gfd_labels(1)})
    await stock.publish(agent)
    await stock.publish(gpu_feature("n1", 1))
    await stock.settle()
    before = facts(await stock.card(CARD))
    await stock.withdraw(agent)
    await stock.publish(
        gpu_feature("n1", 1, **{"product": "GH100 [H200]", "memory.total": "140 GiB"})
    )
    await stock.settle()
    assert facts(await stock.card(CARD)) == before


async def test_garbage_is_skipped_and_told_once_with_its_name(stock: Stocktaking):
    before = bad_features("node-labels"), bad_features("agent")
    await stock.label_all({**gfd_labels(1), "nvidia.com/gpu.memory": "a-lot"})
    card = agent_card("n1", 0) | {"links": "[{]", "mig.instances": "x", "numa.node": "left"}
    await stock.publish(agent_feature("n1", [card], heartbeat=stock.now()))
    await stock.settle()
    told = [(about, note) for about, reason, note in stock.events() if reason == "GPUBadFeature"]
    ((about, note),) = told
    assert about == "GPUNodeInventory/n1"
    assert "nvidia.com/gpu.memory='a-lot'" in note
    assert "[0].links='[{]'" in note
    assert bad_features("node-labels") == before[0] + 1
    assert bad_features("agent") == before[1] + 3
    assert (await stock.card(CARD)).status.memory_mib == 143771
    await stock.label_all({"zone": "b"})
    await stock.settle()
    assert stock.events() == []
    await stock.label_all({"nvidia.com/gpu.compute.major": "nine"})
    await stock.settle()
    ((_, reason, note),) = stock.events()
    assert reason == "GPUBadFeature"
    assert "a-lot" not in note


async def test_a_half_written_feature_takes_no_card_away(stock: Stocktaking):
    await stock.publish(gpu_feature("n1", 2))
    await stock.settle()
    half = gpu_feature("n1", 2)
    elements = half["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"]
    del elements[1]["attributes"]["pci.address"]
    await stock.publish(half)
    await stock.settle()
    assert len(await stock.cards()) == 2
    assert condition(await stock.card("n1-0000-18-00.0"), "Stale")[0] == "True"


async def test_a_new_card_is_told_on_its_device_and_a_whole_node_on_its_inventory(
    stock: Stocktaking,
):
    await stock.publish(gpu_feature("n1", 4))
    await stock.settle()
    ((about, reason, note),) = stock.events()
    assert (about, reason) == ("GPUNodeInventory/n1", "GPUDeviceDetected")
    assert note.startswith("found 4 devices: ")
    await stock.publish(gpu_feature("n1", 5))
    await stock.settle()
    ((about, reason, note),) = stock.events()
    assert (about, reason) == ("GPUDevice/n1-0000-1b-00.0", "GPUDeviceDetected")
    assert note == "found NVIDIA-H200 at 0000:1b:00.0"


async def test_gauges_follow_the_node_and_go_with_it(stock: Stocktaking):
    def gauge(name: str, **labels: str) -> float | None:
        return REGISTRY.get_sample_value(name, {"node": "n1", **labels})

    await stock.publish(gpu_feature("n1", 2))
    await stock.settle()
    assert gauge("gpu_inventory_devices_total") == 2
    assert gauge("gpu_inventory_devices_state", state="Unassigned") == 2
    assert gauge("gpu_node_inventory_condition", condition="InventoryIncomplete") == 0
    await stock.withdraw(gpu_feature("n1"))
    await stock.settle()
    assert REGISTRY.get_sample_value("gpu_device_stale_total") == 2
    await stock.client.delete(NODES, "n1")
    await stock.settle()
    stock.time.seconds += DEFAULT_GONE_FOR.total_seconds()
    await stock.settle()
    assert gauge("gpu_inventory_devices_total") is None
    assert gauge("gpu_inventory_devices_state", state="Unassigned") is None
    assert gauge("gpu_node_inventory_condition", condition="InventoryIncomplete") is None
    assert REGISTRY.get_sample_value("gpu_device_stale_total") == 0


async def test_who_does_not_lead_shows_no_node(stock: Stocktaking):
    await stock.publish(gpu_feature("n1", 1))
    await stock.settle()
    stock.controller.forget_all()
    assert REGISTRY.get_sample_value("gpu_inventory_devices_total", {"node": "n1"}) is None


async def test_all_features_of_a_node_count(stock: Stocktaking):
    """Not one of them: cards of one, labels of another."""
    one = gpu_feature("n1", 1)
    other = gpu_feature("n1", 2)
    other["metadata"]["name"] = "another"
    other["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"].pop(0)
    other["spec"]["labels"] = {"nvidia.com/cuda.driver-version.full": "550.1"}
    await stock.publish(one)
    await stock.publish(other)
    await stock.settle()
    assert len(await stock.cards()) == 2
    assert (await stock.inventory()).status.driver.version == "550.1"
