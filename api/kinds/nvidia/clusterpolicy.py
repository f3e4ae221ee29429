"""ClusterPolicy: the GPU software of all nodes as one object (group `nvidia.com`, version `v1`).

The kind is that of NVIDIA's GPU Operator, with every field of v26.7. What its API server accepts ours accepts,
but for rules that say early what the operator says late (`api.crd.nvidia_cel`).
"""

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from api.kinds.nvidia import container_operands
from api.kinds.nvidia.driver_blocks import DriverSpec, GDRCopy, GPUDirectStorage
from api.kinds.nvidia.operand_block import Switch
from api.kinds.nvidia.operator_blocks import CDIConfig, DaemonsetsSpec, HostPaths, OperatorSpec
from api.kinds.nvidia.operator_status import OperatorStatus
from api.kinds.nvidia.sandbox_operands import (
    CCManagerSpec,
    KataDevicePluginSpec,
    KataManagerSpec,
    SandboxDevicePluginSpec,
    SandboxWorkloads,
    VFIOManagerSpec,
    VGPUDeviceManagerSpec,
    VGPUManagerSpec,
)
from api.meta import Model, ObjectMeta, SparseModel

if TYPE_CHECKING:
    from collections.abc import Iterable


class ClusterPolicySpec(SparseModel, frozen=True):
    """The GPU software of all nodes."""

    operator: OperatorSpec = OperatorSpec()
    """The operator itself."""
    daemonsets: DaemonsetsSpec = DaemonsetsSpec()
    """The DaemonSets of all operands."""
    driver: DriverSpec = DriverSpec()
    """The driver."""
    toolkit: container_operands.ToolkitSpec = container_operands.ToolkitSpec()
    """The container toolkit."""
    device_plugin: container_operands.DevicePluginSpec = container_operands.DevicePluginSpec()
    """The device plugin."""
    dcgm_exporter: container_operands.DCGMExporterSpec = container_operands.DCGMExporterSpec()
    """The exporter of metrics."""
    dcgm: container_operands.DCGMSpec = container_operands.DCGMSpec()
    """The DCGM host engine."""
    node_status_exporter: container_operands.NodeStatusExporterSpec = (
        container_operands.NodeStatusExporterSpec()
    )
    """The exporter of the state of the node's GPU software."""
    gfd: container_operands.GPUFeatureDiscoverySpec = container_operands.GPUFeatureDiscoverySpec()
    """GPU Feature Discovery."""
    mig: container_operands.MIGSpec = container_operands.MIGSpec()
    """MIG instances, as device plugin and feature discovery show them."""
    mig_manager: container_operands.MIGManagerSpec = container_operands.MIGManagerSpec()
    """The MIG manager."""
    psp: Switch = Switch()
    """Without effect: Kubernetes has no PodSecurityPolicy any more."""
    psa: Switch = Switch()
    """Whether the namespace of the operands is labelled as privileged, for Pod Security Admission."""
    validator: container_operands.ValidatorSpec = container_operands.ValidatorSpec()
    """The validator."""
    gds: GPUDirectStorage = GPUDirectStorage()
    """GPUDirect Storage."""
    gdrcopy: GDRCopy = GDRCopy()
    """GDRCopy."""
    sandbox_workloads: SandboxWorkloads = SandboxWorkloads()
    """Virtual machines as workload of nodes."""
    vfio_manager: VFIOManagerSpec = VFIOManagerSpec()
    """The VFIO manager."""
    sandbox_device_plugin: SandboxDevicePluginSpec = SandboxDevicePluginSpec()
    """The device plugin for virtual machines of KubeVirt."""
    vgpu_manager: VGPUManagerSpec = VGPUManagerSpec()
    """The vGPU manager."""
    vgpu_device_manager: VGPUDeviceManagerSpec = VGPUDeviceManagerSpec()
    """The vGPU device manager."""
    cdi: CDIConfig = CDIConfig()
    """The Container Device Interface."""
    kata_manager: KataManagerSpec = KataManagerSpec()
    """Without effect."""
    cc_manager: CCManagerSpec = CCManagerSpec()
    """The manager of confidential computing."""
    host_paths: HostPaths = HostPaths()
    """Directories of the nodes."""
    kata_sandbox_device_plugin: KataDevicePluginSpec = KataDevicePluginSpec()
    """The device plugin for Kata Containers."""


class ClusterPolicyState(Enum):
    """State of the policy as a whole."""

    IGNORED = "ignored"
    """An older ClusterPolicy counts."""
    READY = "ready"
    """Every state is ready, or switched off."""
    NOT_READY = "notReady"
    """A state is not ready."""


class ClusterPolicyStatus(OperatorStatus, frozen=True):
    """Observed state of the GPU software."""

    state: ClusterPolicyState | None = None


class ClusterPolicy(Model, frozen=True):
    """The GPU software of all nodes. Of several the oldest counts."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterPolicySpec = ClusterPolicySpec()
    status: ClusterPolicyStatus = msgspec.field(default_factory=ClusterPolicyStatus)


def active_policy(policies: "Iterable[ClusterPolicy]") -> ClusterPolicy | None:
    """Return the policy that counts: the oldest, and of two of one second the first by name. None without any."""
    # metav1.Time is UTC to the second, so that its text is in the order of time.
    return min(
        policies,
        key=lambda policy: (policy.metadata.creation_timestamp or "", policy.metadata.name),
        default=None,
    )
