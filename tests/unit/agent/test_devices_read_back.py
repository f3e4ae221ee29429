"""Whatever a node shows is read back by the control plane as the same facts."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent.driver.pci import PciDevice
from agent.driver.port import DriverDevice, DriverInstance, DriverLink, LinkType, Profile
from agent.health.states import HEALTHY, LOST
from agent.inventory.node_devices import (
    DiscoveredNode,
    discovered_devices,
    published_of,
)
from api.kinds.gpunodeinventory import (
    KubeletConfiguration,
    TopologyManagerPolicy,
    TopologyManagerScope,
)
from inventory.discovery.parsing import MigPartition, PeerLink
from inventory.discovery.sources import ReportedDevice
from tests.support.device_health import XID_79
from tests.support.seen_devices import read_back, snapshot

addresses = st.builds(
    "{:04x}:{:02x}:{:02x}.0".format,
    st.integers(0, 0xFFFF),
    st.integers(0, 255),
    st.integers(0, 31),
)
uuids = st.uuids().map("GPU-{}".format)
profiles = st.sampled_from(["1g.10gb", "1g.10gb+me", "1c.2g.20gb", "7g.80gb", "1g.20gb+gfx"])
whole_numbers = st.none() | st.integers(0, 2000)
links = st.lists(
    st.builds(DriverLink, addresses, st.sampled_from(LinkType), st.integers(1, 64)),
    max_size=4,
    unique_by=lambda build: (build.peer, build.type),
).map(tuple)
driver_devices = st.builds(
    DriverDevice,
    address=addresses,
    uuid=uuids,
    minor=st.integers(0, 63),
    product=st.sampled_from(["NVIDIA H200", "NVIDIA A100-SXM4-80GB", "Tesla T4 (é)"]),
    memory_mib=st.none() | st.integers(1, 2**24),
    compute_capability=st.none() | st.sampled_from(["7.5", "9.0", "12.0"]),
    power_limit_watts=whole_numbers,
    max_power_limit_watts=whole_numbers,
    links=links,
    is_mig_capable=st.booleans(),
    is_mig_enabled=st.booleans(),
    profiles=st.lists(st.builds(Profile, name=profiles, capacity=st.just(1))).map(tuple),
    instances=st.lists(
        st.builds(
            DriverInstance,
            gpu_instance=st.integers(0, 13),
            profile=profiles,
            uuid=st.just("") | st.uuids().map("MIG-{}".format),
        ),
        max_size=3,
        unique_by=lambda build: build.uuid,
    ).map(tuple),
    is_lost=st.booleans(),
)
pci_devices = st.builds(
    PciDevice,
    address=addresses,
    vendor=st.just("10de"),
    device=st.sampled_from(["2335", "20b2"]),
    class_=st.sampled_from(["0300", "0302"]),
    numa_node=st.integers(-1, 15),
    driver=st.sampled_from([None, "nvidia", "vfio-pci"]),
)


def unique(devices: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(devices, max_size=4, unique_by=lambda device: device.address).map(tuple)


@st.composite
def discovered(draw):
    bus = draw(st.none() | unique(pci_devices))
    seen = draw(unique(driver_devices))
    if bus and draw(st.booleans()):
        # Most devices are on both.
        seen = tuple(
            replace(item, address=other.address) for item, other in zip(seen, bus, strict=False)
        )
    uuid_by_address = draw(st.dictionaries(addresses, uuids, max_size=2))
    if bus and draw(st.booleans()):
        uuid_by_address[bus[-1].address] = draw(uuids)
    return DiscoveredNode(
        bus=bus,
        snapshot=draw(st.sampled_from([None, snapshot(*seen)])),
        uuid_by_address=uuid_by_address,
    )


kubelets = st.none() | st.builds(
    KubeletConfiguration,
    topology_manager_policy=st.sampled_from(TopologyManagerPolicy),
    topology_manager_scope=st.sampled_from(TopologyManagerScope),
    aligned_resources=st.sampled_from([[], ["cpu"], ["cpu", "example.com/nic", "memory"]]),
)


@given(discovered(), st.sampled_from([HEALTHY, LOST, XID_79]), kubelets)
def test_published_attributes_are_read_back_as_the_same_facts(discovered, health_state, kubelet):
    devices = discovered_devices(discovered, lambda _: health_state)
    if devices is None:
        return
    published = published_of(devices, discovered.snapshot, kubelet)
    assert published.rejected == ()
    reported = read_back(published)
    assert not reported.report.bad
    assert reported.report.kubelet == kubelet
    assert reported.agent.is_complete
    assert [item.address for item in reported.agent.devices] == [item.address for item in devices]
    for device, facts in zip(devices, reported.agent.devices, strict=True):
        assert facts == expected_facts(device)
        if device.uuid and device.health is not None:
            health = device.health
            said = reported.report.health[device.uuid]
            assert (said.status, said.reason) == (health.state.value, health.reason)
            assert said.action == ("" if health.is_healthy else health.action.value)
        if device.health is None or not device.uuid:
            assert device.uuid not in reported.report.health
    assert published_of(devices, discovered.snapshot, kubelet) == published


def expected_facts(device) -> ReportedDevice:
    """The facts by the words of `api.foreign.nodefeature`, without the agent's code."""
    facts = ReportedDevice(address=device.address, uuid=device.uuid or None)
    if device.pci is not None:
        facts = replace(
            facts,
            vendor=device.pci.vendor,
            device=device.pci.device,
            class_=device.pci.class_,
            driver=None if device.pci.driver == "nvidia" else device.pci.driver,
            numa_node=device.pci.numa_node,
        )
    one = device.reported
    if one is None or one.is_lost:
        return facts
    facts = replace(
        facts,
        product=one.product,
        memory_mib=one.memory_mib,
        compute_capability=one.compute_capability,
        links=tuple(
            sorted(
                (PeerLink(link.peer, link.type.value, link.count) for link in one.links),
                key=lambda link: (link.peer, link.type),
            )
        ),
        mig_capable=one.is_mig_capable,
    )
    if not one.is_mig_capable:
        return facts
    return replace(
        facts,
        mig_mode="Enabled" if one.is_mig_enabled else "Disabled",
        mig_capacities=tuple(
            sorted({p.name: p.capacity for p in one.profiles if p.capacity}.items())
        )
        or None,
        mig_profiles=tuple(sorted({profile.name for profile in one.profiles})) or None,
        mig_instances=tuple(
            sorted(
                (MigPartition(i.profile, i.uuid) for i in one.instances if i.uuid),
                key=lambda part: (part.profile, part.uuid),
            )
        ),
    )
