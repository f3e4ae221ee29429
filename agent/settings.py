"""Settings of the agent: its command line."""

import re
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, final

from api.nodefiles.node_devices_file import RUN_DIRECTORY
from api.nodefiles.pluginproblems import POOL_PATTERN
from api.nodefiles.poolconfig import PLUGINS_DIRECTORY, DeviceInjection

if TYPE_CHECKING:
    from inventory.health.recovery import XidActions

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
    """Partitions devices into the MIG instances of their pools, and resets those whose repair asks for it; with
    inventory."""
    TELEMETRY = "telemetry"
    """Serves the metrics of the node's devices; with inventory."""
    DEVICE_PLUGIN = "device-plugin"
    """Advertises the devices of one pool, or of all pools, to kubelet."""
    CACHES = "caches"
    """Pulls and extracts kernel caches, and writes the node's GKMCacheNodes; with csi and inventory."""
    CSI = "csi"
    """Mounts kernel caches into pods; with caches."""
    VALIDATOR = "validator"
    """Keeps the validator's files true after its init containers (`gpu-control-plane validate`) wrote them; alone."""
    DETECT = "detect"
    """Reports whether the node has a device, where no node agent runs yet; alone in its process."""


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
    xid_actions: "XidActions" = field(default_factory=dict)
    """What a device needs after an Xid, in place of the driver's word and of NVIDIA's catalog."""
    hand_out: DeviceInjection = DeviceInjection.CDI
    cdi_kind: str = CDI_KIND
    plugins_directory: Path = Path(PLUGINS_DIRECTORY)
    pod_resources_directory: Path = Path("/var/lib/kubelet/pod-resources")
    run_directory: Path = Path(RUN_DIRECTORY)
    cdi_directory: Path = Path("/var/run/cdi")
    driver_root: Path = Path("/")
    """Mount of the node's root, for the driver's libraries."""
    driver_libraries: str = ""
    """Directory under the driver's root that is searched first for them."""
    procfs: Path = Path("/proc")
    """Directory of the driver's files in /proc."""
    processes: Path = Path("/proc")
    """Directory of the node's processes."""
    dev_root: Path = Path("/dev")
    sysfs: Path = Path("/sys")
    steps: tuple[str, ...] = ("driver", "toolkit", "cuda")
    """Steps that the role validator keeps true (`agent.validator.steps`)."""
    validations_directory: Path = Path(VALIDATIONS_DIRECTORY)
    termination_log: Path = Path(TERMINATION_LOG)
    caches_directory: Path = Path("/var/lib/gkm")
    """Store of extracted kernel caches."""
    caches_quota: int | None = None
    """Bytes that extracted caches may take; None is no limit."""
    caches_grace: float = 300.0
    """Seconds that content stays which no cache names and no pod uses any more."""
    kubelet_directory: Path = Path("/var/lib/kubelet")
    """kubelet's root, at the path that it has on the node: with its pods, its plugins and plugins_registry."""
    registries_plain_http: frozenset[str] = frozenset()
    """`host:port` of registries that are asked without TLS."""
    registries_private: frozenset[str] = frozenset()
    """`host:port` of registries, token servers and blob stores whose addresses need not be public."""
    registries_ca_file: Path | None = None
    """Authorities of registries to trust instead of the system's."""
    cache_pull_secrets: frozenset[str] = frozenset()
    """Secrets of our namespace that ClusterGKMCaches may name."""
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
        self._check_caches()
        if AgentRole.VALIDATOR in self.roles and len(self.roles) > 1:
            raise ValueError("validator is a role alone: its pod ends with the cause of a failure")
        if self.config is not None and AgentRole.DEVICE_PLUGIN not in self.roles:
            raise ValueError("--config is for the role device-plugin")
        if self.pool and self.config is None:
            raise ValueError("--pool names the pool of --config: add --config")
        if self.pool and not re.match(POOL_PATTERN, self.pool):
            raise ValueError(f"--pool: {self.pool!r} is no valid pool name")
        if self.xid_actions and AgentRole.INVENTORY not in self.roles:
            raise ValueError("--xid-actions is for the role inventory")

    def _check_caches(self) -> None:
        of_caches = {AgentRole.CACHES, AgentRole.CSI}
        missing = of_caches - self.roles
        if len(missing) == 1:
            (have,) = of_caches - missing
            (role,) = missing
            raise ValueError(f"{have.value} requires the role {role.value}: add it to --roles")
        if not missing and AgentRole.INVENTORY not in self.roles:
            raise ValueError("caches and csi require the role inventory: add it to --roles")
        if self.caches_quota is not None and self.caches_quota <= 0:
            raise ValueError(f"--caches-quota is {self.caches_quota}: it must be above 0")
        if self.caches_grace < 0:
            raise ValueError(f"--caches-grace is {self.caches_grace:g}: it must be 0 or more")
        for name, path in (
            ("caches", self.caches_directory),
            ("kubelet", self.kubelet_directory),
        ):
            if not path.is_absolute():
                raise ValueError(f"--{name}-directory is {path}: it must be an absolute path")
        if missing and (flag := self._set_without_caches()):
            raise ValueError(f"{flag} is for the roles caches and csi")

    def _set_without_caches(self) -> str:
        """Return the first flag of kernel caches that is set; empty where none is."""
        given = {
            "--caches-quota": self.caches_quota is not None,
            "--registries-plain-http": bool(self.registries_plain_http),
            "--registries-private": bool(self.registries_private),
            "--registries-ca-file": self.registries_ca_file is not None,
            "--cache-pull-secrets": bool(self.cache_pull_secrets),
        }
        return next((flag for flag, is_set in given.items() if is_set), "")
