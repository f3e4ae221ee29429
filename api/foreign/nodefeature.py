"""NodeFeature of Node Feature Discovery: what was found on a node, projected to what we read.

NFD's own objects carry thousands of features of CPU and kernel; fields that are not named here are skipped
while decoding and never become objects. Formats: github.com/kubernetes-sigs/node-feature-discovery,
api/nfd/v1alpha1/types.go.

Our node agent publishes what it finds in the same kind, under names of our group:

* `spec.features.instances["gpu.deckhouse.io/device"]`: an element for every card of the node, with the
  attributes of `AgentDevice`. The list is complete: a card that is not in it is not there.
* `spec.features.attributes["gpu.deckhouse.io/node"]`: `driver.version`, `cuda.version`,
  `toolkit.version`.
* `metadata.annotations["gpu.deckhouse.io/heartbeat"]`: when the agent last looked, as RFC 3339.
"""

from typing import Final

import msgspec

from api.meta import Model, ObjectMeta
from api.names import GROUP, NodeName

NODE_NAME_LABEL: Final = "nfd.node.kubernetes.io/node-name"
"""On a NodeFeature: the node that it is about."""
HEARTBEAT_ANNOTATION: Final = f"{GROUP}/heartbeat"
"""On our agent's NodeFeature: when it last looked."""
AGENT_INSTANCES: Final = f"{GROUP}/device"
AGENT_ATTRIBUTES: Final = f"{GROUP}/node"
GPU_INSTANCES: Final = "nvidia.com/gpu"
"""Instances that carry what NVML says of each card."""


class AgentDevice:
    """Attributes of an element of our agent's instances; all are text, and all but the address optional."""

    UUID: Final = "uuid"
    ADDRESS: Final = "pci.address"
    VENDOR: Final = "pci.vendor"
    DEVICE: Final = "pci.device"
    CLASS: Final = "pci.class"
    PRODUCT: Final = "product"
    """As NVML names it."""
    MEMORY: Final = "memory.mib"
    COMPUTE_CAPABILITY: Final = "compute.capability"
    NUMA_NODE: Final = "numa.node"
    """-1 where the machine has none."""
    LINKS: Final = "links"
    """JSON: `[{"peer": "0000:65:00.0", "type": "NVLink", "count": 12}]`."""
    POWER_LIMIT: Final = "power.limit.watts"
    """What the card is held to now."""
    MAX_POWER_LIMIT: Final = "power.max.watts"
    """The most that it may be held to."""
    MIG_CAPABLE: Final = "mig.capable"
    MIG_MODE: Final = "mig.mode"
    """`Enabled` or `Disabled`."""
    MIG_PROFILES: Final = "mig.profiles"
    """What the card can be cut into, separated by commas; empty for nothing."""
    MIG_INSTANCES: Final = "mig.instances"
    """JSON: `[{"profile": "1g.10gb", "uuid": "MIG-..."}]`; `[]` for none."""
    HEALTH: Final = "health"
    """`Healthy`, `Unhealthy` or `Lost`."""
    HEALTH_REASON: Final = "health.reason"
    """Why it is not healthy, in PascalCase."""


class AgentNode:
    """Attributes of the node, as our agent publishes them."""

    DRIVER_VERSION: Final = "driver.version"
    CUDA_VERSION: Final = "cuda.version"
    TOOLKIT_VERSION: Final = "toolkit.version"


class FeatureElement(Model, frozen=True):
    """One device."""

    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class Instances(Model, frozen=True):
    """Devices of one kind; None is a list that was not written, which is not an empty one."""

    elements: list[FeatureElement] | None = None


class Attributes(Model, frozen=True):
    """Named values."""

    elements: dict[str, str] = msgspec.field(default_factory=dict)


class InstanceFeatures(Model, frozen=True):
    """The two kinds of devices that we read."""

    agent: Instances | None = msgspec.field(default=None, name=AGENT_INSTANCES)
    gpu: Instances | None = msgspec.field(default=None, name=GPU_INSTANCES)


class AttributeFeatures(Model, frozen=True):
    """What our agent says of the node."""

    agent: Attributes | None = msgspec.field(default=None, name=AGENT_ATTRIBUTES)


class Features(Model, frozen=True):
    """What was discovered."""

    attributes: AttributeFeatures = AttributeFeatures()
    instances: InstanceFeatures = InstanceFeatures()


class NodeFeatureSpec(Model, frozen=True):
    """Features, and the labels that the node is to have."""

    features: Features = Features()
    labels: dict[str, str] | None = None


class NodeFeature(Model, frozen=True):
    """What one source found on one node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeFeatureSpec = NodeFeatureSpec()

    @property
    def node(self) -> NodeName:
        """Return the node that it is about: as NFD does, by label, or by the object's name."""
        return NodeName(self.metadata.label(NODE_NAME_LABEL) or self.metadata.name)
