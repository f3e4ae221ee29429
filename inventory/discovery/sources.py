"""The reports of each source on a node and its devices, read from labels and features.

Sources, the most trusted first (docs/design/0005-from-slot-to-pool.md):

* `AGENT`: the node agent's NodeFeature (`api.foreign.nodefeature`), by PCI address.
* `INSTANCES`: instances `nvidia.com/gpu` of other NodeFeatures, by PCI address.
* `SLOTS`: labels `gpu.deckhouse.io/device.NN.*` of the NodeFeatureRule, in order of the PCI address,
  which they do not contain (`inventory.discovery.labels`).
* `NODE`: labels `nvidia.com/*` of gpu-feature-discovery, about all devices of the node at once.

An invalid value is skipped and reported as a `BadFeature`; nothing here raises.
"""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from sys import intern
from typing import TYPE_CHECKING, Any, Final, final

from api.foreign.nodefeature import HEARTBEAT_ANNOTATION, AgentDevice, AgentNode
from api.kinds.gpunodeinventory import KubeletConfiguration, NodeSystem
from api.names import RESOURCE_PREFIX
from api.text import truncate
from api.vendor import (
    GPU_CLASSES,
    NFD_KERNEL_LABEL,
    NFD_PCI_PREFIX,
    NFD_SYSTEM_PREFIX,
    NVIDIA,
    NVIDIA_PREFIX,
)
from inventory.discovery import parsing
from inventory.health.device import HealthReport

if TYPE_CHECKING:
    from api.foreign.nodefeature import FeatureElement, Instances, NodeFeature, PciInstances

_MAX_QUOTED: Final = 64


class Source(Enum):
    """A source of facts; the value is a metric's label."""

    AGENT = "agent"
    INSTANCES = "instances"
    SLOTS = "device-labels"
    NODE = "node-labels"


@final
@dataclass(frozen=True, slots=True, order=True)
class BadFeature:
    """A label or attribute that was skipped, because its value is invalid."""

    source: str
    key: str
    value: str
    """Truncated: it is foreign text."""

    def __str__(self) -> str:
        return f"{self.key}={self.value!r}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedDevice:
    """The facts that one source reports on a device; None is no report."""

    address: str | None = None
    uuid: str | None = None
    vendor: str | None = None
    device: str | None = None
    class_: str | None = None
    driver: str | None = None
    """The kernel's driver that it is bound to, where it is not NVIDIA's."""
    product: str | None = None
    """Product in the source's spelling."""
    memory_mib: int | None = None
    compute_capability: str | None = None
    numa_node: int | None = None
    """-1 where the machine has none."""
    links: tuple[parsing.PeerLink, ...] | None = None
    mig_capable: bool | None = None
    mig_mode: str | None = None
    mig_profiles: tuple[str, ...] | None = None
    mig_capacities: tuple[tuple[str, int], ...] | None = None
    mig_instances: tuple[parsing.MigPartition, ...] | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The versions that a source reports; None is no report."""

    driver: str | None = None
    cuda: str | None = None
    toolkit: str | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceList:
    """The devices that one source lists, by address."""

    devices: tuple[ReportedDevice, ...]
    is_complete: bool
    """False where an element has no address: then no device is provably missing."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureReport:
    """The content of one NodeFeature."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """The labels that the inventory reads."""
    agent: DeviceList | None = None
    instances: DeviceList | None = None
    is_on_bus: bool = False
    """Whether NFD lists a GPU of NVIDIA among the devices on the bus."""
    versions: Versions = field(default_factory=Versions)
    health: Mapping[str, HealthReport] = field(default_factory=dict)
    """UUID -> health of the device, by the node agent."""
    heartbeat: dt.datetime | None = None
    kubelet: KubeletConfiguration | None = None
    """Settings of the node's kubelet, by the node agent."""
    system: NodeSystem = field(default_factory=NodeSystem)
    """System by the node agent."""
    bad: frozenset[BadFeature] = frozenset()


class AttributeReader:
    """Reads values from text by key, and collects those that are invalid."""

    def __init__(self, source: Source, texts: Mapping[str, str], prefix: str = "") -> None:
        self._source = source
        self._texts = texts
        self._prefix = prefix
        self.bad: set[BadFeature] = set()

    def read(self, key: str, parse: "Callable[[str], Any]", *, unless: str = "") -> Any:  # noqa: ANN401  # what `parse` returns
        """Return the parsed value; None for a missing one, and for `unless`, which means none."""
        text = self._texts.get(key)
        if text is None or text in {"", unless}:
            return None
        value = parse(text)
        if value is None:
            self.reject(key, text)
        return value

    def first(self, keys: "tuple[str, ...]", parse: "Callable[[str], Any]") -> Any:  # noqa: ANN401  # what `parse` returns
        """Return the value of the first of several keys that has one."""
        for key in keys:
            value = self.read(key, parse)
            if value is not None:
                return value
        return None

    def reject(self, key: str, text: str) -> None:
        quoted = truncate(text, _MAX_QUOTED)
        self.bad.add(BadFeature(self._source.value, f"{self._prefix}{key}", quoted))


_LABEL_PREFIXES: Final = (
    NVIDIA_PREFIX,
    RESOURCE_PREFIX,
    NFD_PCI_PREFIX,
    NFD_KERNEL_LABEL,
    NFD_SYSTEM_PREFIX,
)

_AGENT_FIELDS: Final[Mapping[str, tuple[tuple[str, ...], Callable[[str], Any]]]] = {
    "uuid": ((AgentDevice.UUID,), parsing.uuid),
    "address": ((AgentDevice.ADDRESS,), parsing.address),
    "vendor": ((AgentDevice.VENDOR,), parsing.hex_id),
    "device": ((AgentDevice.DEVICE,), parsing.hex_id),
    "class_": ((AgentDevice.CLASS,), parsing.pci_class),
    "driver": ((AgentDevice.DRIVER,), parsing.word),
    "product": ((AgentDevice.PRODUCT,), parsing.product),
    "memory_mib": ((AgentDevice.MEMORY,), parsing.memory_mib),
    "compute_capability": ((AgentDevice.COMPUTE_CAPABILITY,), parsing.compute_capability),
    "numa_node": ((AgentDevice.NUMA_NODE,), parsing.numa_node),
    "links": ((AgentDevice.LINKS,), parsing.links),
    "mig_capable": ((AgentDevice.MIG_CAPABLE,), parsing.flag),
    "mig_mode": ((AgentDevice.MIG_MODE,), parsing.word),
    "mig_profiles": ((AgentDevice.MIG_PROFILES,), parsing.profiles),
    "mig_capacities": ((AgentDevice.MIG_CAPACITIES,), parsing.capacities),
    "mig_instances": ((AgentDevice.MIG_INSTANCES,), parsing.partitions),
}
"""Field of ReportedDevice -> its attributes, and their parser."""
_GPU_FIELDS: Final[Mapping[str, tuple[tuple[str, ...], Callable[[str], Any]]]] = {
    **_AGENT_FIELDS,
    "address": (("pci.address", "pci.bus_id"), parsing.address),
    "vendor": (("pci.vendor", "vendor"), parsing.hex_id),
    "device": (("pci.device", "device"), parsing.hex_id),
    "class_": (("pci.class", "class"), parsing.pci_class),
    "memory_mib": (("memory.total", "memory.mib", "memory"), parsing.memory_mib),
    "mig_capable": (("mig.capable", "mig-capable"), parsing.flag),
}


def feature_report(feature: "NodeFeature") -> FeatureReport:
    """Return the content of a NodeFeature."""
    features = feature.spec.features
    bad: set[BadFeature] = set()
    health: dict[str, HealthReport] = {}
    agent = _device_list(Source.AGENT, features.instances.agent, bad)
    if features.instances.agent is not None:
        health = _health(features.instances.agent)
    instances = _device_list(Source.INSTANCES, features.instances.gpu, bad)
    agent_attributes = features.attributes.agent
    reading = AttributeReader(
        Source.AGENT, agent_attributes.elements if agent_attributes is not None else {}
    )
    versions = Versions(
        driver=reading.read(AgentNode.DRIVER_VERSION, parsing.version),
        cuda=reading.read(AgentNode.CUDA_VERSION, parsing.version),
        toolkit=reading.read(AgentNode.TOOLKIT_VERSION, parsing.version),
    )
    policy = reading.read(AgentNode.TOPOLOGY_POLICY, parsing.topology_policy)
    scope = reading.read(AgentNode.TOPOLOGY_SCOPE, parsing.topology_scope)
    aligned = reading.read(AgentNode.ALIGNED_RESOURCES, parsing.resources)
    heartbeat = None
    if agent is not None:
        annotations = feature.metadata.annotations or {}
        heartbeat_reader = AttributeReader(Source.AGENT, annotations)
        heartbeat = heartbeat_reader.read(HEARTBEAT_ANNOTATION, _time)
        bad |= heartbeat_reader.bad
    labels = {
        intern(key): intern(value)
        for key, value in (feature.spec.labels or {}).items()
        if key.startswith(_LABEL_PREFIXES)
    }
    return FeatureReport(
        labels=labels,
        agent=agent,
        instances=instances,
        is_on_bus=_is_on_bus(features.instances.pci),
        versions=versions,
        health=health,
        heartbeat=heartbeat,
        kubelet=None
        if policy is None or scope is None
        else KubeletConfiguration(
            topology_manager_policy=policy,
            topology_manager_scope=scope,
            aligned_resources=aligned or [],
        ),
        system=NodeSystem(
            os=reading.read(AgentNode.OS, parsing.version) or "",
            os_version=reading.read(AgentNode.OS_VERSION, parsing.version) or "",
        ),
        bad=frozenset(bad | reading.bad),
    )


def _is_on_bus(listed: "PciInstances | None") -> bool:
    elements = (listed.elements if listed is not None else None) or ()
    return any(
        parsing.hex_id(element.attributes.vendor) == NVIDIA
        and parsing.pci_class(element.attributes.class_) in GPU_CLASSES
        for element in elements
    )


def _device_list(
    source: Source, instances: "Instances | None", bad: set[BadFeature]
) -> DeviceList | None:
    """Return the devices of a list; the first element with an address wins."""
    if instances is None or instances.elements is None:
        return None
    fields = _AGENT_FIELDS if source is Source.AGENT else _GPU_FIELDS
    devices: dict[str, ReportedDevice] = {}
    is_complete = True
    for number, element in enumerate(instances.elements):
        reading = AttributeReader(source, element.attributes, f"[{number}].")
        reported = {name: reading.first(keys, parse) for name, (keys, parse) in fields.items()}
        if source is Source.INSTANCES and reported["compute_capability"] is None:
            reported["compute_capability"] = two_part_capability(reading, "compute.{}")
        bad |= reading.bad
        address = reported["address"]
        if address is None:
            is_complete = False
            if not reading.bad:
                bad.add(BadFeature(source.value, f"[{number}].{AgentDevice.ADDRESS}", ""))
        elif address in devices:
            bad.add(BadFeature(source.value, f"[{number}].{AgentDevice.ADDRESS}", address))
        else:
            devices[intern(address)] = ReportedDevice(**_interned(reported))
    return DeviceList(
        devices=tuple(devices[key] for key in sorted(devices)), is_complete=is_complete
    )


def two_part_capability(reading: AttributeReader, key: str) -> str | None:
    """Return the compute capability of its two parts, `major` and `minor`."""
    major = reading.read(key.format("major"), parsing.count)
    minor = reading.read(key.format("minor"), parsing.count)
    return (
        None if major is None or minor is None else parsing.compute_capability(f"{major}.{minor}")
    )


_REPEATED: Final = frozenset(
    {"address", "vendor", "device", "class_", "driver", "product", "compute_capability", "mig_mode"}
)


def _interned(reported: dict[str, Any]) -> dict[str, Any]:
    """Return the values; texts that many devices share are stored once."""
    return {
        name: intern(value) if name in _REPEATED and value is not None else value
        for name, value in reported.items()
    }


def _health(instances: "Instances") -> dict[str, HealthReport]:
    found = {}
    for element in instances.elements or ():
        uuid = parsing.uuid(element.attributes.get(AgentDevice.UUID, ""))
        status = _word(element, AgentDevice.HEALTH)
        if uuid is not None and status:
            found[uuid] = HealthReport(
                status,
                reason=_word(element, AgentDevice.HEALTH_REASON),
                action=_word(element, AgentDevice.RECOVERY_ACTION),
                reset=_word(element, AgentDevice.RESET),
                last_xid=parsing.last_xid(element.attributes.get(AgentDevice.LAST_XID, "")),
            )
    return found


def _word(element: "FeatureElement", key: str) -> str:
    return intern(element.attributes.get(key, "")[:_MAX_QUOTED])


def _time(text: str) -> dt.datetime | None:
    try:
        moment = dt.datetime.fromisoformat(text)
        return moment.astimezone(dt.UTC) if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
