"""The driver of nodes: what the spec of a ClusterPolicy and an NVIDIADriver say about it alike."""

from enum import Enum
from typing import ClassVar

import msgspec

from api.kinds.nvidia import operand_block
from api.kinds.nvidia.upgrade_policy import ClusterUpgradePolicy
from api.meta import SparseModel


class KernelModuleType(Enum):
    """Kernel modules of the driver."""

    AUTO = "auto"
    """Those that NVIDIA recommends for the devices and the branch of the driver."""
    OPEN = "open"
    """The open modules."""
    PROPRIETARY = "proprietary"
    """The closed modules."""


class ContainerProbe(SparseModel, frozen=True):
    """Timing of a probe of the driver's container; fields that are left out keep their default."""

    initial_delay_seconds: operand_block.Int32 | None = None
    """Seconds after the container's start until the first probe."""
    timeout_seconds: operand_block.PositiveInt32 | None = None
    """Seconds until a probe counts as failed."""
    period_seconds: operand_block.PositiveInt32 | None = None
    """Seconds between two probes."""
    success_threshold: operand_block.PositiveInt32 | None = None
    """Successes in a row after which the probe counts as passed."""
    failure_threshold: operand_block.PositiveInt32 | None = None
    """Failures in a row after which the probe counts as failed."""


class GPUDirectRDMA(operand_block.Switch, frozen=True):
    """GPUDirect RDMA: the module nvidia-peermem."""

    use_host_mofed: bool | None = None
    """Whether the network driver (MOFED) is installed on the nodes."""


class DriverContainer(operand_block.ContainerFields, operand_block.Switchable, frozen=True):
    """A container beside the driver, which loads one more kernel module."""

    enabled: bool | None = None
    """Whether the container runs; not if left out."""


class GPUDirectStorage(DriverContainer, frozen=True):
    """GPUDirect Storage: the module nvidia-fs."""

    image_variable: ClassVar[str] = "GDS_IMAGE"


class GDRCopy(DriverContainer, frozen=True):
    """GDRCopy: the module gdrdrv."""

    image_variable: ClassVar[str] = "GDRCOPY_IMAGE"


class DriverFields(operand_block.PodFields, frozen=True):
    """The driver, as both kinds spell it."""

    use_precompiled: bool | None = None
    """Whether the image holds modules that were compiled for the node's kernel."""
    use_open_kernel_modules: bool | None = None
    """Without effect: kernelModuleType took its place."""
    kernel_module_type: KernelModuleType = KernelModuleType.AUTO
    startup_probe: ContainerProbe | None = None
    """Probe of the container's start, during which the driver is built and loaded."""
    liveness_probe: ContainerProbe | None = None
    """Probe whose failure restarts the container; none if left out."""
    readiness_probe: ContainerProbe | None = None
    """Probe of the container's readiness; none if left out."""
    rdma: GPUDirectRDMA = GPUDirectRDMA()
    """GPUDirect RDMA."""
    manager: operand_block.DriverManager = operand_block.DriverManager()
    """The init container that frees the node's devices."""
    cert_config: operand_block.ConfigReference = operand_block.ConfigReference()
    """ConfigMap of certificates that the container trusts, for repositories of packages."""
    kernel_module_config: operand_block.ConfigReference = operand_block.ConfigReference()
    """ConfigMap of parameters of the kernel modules."""
    secret_env: str = ""
    """Secret whose keys become environment variables of the container."""

    @property
    def is_precompiled(self) -> bool:
        return bool(self.use_precompiled)


class RepositoryConfig(SparseModel, frozen=True):
    """Refers to the ConfigMap of package repositories."""

    config_map_name: str = ""
    """Name of the ConfigMap; empty: none."""


class ClusterLicensingConfig(SparseModel, frozen=True):
    """Licensing of a vGPU driver."""

    config_map_name: str = ""
    """ConfigMap of the licence server; a Secret keeps the token better."""
    secret_name: str = ""
    """Secret with the token of the licence server."""
    nls_enabled: bool | None = None
    """Whether NVIDIA's licensing system (NLS) is used; not if left out."""


class VirtualTopology(SparseModel, frozen=True):
    """The daemon for the virtual topology of vGPUs."""

    config: str = ""
    """ConfigMap with nvidia-topologyd.conf; empty: none."""


class DriverSpec(DriverFields, operand_block.Switchable, frozen=True):
    """The driver of all nodes, unless NVIDIADriver objects describe the drivers."""

    on_by_default: ClassVar[bool] = True
    image_variable: ClassVar[str] = "DRIVER_IMAGE"

    enabled: bool | None = None
    """Whether the driver's container runs; it does if left out."""
    use_nvidia_driver_crd: bool | None = msgspec.field(default=None, name="useNvidiaDriverCRD")
    """Whether NVIDIADriver objects describe the drivers; the other fields then have no effect."""
    upgrade_policy: ClusterUpgradePolicy = ClusterUpgradePolicy()
    """How a new driver reaches the nodes."""
    repo_config: RepositoryConfig = RepositoryConfig()
    """Package repositories of the container."""
    licensing_config: ClusterLicensingConfig = ClusterLicensingConfig()
    """Licensing of a vGPU driver."""
    virtual_topology: VirtualTopology = VirtualTopology()
    """The daemon for the virtual topology of vGPUs."""

    @property
    def is_left_to_driver_objects(self) -> bool:
        return bool(self.use_nvidia_driver_crd)
