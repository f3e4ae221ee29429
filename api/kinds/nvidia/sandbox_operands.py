"""Operands of nodes whose devices virtual machines use: VFIO, vGPU, Kata Containers, confidential computing."""

from enum import Enum
from typing import ClassVar

from api.kinds.nvidia.operand_block import ConfigReference, DriverManager, OperandBlock, Switch
from api.meta import SparseModel


class WorkloadType(Enum):
    """What uses the devices of a node."""

    CONTAINER = "container"
    """Containers use its devices."""
    VM_PASSTHROUGH = "vm-passthrough"
    """Virtual machines use whole devices."""
    VM_VGPU = "vm-vgpu"
    """Virtual machines use virtual GPUs."""


class SandboxMode(Enum):
    """Software that runs virtual machines."""

    KUBEVIRT = "kubevirt"
    """KubeVirt."""
    KATA = "kata"
    """Kata Containers."""


class SandboxWorkloads(Switch, frozen=True):
    """Virtual machines as workload of nodes."""

    default_workload: WorkloadType = WorkloadType.CONTAINER
    """Workload of nodes whose label nvidia.com/gpu.workload.config names none."""
    mode: SandboxMode = SandboxMode.KUBEVIRT


class VFIOManagerSpec(OperandBlock, frozen=True):
    """The VFIO manager, which binds devices to vfio-pci."""

    image_variable: ClassVar[str] = "VFIO_MANAGER_IMAGE"

    driver_manager: DriverManager = DriverManager()
    """The init container that frees the node's devices."""


class SandboxDevicePluginSpec(OperandBlock, frozen=True):
    """The device plugin for virtual machines of KubeVirt."""

    image_variable: ClassVar[str] = "SANDBOX_DEVICE_PLUGIN_IMAGE"


class KataDevicePluginSpec(OperandBlock, frozen=True):
    """The device plugin for Kata Containers."""

    image_variable: ClassVar[str] = "KATA_SANDBOX_DEVICE_PLUGIN_IMAGE"


class VGPUManagerSpec(OperandBlock, frozen=True):
    """The vGPU manager: the driver of nodes that host virtual GPUs."""

    image_variable: ClassVar[str] = "VGPU_MANAGER_IMAGE"

    driver_manager: DriverManager = DriverManager()
    """The init container that frees the node's devices."""
    kernel_module_config: ConfigReference = ConfigReference()
    """ConfigMap of parameters of the kernel modules."""


class VGPUDevicesConfig(ConfigReference, frozen=True):
    """Layouts of virtual GPUs."""

    default: str = "default"
    """Layout of nodes of which no label names one."""


class VGPUDeviceManagerSpec(OperandBlock, frozen=True):
    """The vGPU device manager, which creates the virtual GPUs of a node."""

    image_variable: ClassVar[str] = "VGPU_DEVICE_MANAGER_IMAGE"

    config: VGPUDevicesConfig = VGPUDevicesConfig()
    """ConfigMap of layouts."""


class KataArtifacts(SparseModel, frozen=True):
    """Files of a Kata runtime class."""

    url: str
    """Image with the files."""
    pull_secret: str = ""
    """Secret with the registry's credentials."""


class KataRuntimeClass(SparseModel, frozen=True):
    """A runtime class of Kata Containers."""

    name: str
    """Name of the runtime class."""
    artifacts: KataArtifacts
    """Its files."""
    node_selector: dict[str, str] | None = None
    """Labels of the nodes that get it."""


class KataManagerConfig(SparseModel, frozen=True):
    """Without effect, as the Kata manager."""

    artifacts_dir: str = "/opt/nvidia-gpu-operator/artifacts/runtimeclasses"
    """Directory of the node for the files."""
    runtime_classes: list[KataRuntimeClass] | None = None
    """Runtime classes."""


class KataManagerSpec(OperandBlock, frozen=True):
    """The Kata manager. Without effect: it never runs, as in the GPU Operator since v26.3."""

    image_variable: ClassVar[str] = "KATA_MANAGER_IMAGE"

    config: KataManagerConfig = KataManagerConfig()
    """Without effect."""


class CCMode(Enum):
    """Confidential computing of a node's devices."""

    ON = "on"
    """On."""
    OFF = "off"
    """Off."""
    DEVTOOLS = "devtools"
    """On, and open to tools of developers."""


class CCManagerSpec(OperandBlock, frozen=True):
    """The manager of confidential computing."""

    image_variable: ClassVar[str] = "CC_MANAGER_IMAGE"

    default_mode: CCMode | None = None
    """Mode of nodes of which no label names one."""
