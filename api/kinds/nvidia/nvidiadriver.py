"""NVIDIADriver: one version of the driver, and the nodes that get it (group `nvidia.com`, version `v1alpha1`).

The kind is that of NVIDIA's GPU Operator, with every field of v26.7; see `api.kinds.nvidia.clusterpolicy`.
"""

from enum import Enum
from typing import Final

import msgspec

from api.kinds.nvidia.driver_blocks import DriverFields, GDRCopy, GPUDirectStorage
from api.kinds.nvidia.operand_block import ConfigReference
from api.kinds.nvidia.operator_status import OperatorStatus
from api.kinds.nvidia.pod_fields import DriverNodeAffinity, PodSecurityContext, PodToleration
from api.kinds.nvidia.upgrade_policy import DriverUpgradePolicy
from api.meta import Model, ObjectMeta, SparseModel

DEFAULT_IMAGE: Final = "nvcr.io/nvidia/driver"


class DriverType(Enum):
    """Kind of the driver; it cannot change."""

    GPU = "gpu"
    """Driver of devices that containers use."""
    VGPU = "vgpu"
    """Driver of virtual GPUs, inside a virtual machine."""
    VGPU_HOST_MANAGER = "vgpu-host-manager"
    """Driver of nodes that host virtual GPUs."""


class LicensingConfig(SparseModel, frozen=True):
    """Licensing of a vGPU driver."""

    name: str = ""
    """ConfigMap of the licence server; a Secret keeps the token better."""
    secret_name: str = ""
    """Secret with the token of the licence server."""
    nls_enabled: bool | None = None
    """Whether NVIDIA's licensing system (NLS) is used; it is if left out."""


class NVIDIADriverSpec(DriverFields, frozen=True):
    """A version of the driver, and the nodes that get it."""

    image: str = DEFAULT_IMAGE
    """Name of the image; without repository and version the whole reference."""
    use_precompiled: bool | None = None
    """Whether the image holds modules that were compiled for the node's kernel. It cannot change."""
    default: bool = False
    """Whether nodes that no other NVIDIADriver selects get this driver; one object at most may be the default."""
    driver_type: DriverType = DriverType.GPU
    gds: GPUDirectStorage = GPUDirectStorage()
    """GPUDirect Storage."""
    gdrcopy: GDRCopy = GDRCopy()
    """GDRCopy."""
    repo_config: ConfigReference = ConfigReference()
    """ConfigMap of package repositories of the container."""
    licensing_config: LicensingConfig = LicensingConfig()
    """Licensing of a vGPU driver."""
    virtual_topology_config: ConfigReference = ConfigReference()
    """ConfigMap of the daemon for the virtual topology of vGPUs."""
    upgrade_policy: DriverUpgradePolicy = DriverUpgradePolicy()
    """How a new driver reaches the nodes."""
    node_selector: dict[str, str] | None = None
    """Labels of the nodes that get the driver; every node with a device if left out."""
    node_affinity: DriverNodeAffinity | None = None
    """Affinity of the driver's pods to nodes."""
    labels: dict[str, str] | None = None
    """Further labels of the driver's pods."""
    annotations: dict[str, str] | None = None
    """Further annotations of the driver's pods."""
    tolerations: list[PodToleration] | None = None
    """Taints that the driver's pods tolerate."""
    priority_class_name: str = ""
    """Priority class of the driver's pods."""
    pod_security_context: PodSecurityContext | None = None
    """Security settings of the driver's pods."""


class NVIDIADriverState(Enum):
    """State of the driver as a whole."""

    IGNORED = "ignored"
    """Another object counts."""
    READY = "ready"
    """Every node of it runs this driver."""
    NOT_READY = "notReady"
    """A node does not."""
    DISABLED = "disabled"
    """The ClusterPolicy describes the driver itself."""


class NVIDIADriverStatus(OperatorStatus, frozen=True):
    """Observed state of the driver."""

    state: NVIDIADriverState | None = None


class NVIDIADriver(Model, frozen=True):
    """A version of the driver, and the nodes that get it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NVIDIADriverSpec = NVIDIADriverSpec()
    status: NVIDIADriverStatus = msgspec.field(default_factory=NVIDIADriverStatus)
