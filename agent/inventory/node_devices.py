"""The cards of a node, put together from what the bus shows, the driver says, and health is judged to be.

Values in, values out: which cards there are, their attributes in the node's NodeFeature
(`api.foreign.nodefeature.AgentDevice`), and the file of cards (`api.nodefiles.devices`).

Who is there:

* What the bus has is there. What the driver shows besides is there too, since a container may have no view
  of the bus.
* A card that the bus has and the driver does not show, though it did before, is *lost*: its UUID is
  remembered, because health is about a UUID. The same where the kernel's driver is bound to it, and the
  driver shows others only. A card that another driver has (vfio-pci) is none of ours, and not lost.
* Without a driver there are PCI facts alone: what the driver said before is the control plane's to remember.

Each attribute is held against the reader's own parser (`inventory.discovery.parsing`): what it would not take is left
out and named, so that one odd text of a driver does not cost the other facts.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, final

import msgspec

from agent.health.verdicts import DeviceHealthState, HealthState
from api.foreign.nodefeature import AgentDevice, AgentNode
from api.nodefiles.devices import NodeDevice, NodeDevices, NodeInstance, SharedParts
from inventory.discovery import parsing as values
from inventory.identity import canonical_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent.driver.device_files import FoundFiles
    from agent.driver.pci import PciDevice
    from agent.driver.port import DriverDevice, DriverSnapshot
    from api.nodefiles.devices import NodeMount

NVIDIA_DRIVER: Final = "nvidia"
"""The kernel's driver, as the bus names it."""
NOT_SHOWN: Final = DeviceHealthState(
    HealthState.LOST,
    "LostFromDriver",
    "the kernel's driver has the card, and NVML does not show it: see dmesg, and reset or reboot",
)
_MAX_UUID_LENGTH: Final = 63
"""`api.nodefiles.devices.Uuid`, and what kubelet takes."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredNode:
    """What was seen of a node's cards."""

    bus: "tuple[PciDevice, ...] | None" = None
    """None where the bus cannot be read, which is not an empty one."""
    look: "DriverSnapshot | None" = None
    """None where there is no driver."""
    known: "Mapping[str, str]" = field(default_factory=dict)
    """PCI address -> UUID, of cards that the driver showed and that were not taken out since."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDeviceFacts:
    """One card."""

    address: str
    pci: "PciDevice | None" = None
    said: "DriverDevice | None" = None
    """By the driver."""
    uuid: str = ""
    health: DeviceHealthState | None = None
    """None where nobody can judge it."""


def discovered_devices(
    sight: DiscoveredNode, health: "Callable[[str], DeviceHealthState]"
) -> tuple[NodeDeviceFacts, ...] | None:
    """Return the node's cards by address; None where neither bus nor driver can be asked."""
    if sight.bus is None and sight.look is None:
        return None
    bus = {one.address: one for one in sight.bus or ()}
    said = _by_address(sight.look)
    addresses = {*bus, *said}
    if sight.bus is None:
        addresses |= sight.known.keys()
    return tuple(
        _device(address, bus.get(address), said.get(address), sight, health)
        for address in sorted(addresses)
    )


def _by_address(look: "DriverSnapshot | None") -> "dict[str, DriverDevice]":
    found = {}
    for device in look.devices if look is not None else ():
        address = canonical_address(device.address)
        if address is not None:
            found[address] = device
    return found


def _device(  # noqa: PLR0917  # of one address: what each source has there
    address: str,
    pci: "PciDevice | None",
    said: "DriverDevice | None",
    sight: DiscoveredNode,
    health: "Callable[[str], DeviceHealthState]",
) -> NodeDeviceFacts:
    facts = NodeDeviceFacts(address=address, pci=pci, said=said)
    if said is not None:
        return replace(facts, uuid=said.uuid, health=health(said.uuid) if said.uuid else None)
    is_foreign = pci is not None and pci.driver not in {None, NVIDIA_DRIVER}
    if sight.look is None or is_foreign:
        return facts
    uuid = sight.known.get(address, "")
    if uuid:
        judged = health(uuid)
        return replace(facts, uuid=uuid, health=NOT_SHOWN if judged.is_healthy else judged)
    is_bound = pci is not None and pci.driver == NVIDIA_DRIVER
    return replace(facts, health=NOT_SHOWN) if is_bound and sight.look.devices else facts


def known_after(
    known: "Mapping[str, str]", look: "DriverSnapshot", *, bus: "Sequence[PciDevice] | None"
) -> dict[str, str]:
    """Return which card is where, after a look that the driver answered."""
    shown = {address: one.uuid for address, one in _by_address(look).items() if one.uuid}
    present = None if bus is None else {one.address for one in bus}
    kept = {
        address: uuid
        for address, uuid in known.items()
        if (present is None or address in present) and uuid not in shown.values()
    }
    return kept | shown


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What is said of the node and its cards."""

    devices: "tuple[Mapping[str, str], ...]"
    """Attributes of each, by address."""
    node: "Mapping[str, str]"
    unsayable: tuple[str, ...] = ()
    """Keys whose value the reader would not take, with their card."""


def published_of(devices: "Iterable[NodeDeviceFacts]", look: "DriverSnapshot | None") -> Published:
    """Return what is to be published; the same facts give the same texts."""
    told: list[Mapping[str, str]] = []
    unsayable: list[str] = []
    for device in devices:
        saying = _Saying()
        _say_device(saying, device)
        told.append(saying.texts)
        unsayable += (f"{device.address} {key}" for key in saying.unsayable)
    node = _Saying()
    if look is not None:
        node.say(AgentNode.DRIVER_VERSION, look.driver_version, values.version)
        node.say(AgentNode.CUDA_VERSION, look.cuda_version, values.version)
    unsayable += node.unsayable
    return Published(devices=tuple(told), node=node.texts, unsayable=tuple(unsayable))


class _Saying:
    """Texts by key, of values that the reader takes."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.unsayable: list[str] = []

    def say(self, key: str, value: object | None, parse: "Callable[[str], object | None]") -> None:
        """Say a value; None and the empty text are nothing said."""
        text = "" if value is None else str(value)
        if not text:
            return
        if parse(text) is None:
            self.unsayable.append(key)
        else:
            self.texts[key] = text


def _say_device(saying: _Saying, device: NodeDeviceFacts) -> None:
    saying.say(AgentDevice.ADDRESS, device.address, values.address)
    saying.say(AgentDevice.UUID, device.uuid, values.uuid)
    if device.pci is not None:
        saying.say(AgentDevice.VENDOR, device.pci.vendor, values.hex_id)
        saying.say(AgentDevice.DEVICE, device.pci.device, values.hex_id)
        saying.say(AgentDevice.CLASS, device.pci.class_, values.pci_class)
        saying.say(AgentDevice.NUMA_NODE, device.pci.numa_node, values.numa_node)
    if device.said is not None and not device.said.is_lost:
        _say_driver(saying, device.said)
    if device.health is not None:
        saying.say(AgentDevice.HEALTH, device.health.state.value, values.word)
        saying.say(AgentDevice.HEALTH_REASON, device.health.reason, values.word)


def _say_driver(saying: _Saying, said: "DriverDevice") -> None:
    saying.say(AgentDevice.PRODUCT, said.product, values.product)
    saying.say(AgentDevice.MEMORY, said.memory_mib, values.memory_mib)
    saying.say(AgentDevice.COMPUTE_CAPABILITY, said.compute_capability, values.compute_capability)
    # Nobody reads watts yet: any whole number will do.
    saying.say(AgentDevice.POWER_LIMIT, said.power_limit_watts, int)
    saying.say(AgentDevice.MAX_POWER_LIMIT, said.max_power_limit_watts, int)
    links = [
        {"peer": one.peer, "type": one.type.value, "count": one.count}
        for one in sorted(said.links, key=lambda one: (one.peer, one.type.value))
    ]
    saying.say(AgentDevice.LINKS, _json(links), values.links)
    saying.say(AgentDevice.MIG_CAPABLE, str(said.is_mig_capable).lower(), values.flag)
    if not said.is_mig_capable:
        return
    saying.say(AgentDevice.MIG_MODE, "Enabled" if said.is_mig_enabled else "Disabled", values.word)
    profiles = sorted({one.name for one in said.profiles})
    saying.say(AgentDevice.MIG_PROFILES, ",".join(profiles), values.profiles)
    # What lacks its compute instance has no UUID, and can be given to nobody.
    instances = [
        {"profile": one.profile, "uuid": one.uuid}
        for one in sorted(said.instances, key=lambda one: (one.profile, one.uuid))
        if one.uuid
    ]
    saying.say(AgentDevice.MIG_INSTANCES, _json(instances), values.partitions)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def node_devices(
    devices: "Iterable[NodeDeviceFacts]", files: "FoundFiles", mounts: "Sequence[NodeMount]"
) -> NodeDevices:
    """Return the file of cards: those with a UUID that kubelet can be told."""
    return NodeDevices(
        version="v1",
        devices=[_node_device(device, files) for device in devices if is_nameable(device.uuid)],
        shared=SharedParts(nodes=[one.host_path for one in files.shared], mounts=list(mounts)),
    )


def is_nameable(uuid: str) -> bool:
    """Say whether kubelet, the reader and the runtime all take the name."""
    return (
        len(uuid) <= _MAX_UUID_LENGTH and values.uuid(uuid) is not None and not uuid.endswith("-")
    )


def _node_device(device: NodeDeviceFacts, files: "FoundFiles") -> NodeDevice:
    said, own = device.said, files.by_uuid.get(device.uuid, ())
    is_healthy = device.health is None or device.health.is_healthy
    instances = None
    if said is not None and said.is_mig_enabled:
        instances = [
            NodeInstance(
                uuid=one.uuid,
                profile=one.profile,
                nodes=[
                    file.host_path for file in files.by_uuid.get(one.uuid, ()) if file not in own
                ],
            )
            for one in sorted(said.instances, key=lambda one: one.gpu_instance)
            if is_nameable(one.uuid)
        ]
    return NodeDevice(
        uuid=device.uuid,
        address=device.address,
        nodes=[file.host_path for file in own],
        instances=instances,
        is_healthy=is_healthy,
        reason="" if is_healthy or device.health is None else device.health.reason,
    )
