"""Links and NUMA nodes of devices, from NVML to the facts that placement reads."""

import datetime as dt

from hypothesis import given
from hypothesis import strategies as st

from agent.driver.port import DriverLink, LinkType
from agent.health.states import HEALTHY
from agent.inventory.node_devices import DiscoveredNode, discovered_devices, published_of
from agent.nvml.convert import links_between
from api.kinds.gpudevice import GPUDevice, GPUDeviceStatus, Link
from api.meta import ObjectMeta
from api.names import NodeName
from inventory.discovery.labels import LabelReport
from inventory.discovery.merge import merge
from inventory.discovery.plan import plan_inventory
from inventory.identity import device_name, inventory_id
from pool.facts import device_facts
from pool.model import DeviceFacts, DeviceLink
from tests.support.builders import EPOCH
from tests.support.seen_devices import pci, read_back, said, snapshot

ADDRESSES = tuple(f"{domain}:{bus}:00.0" for domain in ("0000", "10000") for bus in ("17", "ca"))
NVLINK, SAME_SWITCH, SYSTEM = 2, 10, 50
"""Links of a pair that is bridged; values of nvmlGpuTopologyLevel_t."""


def bridged_pairs(own: str) -> tuple[DriverLink, ...]:
    """Two pairs with an NVLink bridge each, a pair on each socket."""
    pairs = [set(ADDRESSES[:2]), set(ADDRESSES[2:])]
    return links_between(
        own,
        to_devices={
            item: {other: NVLINK for pair in pairs if item in pair for other in pair - {item}}
            for item in ADDRESSES
        },
        to_switches={},
        levels={
            other: SAME_SWITCH if {own, other} in pairs else SYSTEM
            for other in ADDRESSES
            if other != own
        },
    )


def facts_on(node: str) -> list[DeviceFacts]:
    """The facts of the devices of a node, in the order of their names."""
    discovered = DiscoveredNode(
        bus=tuple(pci(item, numa_node=at // 2) for at, item in enumerate(ADDRESSES)),
        snapshot=snapshot(
            *(
                said(item, uuid=f"GPU-{at}00", links=bridged_pairs(item))
                for at, item in enumerate(ADDRESSES)
            )
        ),
        uuid_by_address={},
    )
    devices = discovered_devices(discovered, lambda _: HEALTHY)
    assert devices is not None
    report = read_back(published_of(devices, discovered.snapshot)).report
    merged = merge(
        LabelReport(),
        [report],
        addresses=frozenset(),
        now=EPOCH,
        fresh_for=dt.timedelta(minutes=2),
    )
    plan = plan_inventory(NodeName(node), [], merged, is_managed=True)
    return [
        device_facts(GPUDevice(metadata=ObjectMeta(name=item.name), status=item.status))
        for item in plan.create
    ]


def test_links_of_nvml_are_links_between_devices_of_the_index():
    devices = facts_on("gpu-1.example.com")
    names = [device_name(NodeName("gpu-1.example.com"), item) for item in ADDRESSES]
    assert [device.name for device in devices] == names
    assert [device.numa_node for device in devices] == [0, 0, 1, 1]
    assert devices[0].links == (
        DeviceLink(names[1], LinkType.NVLINK.value, NVLINK),
        DeviceLink(names[2], LinkType.SYS.value),
        DeviceLink(names[3], LinkType.SYS.value),
    )
    pairs = {(device.name, link.peer, link.type) for device in devices for link in device.links}
    assert len(pairs) == 12
    assert {(peer, name, type_) for name, peer, type_ in pairs} == pairs


def test_devices_of_one_node_share_the_links_to_a_device():
    """40,000 devices of 8 a node have 280,000 links."""
    devices = facts_on("n1")
    to_last = {id(link) for device in devices[:2] for link in device.links if link.type == "SYS"}
    assert len(to_last) == 2


@given(
    node=st.integers(1, 253).map(lambda length: ("gpu-1.example.com." * 15)[:length]),
    address=st.sampled_from(ADDRESSES),
)
def test_a_peer_is_the_name_of_a_device_unless_that_is_a_digest(node: str, address: str):
    """A name of more than 253 characters is cut and ends in a digest: no link leads there."""
    device_id = inventory_id(NodeName(node), address)
    device = GPUDevice(
        metadata=ObjectMeta(name="x"),
        status=GPUDeviceStatus(links=[Link(peer=device_id, type="PIX")]),
    )
    (link,) = device_facts(device).links
    assert (link.peer == device_name(NodeName(node), address)) is (len(device_id) <= 253)
