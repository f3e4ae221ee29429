"""The devices of a node, merged from the bus, the driver and their health.

Values in, values out: the present devices, their attributes in the node's NodeFeature
(`api.foreign.nodefeature.AgentDevice`), and the devices file (`api.nodefiles.node_devices_file`).

Presence:

* Devices on the bus are present. So are devices that only the driver lists, since a container may have no view
  of the bus.
* A device that is on the bus and no longer in the driver's list is *lost*: its UUID is remembered, because
  health is about a UUID. The same holds for a device that the kernel's driver is bound to while the driver
  lists others only. A device bound to another driver (vfio-pci) is foreign, and not lost.
* Without a driver there are PCI facts alone: the control plane remembers the driver's earlier facts.

Each attribute is checked with the reader's own parser (`inventory.discovery.parsing`): an invalid one is left
out and reported, so that one odd text of a driver does not cost the other facts.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, final

import msgspec

from agent.health.states import HEALTHY, DeviceHealthState, lost
from agent.inventory.os_release import OperatingSystem
from api.foreign.nodefeature import AgentDevice, AgentNode
from api.nodefiles.node_devices_file import NodeDevice, NodeDevices, NodeInstance, SharedParts
from inventory.discovery import parsing
from inventory.identity import canonical_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent.driver.device_files import DeviceFiles
    from agent.driver.pci import PciDevice
    from agent.driver.port import DriverDevice, DriverSnapshot
    from api.kinds.gpunodeinventory import KubeletConfiguration
    from api.nodefiles.node_devices_file import NodeMount

NVIDIA_DRIVER: Final = "nvidia"
"""The kernel's driver, as the bus names it."""
NOT_REPORTED: Final = lost(
    "LostFromDriver", "the kernel's driver is bound to the device, and NVML does not list it"
)
_MAX_UUID_LENGTH: Final = 63
"""The limit of `api.nodefiles.node_devices_file.Uuid`, and of kubelet."""


_ADDRESS_LENGTH: Final = len("0000:17:00.0")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredNode:
    """Present state of a node's bus and driver."""

    bus: "tuple[PciDevice, ...] | None" = None
    """None for an unreadable bus, which is not an empty one."""
    snapshot: "DriverSnapshot | None" = None
    """None without a driver."""
    uuid_by_address: "Mapping[str, str]" = field(default_factory=dict)
    """PCI address -> UUID, of devices that the driver has listed and that were not taken out since."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDeviceFacts:
    """Facts of one device."""

    address: str
    pci: "PciDevice | None" = None
    reported: "DriverDevice | None" = None
    """Facts from the driver."""
    uuid: str = ""
    health: DeviceHealthState | None = None
    """None where it is unknown."""


def discovered_devices(
    node: DiscoveredNode, health: "Callable[[str], DeviceHealthState]"
) -> tuple[NodeDeviceFacts, ...] | None:
    """Return the node's devices by address; None where neither bus nor driver can be read."""
    if node.bus is None and node.snapshot is None:
        return None
    bus = {item.address: item for item in node.bus or ()}
    reported = _by_address(node.snapshot)
    addresses = {*bus, *reported}
    if node.bus is None:
        addresses |= node.uuid_by_address.keys()
    return tuple(
        _device(address, bus.get(address), reported.get(address), node, health)
        for address in sorted(addresses)
    )


def with_kernels_addresses(
    snapshot: "DriverSnapshot", bus: "Sequence[PciDevice] | None"
) -> "DriverSnapshot":
    """Return the snapshot with the addresses at which the kernel has the devices.

    On Hyper-V NVML writes a domain of 32 bits, `03f8cfdd:00:00.0`, of which the kernel has the lower half
    (NVIDIA/nvidia-docker, issue 1316). Without this, one device would be two.
    """
    present = {item.address for item in bus or ()}

    def corrected(device: "DriverDevice") -> "DriverDevice":
        short = device.address[-_ADDRESS_LENGTH:]
        is_short = device.address not in present and short in present
        return replace(device, address=short) if is_short else device

    return replace(snapshot, devices=tuple(map(corrected, snapshot.devices)))


def _by_address(snapshot: "DriverSnapshot | None") -> "dict[str, DriverDevice]":
    found = {}
    for device in snapshot.devices if snapshot is not None else ():
        address = canonical_address(device.address)
        if address is not None:
            found[address] = device
    return found


def _device(  # noqa: PLR0917  # the sources of one address
    address: str,
    pci: "PciDevice | None",
    reported: "DriverDevice | None",
    node: DiscoveredNode,
    health: "Callable[[str], DeviceHealthState]",
) -> NodeDeviceFacts:
    facts = NodeDeviceFacts(address=address, pci=pci, reported=reported)
    if reported is not None:
        return replace(
            facts, uuid=reported.uuid, health=health(reported.uuid) if reported.uuid else None
        )
    is_foreign = pci is not None and pci.driver not in {None, NVIDIA_DRIVER}
    if node.snapshot is None or is_foreign:
        return facts
    uuid = node.uuid_by_address.get(address, "")
    if uuid:
        state = health(uuid)
        return replace(facts, uuid=uuid, health=NOT_REPORTED if state.is_healthy else state)
    is_bound = pci is not None and pci.driver == NVIDIA_DRIVER
    return replace(facts, health=NOT_REPORTED) if is_bound and node.snapshot.devices else facts


def last_uuids(
    uuid_by_address: "Mapping[str, str]",
    snapshot: "DriverSnapshot",
    *,
    bus: "Sequence[PciDevice] | None",
) -> dict[str, str]:
    """Return the UUIDs by address, after a snapshot."""
    current = {address: item.uuid for address, item in _by_address(snapshot).items() if item.uuid}
    present = None if bus is None else {item.address for item in bus}
    kept = {
        address: uuid
        for address, uuid in uuid_by_address.items()
        if (present is None or address in present) and uuid not in current.values()
    }
    return kept | current


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFeatures:
    """Content of the node's NodeFeature."""

    devices: "tuple[Mapping[str, str], ...]"
    """Attributes of each device, by address."""
    node: "Mapping[str, str]"
    rejected: tuple[str, ...] = ()
    """Keys with a value that the reader rejects, with their device."""


def published_of(
    devices: "Iterable[NodeDeviceFacts]",
    snapshot: "DriverSnapshot | None",
    kubelet: "KubeletConfiguration | None" = None,
    *,
    system: OperatingSystem | None = None,
) -> PublishedFeatures:
    """Return the content to publish; the same facts give the same texts."""
    devices_attributes: list[Mapping[str, str]] = []
    rejected: list[str] = []
    for device in devices:
        attributes = _Attributes()
        _add_device(attributes, device)
        devices_attributes.append(attributes.texts)
        rejected += (f"{device.address} {key}" for key in attributes.rejected)
    node = _Attributes()
    if snapshot is not None:
        node.add(AgentNode.DRIVER_VERSION, snapshot.driver_version, parsing.version)
        node.add(AgentNode.CUDA_VERSION, snapshot.cuda_version, parsing.version)
    if kubelet is not None:
        policy, scope = kubelet.topology_manager_policy, kubelet.topology_manager_scope
        node.add(AgentNode.TOPOLOGY_POLICY, policy.value, parsing.topology_policy)
        node.add(AgentNode.TOPOLOGY_SCOPE, scope.value, parsing.topology_scope)
        aligned = ",".join(kubelet.aligned_resources)
        node.add(AgentNode.ALIGNED_RESOURCES, aligned, parsing.resources)
    if system is not None:
        node.add(AgentNode.OS, system.id, parsing.version)
        node.add(AgentNode.OS_VERSION, system.version_id, parsing.version)
    rejected += node.rejected
    return PublishedFeatures(
        devices=tuple(devices_attributes), node=node.texts, rejected=tuple(rejected)
    )


class _Attributes:
    """Texts by key, of values that the reader accepts."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.rejected: list[str] = []

    def add(self, key: str, value: object | None, parse: "Callable[[str], object | None]") -> None:
        """Add a value; None and the empty text are skipped."""
        text = "" if value is None else str(value)
        if not text:
            return
        if parse(text) is None:
            self.rejected.append(key)
        else:
            self.texts[key] = text


def _add_device(attributes: _Attributes, device: NodeDeviceFacts) -> None:
    attributes.add(AgentDevice.ADDRESS, device.address, parsing.address)
    attributes.add(AgentDevice.UUID, device.uuid, parsing.uuid)
    if device.pci is not None:
        attributes.add(AgentDevice.VENDOR, device.pci.vendor, parsing.hex_id)
        attributes.add(AgentDevice.DEVICE, device.pci.device, parsing.hex_id)
        attributes.add(AgentDevice.CLASS, device.pci.class_, parsing.pci_class)
        if device.pci.driver != NVIDIA_DRIVER:
            attributes.add(AgentDevice.DRIVER, device.pci.driver, parsing.word)
        attributes.add(AgentDevice.NUMA_NODE, device.pci.numa_node, parsing.numa_node)
    if device.reported is not None and not device.reported.is_lost:
        _add_driver_facts(attributes, device.reported)
    if device.health is not None:
        attributes.add(AgentDevice.HEALTH, device.health.state.value, parsing.word)
        attributes.add(AgentDevice.HEALTH_REASON, device.health.reason, parsing.word)
        action = device.reported.recovery_action if device.reported is not None else None
        if not device.health.is_healthy:
            action = device.health.action
        attributes.add(AgentDevice.RECOVERY_ACTION, action and action.value, parsing.word)
        attributes.add(AgentDevice.RESET, device.health.reset, parsing.word)
        last_xid = device.health.last_xid
        attributes.add(AgentDevice.LAST_XID, last_xid and _json(last_xid), parsing.last_xid)


def _add_driver_facts(attributes: _Attributes, reported: "DriverDevice") -> None:
    attributes.add(AgentDevice.PRODUCT, reported.product, parsing.product)
    attributes.add(AgentDevice.MEMORY, reported.memory_mib, parsing.memory_mib)
    attributes.add(
        AgentDevice.COMPUTE_CAPABILITY, reported.compute_capability, parsing.compute_capability
    )
    # The control plane does not read watts yet: any whole number is valid.
    attributes.add(AgentDevice.POWER_LIMIT, reported.power_limit_watts, int)
    attributes.add(AgentDevice.MAX_POWER_LIMIT, reported.max_power_limit_watts, int)
    links = [
        {"peer": item.peer, "type": item.type.value, "count": item.count}
        for item in sorted(reported.links, key=lambda link: (link.peer, link.type.value))
    ]
    attributes.add(AgentDevice.LINKS, _json(links), parsing.links)
    attributes.add(AgentDevice.MIG_CAPABLE, str(reported.is_mig_capable).lower(), parsing.flag)
    if not reported.is_mig_capable:
        return
    attributes.add(
        AgentDevice.MIG_MODE, "Enabled" if reported.is_mig_enabled else "Disabled", parsing.word
    )
    profiles = sorted({item.name for item in reported.profiles})
    attributes.add(AgentDevice.MIG_PROFILES, ",".join(profiles), parsing.profiles)
    capacities = {item.name: item.capacity for item in reported.profiles if item.capacity > 0}
    attributes.add(
        AgentDevice.MIG_CAPACITIES, _json(capacities) if capacities else "", parsing.capacities
    )
    # An instance without its compute instance has no UUID, and cannot be allocated.
    instances = [
        {"profile": item.profile, "uuid": item.uuid}
        for item in sorted(
            reported.instances, key=lambda instance: (instance.profile, instance.uuid)
        )
        if item.uuid
    ]
    attributes.add(AgentDevice.MIG_INSTANCES, _json(instances), parsing.partitions)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def node_devices(
    devices: "Iterable[NodeDeviceFacts]",
    files: "DeviceFiles",
    mounts: "Sequence[NodeMount]",
    *,
    driver_version: str,
) -> NodeDevices:
    """Return the devices file: devices with a UUID that kubelet accepts."""
    return NodeDevices(
        version="v1",
        devices=[_node_device(device, files) for device in devices if is_nameable(device.uuid)],
        shared=SharedParts(nodes=[item.host_path for item in files.shared], mounts=list(mounts)),
        driver_version=driver_version,
    )


def is_nameable(uuid: str) -> bool:
    """Whether kubelet, the reader and the runtime all accept the UUID as a name."""
    return (
        len(uuid) <= _MAX_UUID_LENGTH and parsing.uuid(uuid) is not None and not uuid.endswith("-")
    )


def _node_device(device: NodeDeviceFacts, files: "DeviceFiles") -> NodeDevice:
    reported, own = device.reported, files.by_uuid.get(device.uuid, ())
    health = device.health or HEALTHY
    instances = None
    if reported is not None and reported.is_mig_enabled:
        instances = [
            NodeInstance(
                uuid=item.uuid,
                profile=item.profile,
                nodes=[
                    file.host_path for file in files.by_uuid.get(item.uuid, ()) if file not in own
                ],
            )
            for item in sorted(reported.instances, key=lambda instance: instance.gpu_instance)
            if is_nameable(item.uuid)
        ]
    return NodeDevice(
        uuid=device.uuid,
        address=device.address,
        nodes=[file.host_path for file in own],
        instances=instances,
        is_healthy=health.is_healthy,
        reason=health.reason,
        action="" if health.reported is None else health.reported.value,
    )
