"""The devices of a node, put together from bus, driver and health; and read back by the control plane."""

from dataclasses import replace

import msgspec
import pytest

from agent.driver.device_files import DeviceFile, DeviceFiles
from agent.driver.port import DriverInstance, DriverLink, LinkType
from agent.health.states import HEALTHY, LOST, DeviceHealthState
from agent.inventory.node_devices import (
    NOT_REPORTED,
    DiscoveredNode,
    discovered_devices,
    last_uuids,
    node_devices,
    published_of,
)
from api.nodefiles.node_devices_file import NodeDevices
from inventory.discovery.parsing import MigPartition
from inventory.health.device import HealthReport
from tests.support.builders import EPOCH
from tests.support.device_health import XID_79
from tests.support.seen_devices import FIRST, SECOND, pci, read_back, said, snapshot

NO_FILES = DeviceFiles(by_uuid={}, shared=(), missing=())


def healthy(_uuid: str) -> DeviceHealthState:
    return HEALTHY


def test_bus_and_driver_make_one_device():
    devices = discovered_devices(DiscoveredNode(bus=(pci(),), snapshot=snapshot(said())), healthy)
    assert devices is not None
    reported = read_back(published_of(devices, snapshot(said())))
    (device,) = reported.agent.devices
    assert (device.address, device.uuid, device.device) == (FIRST, "GPU-1", "2335")
    assert (device.product, device.memory_mib, device.numa_node) == ("NVIDIA H200", 143771, 0)
    assert reported.report.health == {"GPU-1": HealthReport("Healthy")}
    assert (reported.report.versions.driver, reported.report.versions.cuda) == ("570.86.15", "12.8")
    assert reported.report.heartbeat == EPOCH


def test_without_a_driver_the_pci_facts_alone_are_published():
    discovered = DiscoveredNode(bus=(pci(),), snapshot=None, uuid_by_address={FIRST: "GPU-1"})
    devices = discovered_devices(discovered, lambda _: XID_79)
    assert devices is not None
    published = published_of(devices, None)
    assert set(published.devices[0]) == {
        "pci.address",
        "pci.vendor",
        "pci.device",
        "pci.class",
        "numa.node",
    }
    assert published.node == {}
    assert read_back(published).report.health == {}


def test_without_a_bus_the_drivers_facts_are_published():
    devices = discovered_devices(DiscoveredNode(bus=None, snapshot=snapshot(said())), healthy)
    assert devices is not None
    (device,) = read_back(published_of(devices, snapshot(said()))).agent.devices
    assert (device.uuid, device.vendor, device.numa_node) == ("GPU-1", None, None)


def test_nothing_is_published_without_bus_and_driver():
    assert (
        discovered_devices(
            DiscoveredNode(bus=None, snapshot=None, uuid_by_address={FIRST: "GPU-1"}), healthy
        )
        is None
    )


def test_an_empty_bus_is_a_list_of_no_devices():
    assert discovered_devices(DiscoveredNode(bus=(), snapshot=None), healthy) == ()
    reported = read_back(published_of((), None))
    assert reported.agent.devices == ()
    assert reported.agent.is_complete


@pytest.mark.parametrize("bus", [(pci(), pci(SECOND)), None], ids=["on the bus", "no bus"])
def test_a_device_that_the_driver_shows_no_more_is_lost_by_its_uuid(bus):
    uuid_by_address = {FIRST: "GPU-1", SECOND: "GPU-2"}
    seen = snapshot(said())
    devices = discovered_devices(
        DiscoveredNode(bus=bus, snapshot=seen, uuid_by_address=uuid_by_address), healthy
    )
    assert devices is not None
    reported = read_back(published_of(devices, seen))
    assert reported.report.health == {
        "GPU-1": HealthReport("Healthy"),
        "GPU-2": HealthReport("Lost", NOT_REPORTED.reason, "NodeReboot"),
    }
    assert reported.agent.devices[1].product is None


def test_the_tracked_fault_of_a_device_that_is_not_listed_goes_first():
    discovered = DiscoveredNode(bus=(pci(),), snapshot=snapshot(), uuid_by_address={FIRST: "GPU-1"})
    devices = discovered_devices(discovered, lambda _: LOST)
    assert devices is not None
    assert devices[0].health == LOST


def test_a_device_of_another_driver_is_not_lost():
    bus = (pci(), pci(SECOND, driver="vfio-pci"))
    devices = discovered_devices(
        DiscoveredNode(bus=bus, snapshot=snapshot(said()), uuid_by_address={SECOND: "GPU-2"}),
        healthy,
    )
    assert devices is not None
    assert (devices[1].uuid, devices[1].health) == ("", None)
    current = [
        attributes.get("pci.driver") for attributes in published_of(devices, snapshot()).devices
    ]
    assert current == [None, "vfio-pci"]


def test_a_device_that_was_never_shown_is_lost_where_the_driver_is_bound_and_shows_others():
    bus = (pci(), pci(SECOND), pci("0000:19:00.0", driver=None))
    devices = discovered_devices(DiscoveredNode(bus=bus, snapshot=snapshot(said())), healthy)
    assert devices is not None
    assert [device.health for device in devices] == [HEALTHY, NOT_REPORTED, None]
    alone = discovered_devices(DiscoveredNode(bus=(pci(),), snapshot=snapshot()), healthy)
    assert alone is not None
    assert alone[0].health is None


def test_a_lost_device_is_published_with_its_identity_only():
    lost = said(product="", memory_mib=None, is_lost=True)
    devices = discovered_devices(
        DiscoveredNode(bus=(pci(),), snapshot=snapshot(lost)), lambda _: LOST
    )
    assert devices is not None
    (attributes,) = published_of(devices, snapshot(lost)).devices
    assert "mig.capable" not in attributes
    assert "links" not in attributes
    assert (attributes["uuid"], attributes["health"]) == ("GPU-1", "Lost")


def test_a_value_that_the_reader_would_not_take_costs_itself_only():
    odd = said(
        product="a\nb", compute_capability="nine", links=(DriverLink("somewhere", LinkType.PIX),)
    )
    devices = discovered_devices(DiscoveredNode(bus=(pci(),), snapshot=snapshot(odd)), healthy)
    assert devices is not None
    published = published_of(devices, snapshot(odd))
    assert published.rejected == (
        f"{FIRST} product",
        f"{FIRST} compute.capability",
        f"{FIRST} links",
    )
    reported = read_back(published)
    assert not reported.report.bad
    assert reported.agent.devices[0].uuid == "GPU-1"


def test_an_instance_without_its_compute_instance_is_not_published():
    cut = said(
        is_mig_capable=True,
        is_mig_enabled=True,
        instances=(
            DriverInstance(gpu_instance=1, profile="1g.18gb", uuid="MIG-1", compute_instance=0),
            DriverInstance(gpu_instance=2, profile="1g.18gb"),
        ),
    )
    devices = discovered_devices(DiscoveredNode(bus=(pci(),), snapshot=snapshot(cut)), healthy)
    assert devices is not None
    (device,) = read_back(published_of(devices, snapshot(cut))).agent.devices
    assert (device.mig_mode, device.mig_instances) == (
        "Enabled",
        (MigPartition("1g.18gb", "MIG-1"),),
    )
    (in_file,) = node_devices(devices, NO_FILES, (), driver_version="570.1").devices
    assert [instance.uuid for instance in in_file.instances or ()] == ["MIG-1"]


def test_power_limits_are_published():
    device = said(power_limit_watts=500, max_power_limit_watts=700)
    devices = discovered_devices(DiscoveredNode(bus=(pci(),), snapshot=snapshot(device)), healthy)
    assert devices is not None
    published = published_of(devices, snapshot(device))
    assert published.devices[0]["power.limit.watts"] == "500"
    assert published.devices[0]["power.max.watts"] == "700"
    assert not read_back(published).report.bad


def test_known_uuids_follow_the_driver_and_end_with_the_bus():
    both = last_uuids({}, snapshot(said(), said(SECOND, "GPU-2")), bus=(pci(), pci(SECOND)))
    assert both == {FIRST: "GPU-1", SECOND: "GPU-2"}
    assert last_uuids(both, snapshot(said()), bus=(pci(), pci(SECOND))) == both
    assert last_uuids(both, snapshot(said()), bus=(pci(),)) == {FIRST: "GPU-1"}
    assert last_uuids(both, snapshot(said()), bus=None) == both
    # The second device was put into the first's slot.
    moved = last_uuids(both, snapshot(said(FIRST, "GPU-2")), bus=(pci(), pci(SECOND)))
    assert moved == {FIRST: "GPU-2"}


def test_the_file_of_devices_has_device_files_and_health():
    own = DeviceFile(path="/dev/nvidia0", host_path="/dev/nvidia0", type="c", major=195, minor=0)
    capability = replace(own, path="/dev/nvidia-caps/nvidia-cap3", host_path="/x/nvidia-cap3")
    cut = said(
        is_mig_capable=True,
        is_mig_enabled=True,
        instances=(DriverInstance(gpu_instance=1, profile="1g.18gb", uuid="MIG-1"),),
    )
    devices = discovered_devices(
        DiscoveredNode(bus=(pci(),), snapshot=snapshot(cut)), lambda _: XID_79
    )
    assert devices is not None
    files = DeviceFiles(
        by_uuid={"GPU-1": (own,), "MIG-1": (own, capability)}, shared=(own,), missing=()
    )
    file = node_devices(devices, files, (), driver_version="570.1")
    assert msgspec.json.decode(msgspec.json.encode(file), type=NodeDevices) == file
    (device,) = file.devices
    assert (device.is_healthy, device.reason) == (False, "Xid79")
    assert device.nodes == ["/dev/nvidia0"]
    assert device.instances is not None
    assert device.instances[0].nodes == ["/x/nvidia-cap3"]
    assert file.shared.nodes == ["/dev/nvidia0"]


@pytest.mark.parametrize("uuid", ["", "GPU/1", "GPU-" + "1" * 60, "GPU-1-"])
def test_a_device_that_kubelet_cannot_name_is_not_in_the_file(uuid):
    devices = discovered_devices(
        DiscoveredNode(bus=(pci(),), snapshot=snapshot(said(uuid=uuid))), healthy
    )
    assert devices is not None
    assert node_devices(devices, NO_FILES, (), driver_version="570.1").devices == []
