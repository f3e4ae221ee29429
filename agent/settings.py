"""Settings of the agent: its command line."""

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import final

from api.nodefiles.node_devices_file import RUN_DIRECTORY
from api.nodefiles.pluginproblems import POOL_PATTERN
from api.nodefiles.poolconfig import PLUGINS_DIRECTORY, HandOut

PROBES_PORT = 8081
CDI_KIND = "gpu.deckhouse.io/gpu"
"""Kind of the agent's CDI specification, which names devices and MIG instances by UUID."""
VALIDATIONS_DIRECTORY = "/run/nvidia/validations"
"""Directory of the validator's files; its name is that of NVIDIA's GPU Operator."""
TERMINATION_LOG = "/run/termination-log"
"""`terminationMessagePath` of our containers: not below /dev, which may be the node's."""


class AgentRole(Enum):
    """Roles of an agent; several in one process share their caches."""

    INVENTORY = "inventory"
    """Finds the node's devices, publishes them, and reports the actual allocations of containers."""
    HEALTH = "health"
    """Waits for the driver's events, so that faults count at once; with inventory, whose snapshots show lasting
    faults (a lost device, heat, error counters) without it, too."""
    MIG = "mig"
    """Partitions devices into the MIG instances of their pools; with inventory."""
    TELEMETRY = "telemetry"
    """Serves the metrics of the node's devices; with inventory."""
    DEVICE_PLUGIN = "device-plugin"
    """Advertises the devices of one pool, or of all pools, to kubelet."""
    VALIDATOR = "validator"
    """Keeps the validator's files true after its init containers (`gpu-control-plane validate`) wrote them; alone."""
    DETECT = "detect"
    """Tells whether the node has a device, where no node agent runs yet; alone in its process."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Settings of one agent; directories are in the view of the agent's process."""

    node: str
    roles: frozenset[AgentRole]
    namespace: str
    """Namespace of the NodeFeature."""
    config: Path | None = None
    """The config file of one pool; None serves all pools of the node from the API server."""
    pool: str = ""
    """Name of that pool, known before its file is valid: the plugin reports its problems to the node's agent under
    this name. Empty: it does not report them."""
    ignored_xids: frozenset[int] | None = None
    """Xids that are an application's fault; None is `inventory.health.device.IGNORED_XIDS`, which plugins do not load."""
    hand_out: HandOut = HandOut.CDI
    cdi_kind: str = CDI_KIND
    plugins_directory: Path = Path(PLUGINS_DIRECTORY)
    pod_resources_directory: Path = Path("/var/lib/kubelet/pod-resources")
    run_directory: Path = Path(RUN_DIRECTORY)
    cdi_directory: Path = Path("/var/run/cdi")
    driver_root: Path = Path("/")
    """Mount of the node's root, for the driver's libraries."""
    procfs: Path = Path("/proc")
    """Directory of the driver's files in /proc."""
    processes: Path = Path("/proc")
    """Directory of the node's processes."""
    dev_root: Path = Path("/dev")
    sysfs: Path = Path("/sys")
    nvml_library: Path | None = None
    """None searches under the driver's root."""
    steps: tuple[str, ...] = ("driver", "toolkit", "cuda")
    """Steps that the role validator keeps true (`agent.validator.steps`)."""
    validations_directory: Path = Path(VALIDATIONS_DIRECTORY)
    termination_log: Path = Path(TERMINATION_LOG)
    host: str = "0.0.0.0"  # noqa: S104  # the pod's own network; probes and metrics only
    port: int = PROBES_PORT
    kubeconfig: Path | None = None

    def __post_init__(self) -> None:
        """Refuse combinations of roles and settings without effect.

        Raises:
            ValueError: the missing setting, for the command line.
        """
        if not self.roles:
            raise ValueError("an agent needs a role")
        if AgentRole.DETECT in self.roles and len(self.roles) > 1:
            raise ValueError("detect runs alone: an agent with other roles reads the bus itself")
        alone = {AgentRole.HEALTH, AgentRole.MIG, AgentRole.TELEMETRY} & self.roles
        if alone and AgentRole.INVENTORY not in self.roles:
            names = " and ".join(sorted(role.value for role in alone))
            raise ValueError(f"{names} requires the role inventory: add it to --roles")
        if AgentRole.VALIDATOR in self.roles and len(self.roles) > 1:
            raise ValueError("validator is a role alone: its pod ends with the cause of a failure")
        if self.config is not None and AgentRole.DEVICE_PLUGIN not in self.roles:
            raise ValueError("--config is for the role device-plugin")
        if self.pool and self.config is None:
            raise ValueError("--pool names the pool of --config: add --config")
        if self.pool and not re.match(POOL_PATTERN, self.pool):
            raise ValueError(f"--pool: {self.pool!r} is no valid pool name")
        if self.ignored_xids is not None and AgentRole.INVENTORY not in self.roles:
            raise ValueError("--ignored-xids is for the role inventory")
