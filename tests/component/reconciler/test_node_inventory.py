"""Devices and inventories of nodes: made of what sources tell, kept, and taken away."""

from collections.abc import AsyncIterator

import pytest

from api.names import API_VERSION, DEVICE_NODE_ANNOTATION, DEVICE_NODE_LABEL, NodeName
from inventory.identity import inventory_id, node_digest
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES
from reconciler.runtime.expectations import SEEN_WITHIN_S
from tests.component.reconciler.inventory_run import InventoryRun, an_inventory_run, condition
from tests.support.node_features import (
    address_of,
    agent_device,
    agent_feature,
    gfd_labels,
    gpu_feature,
    gpu_instance,
    rule_labels,
    uuid_of,
)

N1 = NodeName("n1")


@pytest.fixture
async def world() -> AsyncIterator[InventoryRun]:
    async with an_inventory_run() as opened:
        await opened.add_node()
        yield opened


async def test_a_node_with_devices_gets_its_devices_and_its_inventory(world: InventoryRun):
    await world.label_all({**gfd_labels()})
    await world.publish(gpu_feature("n1"))
    await world.until_stable()
    assert list(await world.gpus()) == ["n1-0000-17-00.0", "n1-0000-18-00.0"]
    device = await world.gpu("n1-0000-18-00.0")
    status = device.status
    assert status.inventory_id == "n1-0000:18:00.0"
    assert (status.node_name, status.uuid) == ("n1", uuid_of("n1", 1))
    assert (status.product, status.memory_mib) == ("NVIDIA-H200", 143771)
    assert (status.compute_capability, status.numa_node) == ("9.0", 0)
    assert (status.pci.vendor, status.pci.device, status.pci.class_) == ("10de", "2335", "0302")
    assert status.mig.capable
    assert condition(device, "Stale") == ("False", "Fresh", "the sources of its facts report")
    inventory = await world.inventory()
    assert inventory.status.devices == ["n1-0000-17-00.0", "n1-0000-18-00.0"]
    assert inventory.status.driver.version == "570.86.15"
    complete = "every device is reported completely"
    assert condition(inventory, "InventoryIncomplete") == ("False", "Complete", complete)
    assert condition(inventory, "ManagedDisabled")[0] == "False"


async def test_the_condition_that_matters_most_is_the_first_one_from_the_start(
    world: InventoryRun,
):
    await world.publish(gpu_feature("n1", 1))
    await world.until_stable()
    conditions = (await world.inventory()).status.conditions or []
    types = ["ReadyForPooling", "ManagedDisabled", "InventoryIncomplete"]
    assert [item.type for item in conditions] == types
    assert (conditions[0].status, conditions[0].reason) == ("Unknown", "Validating")

    judged = {"status": "True", "reason": "Ready", "message": "ready"}
    after = [
        {"type": type_, **judged, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for type_ in ("ReadyForPooling", "DriverMissing")
    ]
    body = {
        "apiVersion": API_VERSION,
        "kind": "GPUNodeInventory",
        "metadata": {"name": "n1"},
        "status": {"conditions": after},
    }
    await world.client.apply(
        GPU_NODE_INVENTORIES, body, field_manager="readiness", subresource="status"
    )
    # Another write of the inventory gives the condition up to its writer.
    await world.label_all({"gpu.deckhouse.io/enabled": "false"})
    await world.until_stable()
    conditions = (await world.inventory()).status.conditions or []
    assert [item.type for item in conditions] == [*types, "DriverMissing"]
    assert (conditions[0].status, conditions[0].reason) == ("True", "Ready")


async def test_a_device_that_a_virtual_machine_has_is_named_and_nothing_is_missing(
    world: InventoryRun,
):
    """KubeVirt: one device of the node is bound to vfio-pci; NVIDIA's driver would take it from its machine."""
    bound = {
        key: text
        for key, text in agent_device("n1", 1).items()
        if key.startswith("pci.") or key == "numa.node"
    }
    devices = [agent_device("n1", 0), bound | {"pci.driver": "vfio-pci"}]
    await world.publish(agent_feature("n1", devices, heartbeat=world.time.now().utc))
    await world.until_stable()
    status, reason, message = condition(await world.inventory(), "InventoryIncomplete")
    assert (status, reason) == ("False", "BoundToVFIO")
    assert "install or load" not in message
    assert message.startswith(f"{inventory_id(NodeName('n1'), bound['pci.address'])} is bound")


async def test_a_device_without_memory_of_its_own_is_complete(world: InventoryRun):
    """k8s-device-plugin#1482: GB10 shares the memory of its processor, and NVML reports none."""
    left_out = ("memory.mib", "mig.mode", "mig.profiles", "mig.instances")
    device = {key: text for key, text in agent_device("n1", 0).items() if key not in left_out}
    device |= {"product": "NVIDIA GB10", "mig.capable": "false"}
    await world.publish(agent_feature("n1", [device], heartbeat=world.time.now().utc))
    await world.until_stable()
    (found,) = (await world.gpus()).values()
    assert (found.status.product, found.status.memory_mib) == ("NVIDIA-GB10", 0)
    assert found.status.uuid == uuid_of("n1", 0)
    assert condition(await world.inventory(), "InventoryIncomplete")[:2] == ("False", "Complete")


async def test_no_node_owns_devices_and_inventory(world: InventoryRun):
    await world.publish(gpu_feature("n1", 1))
    await world.until_stable()
    device, inventory = await world.gpu("n1-0000-17-00.0"), await world.inventory()
    assert device.metadata.labels == {DEVICE_NODE_LABEL: node_digest(NodeName("n1"))}
    assert device.metadata.annotations == {DEVICE_NODE_ANNOTATION: "n1"}
    for holder in (device, inventory):
        assert holder.metadata.owner_references is None


async def test_a_settled_node_costs_no_write(world: InventoryRun):
    """Lesson 11: a reconcile in the steady state makes zero writes."""
    await world.publish(agent_feature("n1", [agent_device("n1", 0)], heartbeat=world.now()))
    # Two writes for the device, two for the inventory.
    assert await world.until_stable() == 4
    assert await world.until_stable() == 0
    world.restart()
    assert await world.until_stable() == 0


async def test_a_heartbeat_costs_no_write(world: InventoryRun):
    await world.publish(agent_feature("n1", [agent_device("n1", 0)], heartbeat=world.now()))
    await world.until_stable()
    world.time.seconds += 90
    await world.publish(agent_feature("n1", [agent_device("n1", 0)], heartbeat=world.now()))
    assert await world.until_stable() == 0


async def test_nothing_is_written_twice_before_the_watch_shows_it(world: InventoryRun):
    await world.publish(gpu_feature("n1"))
    await world.observe()
    world.api.requests.clear()
    await world.controller.reconcile(N1)
    assert len(world.api.requests.writes()) == 6
    assert await world.controller.reconcile(N1) == SEEN_WITHIN_S
    assert len(world.api.requests.writes()) == 6


async def test_links_lead_to_the_other_devices_of_the_node(world: InventoryRun):
    devices = [agent_device("n1", number, of=3) for number in range(3)]
    await world.publish(agent_feature("n1", devices, heartbeat=world.now()))
    await world.until_stable()
    links = (await world.gpu("n1-0000-18-00.0")).status.links or []
    assert [(link.peer, link.type, link.count) for link in links] == [
        ("n1-0000:17:00.0", "NVLink", 18),
        ("n1-0000:19:00.0", "NVLink", 18),
    ]


async def test_a_pulled_device_goes_and_the_others_keep_everything(world: InventoryRun):
    """Lesson 9: pull a device: its object goes, the other devices keep name, uuid and pool."""
    await world.label_all({**rule_labels(3)})
    await world.publish(gpu_feature("n1", 3))
    await world.until_stable()
    await world.client.merge_patch(
        GPU_DEVICES,
        {"status": {"poolRef": {"name": "a"}}},
        name="n1-0000-19-00.0",
        subresource="status",
    )
    before = await world.gpus()
    world.events()
    left = gpu_feature("n1", 3)
    del left["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"][1]
    await world.publish(left)
    labels = dict.fromkeys(rule_labels(3))
    await world.label_all({**labels, **rule_labels(2)})
    await world.until_stable()
    after = await world.gpus()
    assert before.keys() - after.keys() == {"n1-0000-18-00.0"}
    for name, device in after.items():
        assert device.metadata.uid == before[name].metadata.uid
        assert device.status == before[name].status
    assert (await world.inventory()).status.devices == sorted(after)
    ((regarding, reason, note),) = world.events()
    assert (regarding, reason) == ("Node/n1", "GPUDeviceRemoved")
    assert "n1-0000-18-00.0" in note
    assert uuid_of("n1", 1) in note


async def test_a_device_that_fell_off_the_bus_unseen_by_nvml_is_kept_and_stale(
    world: InventoryRun,
):
    await world.label_all({**rule_labels(2)})
    await world.publish(gpu_feature("n1", 2))
    await world.until_stable()
    await world.publish(gpu_feature("n1", 1))
    await world.until_stable()
    assert len(await world.gpus()) == 2
    lost = await world.gpu("n1-0000-18-00.0")
    assert condition(lost, "Stale")[:2] == ("True", "SourceSilent")
    assert condition(await world.gpu("n1-0000-17-00.0"), "Stale")[0] == "False"


async def test_a_swapped_device_is_a_new_device(world: InventoryRun):
    await world.publish(gpu_feature("n1", 2))
    await world.until_stable()
    before = await world.gpus()
    swapped = gpu_feature("n1", 2)
    devices = swapped["spec"]["features"]["instances"]["nvidia.com/gpu"]["elements"]
    devices[0] = {
        "attributes": gpu_instance("n1", 0, uuid="GPU-another", product="NVIDIA H100 PCIe")
    }
    await world.publish(swapped)
    await world.until_stable()
    after = await world.gpus()
    assert after.keys() == before.keys()
    new, old = after["n1-0000-17-00.0"], before["n1-0000-17-00.0"]
    assert new.metadata.uid != old.metadata.uid
    assert (new.status.uuid, new.status.product) == ("GPU-another", "NVIDIA-H100-PCIe")
    assert after["n1-0000-18-00.0"].metadata.uid == before["n1-0000-18-00.0"].metadata.uid


async def test_mig_instances_are_those_of_each_device(world: InventoryRun):
    """Lesson 5: node-wide counts never become a device's: capacity is the sum of real instances."""
    one = '[{"profile": "1g.18gb", "uuid": "MIG-a"}, {"profile": "1g.18gb", "uuid": "MIG-b"}]'
    devices = [
        agent_device("n1", 0) | {"mig.mode": "Enabled", "mig.instances": one},
        agent_device("n1", 1),
    ]
    await world.label_all({**gfd_labels(2, **{"nvidia.com/mig-1g.18gb.count": "2"})})
    await world.publish(agent_feature("n1", devices, heartbeat=world.now()))
    await world.until_stable()
    first, second = (await world.gpus()).values()
    assert [i.uuid for i in first.status.mig.instances or ()] == ["MIG-a", "MIG-b"]
    assert second.status.mig.instances is None
    assert (first.status.mig.mode, second.status.mig.mode) == ("Enabled", "Disabled")


async def test_labels_without_addresses_make_no_device_and_say_what_is_missing(
    world: InventoryRun,
):
    """Lesson 9: the number that a label gives a device is no identity."""
    await world.label_all({**rule_labels(2), **gfd_labels(2)})
    await world.until_stable()
    assert await world.gpus() == {}
    status, reason, message = condition(await world.inventory(), "InventoryIncomplete")
    assert (status, reason) == ("True", "AddressesMissing")
    assert "device.00, device.01" in message
    await world.publish(gpu_feature("n1"))
    await world.until_stable()
    assert len(await world.gpus()) == 2
    assert condition(await world.inventory(), "InventoryIncomplete")[0] == "False"
    (lost, _, _, regained) = world.events()
    assert lost[:2] == ("GPUNodeInventory/n1", "GPUInventoryIncomplete")
    assert "device.00, device.01" in lost[2]
    assert regained[1] == "GPUNodeRecovered"
    assert regained[2].startswith("InventoryIncomplete is False: ")


async def test_a_node_that_opts_out_keeps_its_devices_unmanaged(world: InventoryRun):
    feature = gpu_feature("n1", 1)
    await world.publish(feature)
    await world.until_stable()
    await world.label_all({"gpu.deckhouse.io/enabled": "False"})
    await world.until_stable()
    assert not (await world.gpu("n1-0000-17-00.0")).status.managed
    inventory = await world.inventory()
    assert not inventory.status.managed
    assert condition(inventory, "ManagedDisabled")[:2] == ("True", "DisabledByLabel")
    assert [reason for _, reason, _ in world.events()] == ["GPUDeviceDetected", "GPUNodeOptedOut"]
    await world.withdraw(feature)
    await world.until_stable()
    assert condition(await world.gpu("n1-0000-17-00.0"), "Stale")[0] == "True"
    assert world.events() == [], "the node agent left as it was asked to"
    await world.publish(feature)
    await world.label_all({"gpu.deckhouse.io/enabled": None})
    await world.until_stable()
    assert (await world.gpu("n1-0000-17-00.0")).status.managed


async def counts(world: InventoryRun) -> tuple[int, int]:
    found = (await world.inventory()).status.device_counts
    return found.total, found.faulted


async def test_devices_are_counted_and_those_that_report_a_fault(world: InventoryRun):
    await world.publish(gpu_feature("n1", 3))
    await world.until_stable()
    assert await counts(world) == (3, 0)
    for status, faulted in (("False", 1), ("True", 0)):
        health = {"type": "Healthy", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        body = {
            "apiVersion": API_VERSION,
            "kind": "GPUDevice",
            "metadata": {"name": "n1-0000-17-00.0"},
            "status": {"conditions": [{**health, "reason": "NodeReboot", "message": "Xid 79"}]},
        }
        await world.client.apply(GPU_DEVICES, body, field_manager="health", subresource="status")
        assert await world.until_stable() == 1
        assert await counts(world) == (3, faulted)
        assert await world.until_stable() == 0


async def test_a_node_without_devices_gets_nothing(world: InventoryRun):
    await world.label_all({"zone": "a", "nvidia.com/gpu.deploy.driver": "true"})
    assert await world.until_stable() == 0


async def test_devices_made_by_hand_are_left_alone(world: InventoryRun):
    await world.device_by_hand("mine", nodeName="n1", uuid=uuid_of("n1", 0))
    assert await world.until_stable() == 0
    await world.publish(gpu_feature("n1", 2))
    await world.until_stable()
    assert set(await world.gpus()) == {"mine", "n1-0000-18-00.0"}
    assert (await world.inventory()).status.devices == ["mine", "n1-0000-18-00.0"]


async def test_a_device_left_without_its_status_gets_it(world: InventoryRun):
    """A crash between the two writes that make a device."""
    await world.publish(gpu_feature("n1", 1))
    world.api.faults.fail("PATCH", "/gpudevices/.*/status$", status=500, times=1)
    await world.observe()
    with pytest.raises(Exception, match="500"):
        await world.controller.reconcile(N1)
    assert (await world.gpu("n1-0000-17-00.0")).status.node_name == ""
    world.restart()
    await world.until_stable()
    assert (await world.gpu("n1-0000-17-00.0")).status.uuid == uuid_of("n1", 0)


async def test_a_device_left_without_its_status_whose_device_was_pulled_meanwhile_goes(
    world: InventoryRun,
):
    await world.publish(gpu_feature("n1", 1))
    world.api.faults.fail("PATCH", "/gpudevices/.*/status$", status=500, times=1)
    await world.observe()
    with pytest.raises(Exception, match="500"):
        await world.controller.reconcile(N1)
    world.restart()
    await world.publish(gpu_feature("n1", 0))
    await world.until_stable()
    assert await world.gpus() == {}


async def test_long_node_names_give_distinct_devices(world: InventoryRun):
    """Lesson 9: 200-character node names give distinct, valid names."""
    names = ["a" * 199 + last for last in "bc"]
    for name in names:
        await world.add_node(name)
        feature = gpu_feature(name, 2, uuid="")
        # A label's value is shorter: NFD names the object after the node.
        feature["metadata"] |= {"labels": {}, "name": name}
        await world.publish(feature)
    await world.until_stable(*names)
    devices = await world.gpus()
    assert len(devices) == 4
    assert {device.status.node_name for device in devices.values()} == set(names)
    assert {device.status.pci.address for device in devices.values()} == {
        address_of(0),
        address_of(1),
    }
