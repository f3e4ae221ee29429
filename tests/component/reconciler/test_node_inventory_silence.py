"""Sources that go silent, contradict each other, or make no sense: what is known stays, and people hear once."""

import json
from collections.abc import AsyncIterator

import pytest

from api.kinds.gpudevice import GPUDevice, Link
from inventory.discovery.node import DEFAULT_GONE_FOR
from kube.resources import NODES
from telemetry.metrics import REGISTRY
from tests.component.reconciler.inventory_run import InventoryRun, an_inventory_run, condition
from tests.support.node_features import (
    address_of,
    agent_device,
    agent_feature,
    gfd_labels,
    gpu_feature,
    rule_labels,
)

DEVICE = "n1-0000-17-00.0"


@pytest.fixture
async def world() -> AsyncIterator[InventoryRun]:
    async with an_inventory_run() as opened:
        await opened.add_node()
        yield opened


def facts(device: GPUDevice) -> object:
    """The status without its conditions."""
    return {
        field: getattr(device.status, field)
        for field in device.status.__struct_fields__
        if field != "conditions"
    }


def bad_features(source: str) -> float:
    return REGISTRY.get_sample_value("gpu_inventory_bad_features_total", {"source": source}) or 0.0


async def test_an_outage_of_every_source_changes_no_fact(world: InventoryRun):
    """Lesson 2: uuid, address, product and MIG stay as they are, and are marked stale."""
    await world.label_all({**rule_labels(1), **gfd_labels(1)})
    feature = gpu_feature("n1", 1)
    await world.publish(feature)
    await world.until_stable()
    before = facts(await world.gpu(DEVICE))
    world.events()
    await world.withdraw(feature)
    await world.label_all(dict.fromkeys({**rule_labels(1), **gfd_labels(1)}))
    await world.until_stable()
    device = await world.gpu(DEVICE)
    assert facts(device) == before
    assert condition(device, "Stale")[:2] == ("True", "SourceSilent")
    ((regarding, reason, note),) = world.events()
    assert (regarding, reason) == ("GPUNodeInventory/n1", "GPUSourceSilent")
    assert DEVICE in note
    world.restart()
    assert await world.until_stable() == 0
    assert world.events() == []
    await world.publish(feature)
    await world.until_stable()
    assert facts(await world.gpu(DEVICE)) == before
    assert condition(await world.gpu(DEVICE), "Stale")[:2] == ("False", "Fresh")


async def test_labels_that_vanish_leave_what_they_said_and_name_it(world: InventoryRun):
    """Lesson 2: what only a label told stays, though the device itself is still listed."""
    feature = gpu_feature("n1", 1, **{"pci.device": "2999"})
    (element,) = feature["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"]
    for key in ("product", "memory.total", "compute.major"):
        del element["attributes"][key]
    await world.label_all({**gfd_labels(1)})
    await world.publish(feature)
    await world.until_stable()
    before = facts(await world.gpu(DEVICE))
    await world.label_all(dict.fromkeys(gfd_labels(1)))
    await world.until_stable()
    device = await world.gpu(DEVICE)
    assert facts(device) == before
    status, _, message = condition(device, "Stale")
    assert status == "True"
    assert "computeCapability, memoryMiB, product" in message


async def test_a_heartbeat_that_stops_marks_stale_and_one_that_comes_back_does_not(
    world: InventoryRun,
):
    devices = [agent_device("n1", 0)]
    await world.publish(agent_feature("n1", devices, heartbeat=world.now()))
    await world.until_stable()
    before = facts(await world.gpu(DEVICE))
    last = world.now()
    world.time.seconds += 119
    assert await world.until_stable() == 0
    world.time.seconds += 2
    await world.until_stable()
    device = await world.gpu(DEVICE)
    assert facts(device) == before
    assert condition(device, "Stale")[0] == "True"
    assert (await world.inventory()).status.last_heartbeat == last.strftime("%Y-%m-%dT%H:%M:%SZ")
    reported: list[str] = []
    with world.features.changes.subscribed(reported.append):
        await world.publish(agent_feature("n1", devices, heartbeat=world.now()))
        await world.observe_features()
    assert reported == ["n1"]
    await world.until_stable()
    assert condition(await world.gpu(DEVICE), "Stale")[0] == "False"


async def test_a_silent_agent_proves_no_device_gone(world: InventoryRun):
    devices = [agent_device("n1", number) for number in range(2)]
    await world.publish(agent_feature("n1", devices, heartbeat=world.now()))
    await world.until_stable()
    await world.publish(agent_feature("n1", devices[:1], heartbeat=world.now()))
    world.time.seconds += 121
    await world.until_stable()
    assert len(await world.gpus()) == 2
    await world.publish(agent_feature("n1", devices[:1], heartbeat=world.now()))
    await world.until_stable()
    assert list(await world.gpus()) == [DEVICE]


async def test_a_silent_agent_swaps_no_device(world: InventoryRun):
    await world.publish(gpu_feature("n1", 1))
    await world.until_stable()
    before = await world.gpu(DEVICE)
    old = agent_feature(
        "n1", [agent_device("n1", 0) | {"uuid": "GPU-before"}], heartbeat=world.now()
    )
    world.time.seconds += 500
    await world.publish(old)
    await world.publish(gpu_feature("n1", 1, uuid=""))
    await world.until_stable()
    after = await world.gpu(DEVICE)
    assert after.metadata.uid == before.metadata.uid
    assert after.status.uuid == before.status.uuid


async def test_a_second_source_of_the_same_device_changes_nothing_when_the_first_goes(
    world: InventoryRun,
):
    """Lesson 2: three spellings of a product and two of a size, one device."""
    agent = agent_feature(
        "n1",
        [agent_device("n1", 0) | {"product": "NVIDIA H200", "memory.mib": "143771"}],
        heartbeat=world.now(),
    )
    await world.label_all({**gfd_labels(1)})
    await world.publish(agent)
    await world.publish(gpu_feature("n1", 1))
    await world.until_stable()
    before = facts(await world.gpu(DEVICE))
    await world.withdraw(agent)
    await world.publish(
        gpu_feature("n1", 1, **{"product": "GH100 [H200]", "memory.total": "140 GiB"})
    )
    await world.until_stable()
    assert facts(await world.gpu(DEVICE)) == before


async def test_garbage_is_skipped_and_told_once_with_its_name(world: InventoryRun):
    before = bad_features("node-labels"), bad_features("agent")
    await world.label_all({**gfd_labels(1), "nvidia.com/gpu.memory": "a-lot"})
    device = agent_device("n1", 0) | {"links": "[{]", "mig.instances": "x", "numa.node": "left"}
    await world.publish(agent_feature("n1", [device], heartbeat=world.now()))
    await world.until_stable()
    reported = [
        (about, note) for about, reason, note in world.events() if reason == "GPUBadFeature"
    ]
    ((about, note),) = reported
    assert about == "GPUNodeInventory/n1"
    assert "nvidia.com/gpu.memory='a-lot'" in note
    assert "[0].links='[{]'" in note
    assert bad_features("node-labels") == before[0] + 1
    assert bad_features("agent") == before[1] + 3
    assert (await world.gpu(DEVICE)).status.memory_mib == 143771
    await world.label_all({"zone": "b"})
    await world.until_stable()
    assert world.events() == []
    await world.label_all({"nvidia.com/gpu.compute.major": "nine"})
    await world.until_stable()
    ((_, reason, note),) = world.events()
    assert reason == "GPUBadFeature"
    assert "a-lot" not in note


async def test_devices_that_contradict_each_other_about_their_links_are_told_once(
    world: InventoryRun,
):
    def linked(number: int, to: int, **more: int) -> dict[str, str]:
        link = {"peer": address_of(to), "type": "NVLink", **more}
        return agent_device("n1", number) | {"links": json.dumps([link])}

    devices = [linked(0, 1, count=4), linked(1, 0, count=2), linked(2, 0, count=4)]
    for _ in range(2):
        await world.publish(agent_feature("n1", devices, heartbeat=world.now()))
        await world.until_stable()
    reported = [
        (about, note) for about, reason, note in world.events() if reason == "GPUContradictoryLinks"
    ]
    ((about, note),) = reported
    assert about == "GPUNodeInventory/n1"
    assert "n1-0000-17-00.0 reports NVLink x4 to n1-0000-18-00.0, which reports NVLink x2" in note
    assert "n1-0000-19-00.0 reports NVLink x4 to n1-0000-17-00.0, which reports none" in note
    links = (await world.gpu(DEVICE)).status.links
    assert links == [Link(peer="n1-0000:18:00.0", type="NVLink", count=4)], "as it was reported"


async def test_a_half_written_feature_takes_no_device_away(world: InventoryRun):
    await world.publish(gpu_feature("n1", 2))
    await world.until_stable()
    half = gpu_feature("n1", 2)
    elements = half["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"]
    del elements[1]["attributes"]["pci.address"]
    await world.publish(half)
    await world.until_stable()
    assert len(await world.gpus()) == 2
    assert condition(await world.gpu("n1-0000-18-00.0"), "Stale")[0] == "True"


async def test_a_new_device_is_told_on_its_device_and_a_whole_node_on_its_inventory(
    world: InventoryRun,
):
    await world.publish(gpu_feature("n1", 4))
    await world.until_stable()
    ((about, reason, note),) = world.events()
    assert (about, reason) == ("GPUNodeInventory/n1", "GPUDeviceDetected")
    assert note.startswith("found 4 devices: ")
    await world.publish(gpu_feature("n1", 5))
    await world.until_stable()
    ((about, reason, note),) = world.events()
    assert (about, reason) == ("GPUDevice/n1-0000-1b-00.0", "GPUDeviceDetected")
    assert note == "found NVIDIA-H200 at 0000:1b:00.0"


async def test_gauges_follow_the_node_and_go_with_it(world: InventoryRun):
    def gauge(name: str, **labels: str) -> float | None:
        return REGISTRY.get_sample_value(name, {"node": "n1", **labels})

    await world.publish(gpu_feature("n1", 2))
    await world.until_stable()
    assert gauge("gpu_inventory_devices_total") == 2
    assert gauge("gpu_inventory_devices_state", state="Unassigned") == 2
    assert gauge("gpu_node_inventory_condition", condition="InventoryIncomplete") == 0
    await world.withdraw(gpu_feature("n1"))
    await world.until_stable()
    assert REGISTRY.get_sample_value("gpu_device_stale_total") == 2
    await world.client.delete(NODES, "n1")
    await world.until_stable()
    world.time.seconds += DEFAULT_GONE_FOR.total_seconds()
    await world.until_stable()
    assert gauge("gpu_inventory_devices_total") is None
    assert gauge("gpu_inventory_devices_state", state="Unassigned") is None
    assert gauge("gpu_node_inventory_condition", condition="InventoryIncomplete") is None
    assert REGISTRY.get_sample_value("gpu_device_stale_total") == 0


async def test_who_does_not_lead_shows_no_node(world: InventoryRun):
    await world.publish(gpu_feature("n1", 1))
    await world.until_stable()
    world.controller.forget_all()
    assert REGISTRY.get_sample_value("gpu_inventory_devices_total", {"node": "n1"}) is None


async def test_all_features_of_a_node_count(world: InventoryRun):
    """Not one of them: devices of one, labels of another."""
    one = gpu_feature("n1", 1)
    other = gpu_feature("n1", 2)
    other["metadata"]["name"] = "another"
    other["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"].pop(0)
    other["spec"]["labels"] = {"nvidia.com/cuda.driver-version.full": "550.1"}
    await world.publish(one)
    await world.publish(other)
    await world.until_stable()
    assert len(await world.gpus()) == 2
    assert (await world.inventory()).status.driver.version == "550.1"
