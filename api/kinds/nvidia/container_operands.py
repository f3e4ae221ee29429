"""Operands of nodes whose devices containers use: toolkit, device plugin, metrics, features, MIG, validator."""

from enum import Enum
from typing import ClassVar, Literal

import msgspec

from api.kinds.nvidia import operand_block
from api.kinds.nvidia.operator_blocks import ServiceMonitorConfig
from api.meta import SparseModel


class ToolkitSpec(operand_block.OperandBlock, frozen=True):
    """NVIDIA's container toolkit, which lets the container runtime hand out devices."""

    on_by_default: ClassVar[bool] = True
    image_variable: ClassVar[str] = "CONTAINER_TOOLKIT_IMAGE"

    install_dir: str = "/usr/local/nvidia"
    """Directory of the node that the toolkit is installed in."""


class MPSConfig(SparseModel, frozen=True):
    """The Multi-Process Service."""

    root: str = "/run/nvidia/mps"
    """Directory of the node for its sockets and logs."""


class DevicePluginSpec(operand_block.OperandBlock, frozen=True):
    """NVIDIA's device plugin, which offers devices to kubelet."""

    on_by_default: ClassVar[bool] = True
    image_variable: ClassVar[str] = "DEVICE_PLUGIN_IMAGE"

    config: operand_block.DefaultedConfig = operand_block.DefaultedConfig()
    """ConfigMap of configurations, among which the node label nvidia.com/device-plugin.config chooses."""
    mps: MPSConfig = MPSConfig()
    """The Multi-Process Service."""


class DCGMSpec(operand_block.OperandBlock, frozen=True):
    """The DCGM host engine in a pod of its own."""

    on_by_default: ClassVar[bool] = True
    image_variable: ClassVar[str] = "DCGM_IMAGE"

    host_port: operand_block.Int32 | None = None
    """Without effect."""


class HPCJobMapping(operand_block.Switch, frozen=True):
    """Jobs of a workload manager as a label of metrics."""

    directory: str = ""
    """Directory of the node where the workload manager writes which job uses which device; empty:
    /var/lib/dcgm-exporter/job-mapping."""


class ExporterService(SparseModel, frozen=True):
    """The Service of the exporter."""

    type: str = ""
    """Type of the Service; ClusterIP if left out."""
    internal_traffic_policy: str = ""
    """Cluster or Local."""


class DCGMExporterSpec(operand_block.OperandBlock, frozen=True):
    """NVIDIA's exporter of the devices' metrics."""

    on_by_default: ClassVar[bool] = True
    image_variable: ClassVar[str] = "DCGM_EXPORTER_IMAGE"

    annotations: dict[str, str] | None = None
    """Annotations of the exporter's pods."""
    config: operand_block.ConfigReference = operand_block.ConfigReference()
    """ConfigMap with dcgm-metrics.csv, the list of metrics."""
    service_monitor: ServiceMonitorConfig = ServiceMonitorConfig()
    """The ServiceMonitor of the exporter."""
    service: ExporterService = ExporterService()
    """The Service of the exporter."""
    host_pid: bool | None = msgspec.field(default=None, name="hostPID")
    """Whether the pods see the processes of their node."""
    hpc_job_mapping: HPCJobMapping = HPCJobMapping()
    """Jobs of a workload manager as a label of metrics."""
    enable_pod_labels: bool | None = None
    """Whether labels of pods become labels of metrics; the exporter then reads all pods."""
    enable_pod_uid: bool | None = msgspec.field(default=None, name="enablePodUID")
    """Whether the UID of pods becomes a label of metrics; the exporter then reads all pods."""
    pod_label_allowlist_regex: operand_block.Texts | None = None
    """Expressions of the pod labels that become labels of metrics; all if left out."""


class NodeStatusExporterSpec(operand_block.OperandBlock, frozen=True):
    """The exporter of the state of the node's GPU software."""

    image_variable: ClassVar[str] = "VALIDATOR_IMAGE"


class GPUFeatureDiscoverySpec(operand_block.OperandBlock, frozen=True):
    """GPU Feature Discovery, which describes the devices by labels of the node."""

    on_by_default: ClassVar[bool] = True
    image_variable: ClassVar[str] = "GFD_IMAGE"


class MigStrategy(Enum):
    """How MIG instances are offered as resources."""

    NONE = "none"
    """MIG is not used."""
    SINGLE = "single"
    """All instances of a node are alike, and are offered as nvidia.com/gpu."""
    MIXED = "mixed"
    """Each profile is a resource of its own."""


class MIGSpec(SparseModel, frozen=True):
    """MIG instances, as device plugin and feature discovery show them."""

    strategy: MigStrategy | None = None


class MIGPartedConfig(operand_block.ConfigReference, frozen=True):
    """Layouts of MIG instances."""

    default: Literal["all-disabled", ""] = "all-disabled"
    """Layout of nodes of which no label names one; empty: their devices stay as they are."""


class MIGManagerSpec(operand_block.OperandBlock, frozen=True):
    """NVIDIA's MIG manager, which partitions the devices of a node by its label nvidia.com/mig.config."""

    on_by_default: ClassVar[bool] = True
    image_variable: ClassVar[str] = "MIG_MANAGER_IMAGE"

    config: MIGPartedConfig = MIGPartedConfig()
    """ConfigMap of layouts."""
    gpu_clients_config: operand_block.ConfigReference = operand_block.ConfigReference()
    """ConfigMap of the node's programs that use devices, and stop while these are partitioned."""


class ValidatorStep(SparseModel, frozen=True):
    """A check of the validator."""

    env: list[operand_block.EnvVar] | None = None
    """Environment variables of the check."""


class ValidatorSpec(operand_block.PodFields, frozen=True):
    """The validator, which checks the software of a node step by step."""

    image_variable: ClassVar[str] = "VALIDATOR_IMAGE"

    plugin: ValidatorStep = ValidatorStep()
    """Check of the device plugin."""
    toolkit: ValidatorStep = ValidatorStep()
    """Check of the container toolkit."""
    driver: ValidatorStep = ValidatorStep()
    """Check of the driver."""
    cuda: ValidatorStep = ValidatorStep()
    """Check by a CUDA program."""
    vfio_pci: ValidatorStep = msgspec.field(default=ValidatorStep(), name="vfioPCI")
    """Check that the devices are bound to vfio-pci."""
    vgpu_manager: ValidatorStep = ValidatorStep()
    """Check of the vGPU manager."""
    vgpu_devices: ValidatorStep = ValidatorStep()
    """Check of the vGPUs."""
