"""GPUNodeInventory: the observed GPU state of one node; it has the node's name."""

from enum import Enum
from typing import Final

import msgspec

from api.meta import Condition, Model, ObjectMeta

MAX_ALLOCATIONS: Final = 2048
"""Entries of `status.allocations`: 16 devices of 64 slices are 1,024 units, and an entry has at least one.
An entry has 300 bytes with usual names: 1,024 of them are 300 KB of the 1.5 MB that etcd accepts."""

MAX_DRIVER_PROCESSES: Final = 32
"""Entries of `status.driverProcesses`: a pod has one, whatever its processes, and most pods with a device have none."""


class BootstrapPhase(Enum):
    """Progress of the node's GPU software."""

    DISABLED = "Disabled"
    """The node opts out by its label."""
    VALIDATING = "Validating"
    """Driver, toolkit or validator have not passed often enough yet."""
    VALIDATING_FAILED = "ValidatingFailed"
    """Driver, toolkit or validator is not ready."""
    GFD = "GFD"
    """Feature discovery is not ready."""
    MONITORING = "Monitoring"
    """DCGM or its exporter is not ready, or does not answer."""
    READY = "Ready"
    """All parts that are required are ready."""


class TopologyManagerPolicy(Enum):
    """kubelet's topologyManagerPolicy."""

    NONE = "none"
    """Devices of any NUMA nodes."""
    BEST_EFFORT = "best-effort"
    """As few NUMA nodes as possible; the pod runs in any case."""
    RESTRICTED = "restricted"
    """As few NUMA nodes as the request needs, or the pod is rejected."""
    SINGLE_NUMA_NODE = "single-numa-node"
    """One NUMA node, or the pod is rejected."""


class TopologyManagerScope(Enum):
    """kubelet's topologyManagerScope."""

    CONTAINER = "container"
    """The policy applies to each container by itself."""
    POD = "pod"
    """The policy applies to all containers of the pod together."""


class KubeletConfiguration(Model, frozen=True, omit_defaults=False):
    """Settings of the node's kubelet that decide which devices it gives to a container."""

    topology_manager_policy: TopologyManagerPolicy = TopologyManagerPolicy.NONE
    """kubelet rejects a pod whose devices do not comply with restricted or single-numa-node."""
    topology_manager_scope: TopologyManagerScope = TopologyManagerScope.CONTAINER
    """Whether the policy applies to each container or to the whole pod."""
    aligned_resources: list[str] = msgspec.field(default_factory=list)
    """Resources that kubelet aligns with the devices of pools: cpu (cpuManagerPolicy static), memory
    (memoryManagerPolicy Static), and those of other device plugins with NUMA nodes. Where there is one, kubelet itself
    chooses the NUMA nodes of a container."""


class DriverVersions(Model, frozen=True):
    """Versions that the node reports."""

    version: str = ""
    """Version of the driver."""
    cuda_version: str = ""
    """Highest CUDA version that the driver supports."""
    toolkit_version: str = ""
    """Version of the container toolkit."""


class NodeSystem(Model, frozen=True):
    """Kernel and operating system of the node, which decide about its driver."""

    kernel: str = ""
    """Release of the kernel, such as 6.8.0-45-generic."""
    os: str = ""
    """ID of the operating system, such as ubuntu."""
    os_version: str = ""
    """Version of the operating system, such as 22.04; empty where it has none."""


class OperandStatus(Model, frozen=True, omit_defaults=False):
    """A component of the node's GPU software, as its pod on the node reports it."""

    name: str
    """Name of the component."""
    ready: bool = False
    """Whether it is ready."""
    reason: str = ""
    """Why it is ready or not, in CamelCase; for programs."""
    message: str = ""
    """Why it is not ready, for people; empty if it is ready or not required."""
    since: str = ""
    """Time of the last change of `ready`."""


class Monitoring(Model, frozen=True):
    """When the metrics of the node's devices last arrived."""

    last_heartbeat: str | None = None
    """Last time that the node's DCGM exporter answered with its metrics. It is updated together with other fields
    and when the exporter falls silent: the time of one that answers may be old. It is absent where no exporter was
    read: with the source NVML the node agent's lastHeartbeat counts."""


class PoolDevices(Model, frozen=True):
    """Devices of one pool on the node."""

    pool: str
    """Name of the GPUPool."""
    devices: list[str]
    """Names of the GPUDevices."""


class PoolMembership(Model, frozen=True):
    """Devices that wait for a decision, devices that are about to join a pool, and assigned devices."""

    candidates: list[PoolDevices] | None = None
    """Devices that a pool selects, and takes once they are annotated with it: they wait for nothing else. A device is
    listed with each such pool."""
    pending: list[PoolDevices] | None = None
    """Devices that a pool is to get, by pool."""
    assigned: list[PoolDevices] | None = None
    """Devices that are in a pool, by pool."""


class DeviceCounts(Model, frozen=True, omit_defaults=False):
    """Numbers of the node's devices; a device in a pool may be faulted."""

    total: int = 0
    """Devices of the node."""
    pooled: int = 0
    """Devices that are in a pool."""
    faulted: int = 0
    """Devices that report a fault."""


class ContainerDevices(Model, frozen=True):
    """Units that kubelet allocated to one container."""

    namespace: str
    """Namespace of the pod."""
    pod: str
    """Name of the pod."""
    container: str
    """Name of the container."""
    resource: str
    """The extended resource."""
    units: list[str]
    """Ids of the allocated units."""
    uid: str = ""
    """UID of the pod."""


class DriverProcess(Model, frozen=True):
    """Processes with the NVIDIA driver open: those of a pod, or those of the node itself with one name."""

    command: str
    """Name of one of the processes, without arguments: 15 characters at most."""
    namespace: str = ""
    """Namespace of the pod; absent for processes in no pod, or of a pod that is gone."""
    pod: str = ""
    """Name of the pod."""
    uid: str = ""
    """UID of the pod, as its cgroup has it; a static pod has the one that kubelet gave it."""
    pid: int = 0
    """Process id on the node, where there is no pod to name; absent where the processes come and go."""


class GPUNodeInventorySpec(Model, frozen=True):
    """Empty: an inventory is observed, and has no desired state."""


class GPUNodeInventoryStatus(Model, frozen=True):
    """Observed GPU state of the node."""

    devices: list[str] | None = None
    """Names of the node's GPUDevices."""
    device_counts: DeviceCounts = DeviceCounts()
    driver: DriverVersions = DriverVersions()
    system: NodeSystem = NodeSystem()
    kubelet: KubeletConfiguration | None = None
    """The kubelet's settings; absent while they are unknown, which counts as policy none."""
    managed: bool = True
    """False if the node opts out by its label."""
    phase: BootstrapPhase | None = None
    operands: list[OperandStatus] | None = None
    """Components of the node's GPU software that were observed."""
    monitoring: Monitoring = Monitoring()
    last_heartbeat: str | None = None
    """Last heartbeat of the node's agent. It is updated together with other fields, or when the agent
    falls silent, so that a quiet node costs no writes."""
    pools: PoolMembership = PoolMembership()
    allocations: list[ContainerDevices] | None = None
    """Actual allocations of every container with devices, as kubelet reports them; written by the agent. Init
    containers, which kubelet does not report, have the assigned units that no other container of their pod has."""
    driver_processes: list[DriverProcess] | None = None
    """Processes that keep the driver from being unloaded, other than those of pods whose requests say so, and of
    operands that leave by their label. Written by the agent where it differs, twice a minute at most."""
    driver_processes_omitted: int = 0
    """Further entries of `driverProcesses` that do not fit."""
    conditions: list[Condition] | None = None
    """ReadyForPooling (with the reason why no device joins a pool), the checks of the GPU software,
    InventoryIncomplete, ManagedDisabled, and AgentDegraded."""


class GPUNodeInventory(Model, frozen=True):
    """The observed GPU state of one node; it has the node's name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: GPUNodeInventorySpec = GPUNodeInventorySpec()
    status: GPUNodeInventoryStatus = msgspec.field(default_factory=GPUNodeInventoryStatus)
