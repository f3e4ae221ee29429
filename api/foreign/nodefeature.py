"""NodeFeature of Node Feature Discovery: the features found on a node, projected to the fields read.

NFD's own objects carry thousands of CPU and kernel features. Fields that are not named here are
skipped while decoding and never become objects. Formats:
github.com/kubernetes-sigs/node-feature-discovery,
api/nfd/v1alpha1/types.go.

The node agent publishes its findings in the same kind, under names of our group:

* `spec.features.instances["gpu.deckhouse.io/device"]`: one element for each device of the node, with
  the attributes of `AgentDevice`. The list is complete: a device that is not listed is absent.
* `spec.features.attributes["gpu.deckhouse.io/node"]`: the attributes of `AgentNode`.
* `metadata.annotations["gpu.deckhouse.io/heartbeat"]`: time of the agent's last scan, as RFC 3339.
"""

from typing import Final

import msgspec

from api.meta import Model, ObjectMeta
from api.names import GROUP, NodeName
from api.vendor import GPU_RESOURCE

NODE_NAME_LABEL: Final = "nfd.node.kubernetes.io/node-name"
"""On a NodeFeature: its node."""
HEARTBEAT_ANNOTATION: Final = f"{GROUP}/heartbeat"
"""On the agent's NodeFeature: time of its last scan."""
AGENT_INSTANCES: Final = f"{GROUP}/device"
AGENT_ATTRIBUTES: Final = f"{GROUP}/node"
PCI_INSTANCES: Final = "pci.device"
"""nfd-worker's list of the devices on the bus."""
GPU_INSTANCES: Final = GPU_RESOURCE
"""Instances with the NVML attributes of each device."""


class AgentDevice:
    """Attributes of one element of the agent's instances: strings; only the address is required."""

    UUID: Final = "uuid"
    ADDRESS: Final = "pci.address"
    VENDOR: Final = "pci.vendor"
    DEVICE: Final = "pci.device"
    CLASS: Final = "pci.class"
    DRIVER: Final = "pci.driver"
    """The kernel's driver that the device is bound to, where it is not NVIDIA's: such as `vfio-pci`."""
    PRODUCT: Final = "product"
    """Product as NVML names it."""
    MEMORY: Final = "memory.mib"
    COMPUTE_CAPABILITY: Final = "compute.capability"
    NUMA_NODE: Final = "numa.node"
    """-1 where the machine has none."""
    LINKS: Final = "links"
    """JSON: `[{"peer": "0000:65:00.0", "type": "NVLink", "count": 12}]`."""
    POWER_LIMIT: Final = "power.limit.watts"
    """Present power limit."""
    MAX_POWER_LIMIT: Final = "power.max.watts"
    """Maximum power limit."""
    MIG_CAPABLE: Final = "mig.capable"
    MIG_MODE: Final = "mig.mode"
    """`Enabled` or `Disabled`."""
    MIG_PROFILES: Final = "mig.profiles"
    """Supported MIG profiles, separated by commas; empty without support."""
    MIG_CAPACITIES: Final = "mig.capacities"
    """JSON: `{"1g.10gb": 7}`, the number of instances of each profile that fit the empty device."""
    MIG_INSTANCES: Final = "mig.instances"
    """JSON: `[{"profile": "1g.10gb", "uuid": "MIG-..."}]`; `[]` for none."""
    HEALTH: Final = "health"
    """`Healthy`, `Unhealthy` or `Lost`."""
    HEALTH_REASON: Final = "health.reason"
    """Reason of a state other than Healthy, in PascalCase."""
    RECOVERY_ACTION: Final = "recovery.action"
    """What the device needs (`inventory.health.recovery.RecoveryAction`); absent for a healthy device whose driver does
    not have it."""
    RESET: Final = "reset.outcome"
    """Number and outcome of the last reset that its GPUDevice asked for (`inventory.health.repair.ResetOutcome`), such as
    `attempt-1-Done`."""
    LAST_XID: Final = "xid.last"
    """JSON: `{"code": 79, "time": "2026-11-29T10:00:00Z"}`; absent where the agent knows of none since it started."""


class AgentNode:
    """Attributes of the node, as the agent publishes them."""

    DRIVER_VERSION: Final = "driver.version"
    CUDA_VERSION: Final = "cuda.version"
    TOOLKIT_VERSION: Final = "toolkit.version"
    OS: Final = "os.id"
    OS_VERSION: Final = "os.version_id"
    TOPOLOGY_POLICY: Final = "kubelet.topologyManagerPolicy"
    TOPOLOGY_SCOPE: Final = "kubelet.topologyManagerScope"
    ALIGNED_RESOURCES: Final = "kubelet.alignedResources"
    """Separated by commas; absent for none."""


class FeatureElement(Model, frozen=True):
    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class PciAttributes(Model, frozen=True):
    """Attributes of a PCI device as nfd-worker reports them: four hex digits each."""

    vendor: str = ""
    class_: str = msgspec.field(default="", name="class")


class PciElement(Model, frozen=True):
    attributes: PciAttributes = PciAttributes()


class PciInstances(Model, frozen=True):
    elements: list[PciElement] | None = None


class Instances(Model, frozen=True):
    """Devices of one kind; None is an unwritten list, which differs from an empty one."""

    elements: list[FeatureElement] | None = None


class Attributes(Model, frozen=True):
    elements: dict[str, str] = msgspec.field(default_factory=dict)


class InstanceFeatures(Model, frozen=True):
    """The device lists that are read."""

    agent: Instances | None = msgspec.field(default=None, name=AGENT_INSTANCES)
    gpu: Instances | None = msgspec.field(default=None, name=GPU_INSTANCES)
    pci: PciInstances | None = msgspec.field(default=None, name=PCI_INSTANCES)


class AttributeFeatures(Model, frozen=True):
    """The agent's attributes of the node."""

    agent: Attributes | None = msgspec.field(default=None, name=AGENT_ATTRIBUTES)


class Features(Model, frozen=True):
    attributes: AttributeFeatures = AttributeFeatures()
    instances: InstanceFeatures = InstanceFeatures()


class NodeFeatureSpec(Model, frozen=True):
    """Features, and the labels that NFD sets on the node."""

    features: Features = Features()
    labels: dict[str, str] | None = None


class NodeFeature(Model, frozen=True):
    """The findings of one source on one node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeFeatureSpec = NodeFeatureSpec()

    @property
    def node(self) -> NodeName:
        """Return the node: from the label, as NFD does, or from the object's name."""
        return NodeName(self.metadata.label(NODE_NAME_LABEL) or self.metadata.name)
