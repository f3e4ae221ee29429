"""What the agent's command line says."""

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import final

from api.nodefiles.devices import RUN_DIRECTORY
from api.nodefiles.pluginproblems import POOL_PATTERN
from api.nodefiles.poolconfig import PLUGINS_DIRECTORY, HandOut

PROBES_PORT = 8081
CDI_KIND = "gpu.deckhouse.io/gpu"
"""Under which our own CDI specification names cards and MIG instances by UUID."""


class AgentRole(Enum):
    """What an agent does; several in one process share what they watch and know."""

    INVENTORY = "inventory"
    """Finds the node's cards, publishes them, and reports what containers really got."""
    HEALTH = "health"
    """Waits for what the driver tells of faults, so that they count at once; with inventory, whose looks
    show what lasts (a lost card, heat, counters of errors) without it, too."""
    MIG = "mig"
    """Cuts cards into MIG instances as their pools want them; with inventory."""
    DEVICE_PLUGIN = "device-plugin"
    """Offers the cards of one pool, or of all pools, to kubelet."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """All of them; directories are as the agent's process sees them."""

    node: str
    roles: frozenset[AgentRole]
    namespace: str
    """Where the NodeFeature is."""
    config: Path | None = None
    """The list of one pool; None serves all pools of the node, as the API server has them."""
    pool: str = ""
    """Which pool that is, known before the list makes sense: under this name the node's agent is told of the
    plugin's problems. Empty: it is not told."""
    ignored_xids: frozenset[int] | None = None
    """Xids that are an application's fault; None is `inventory.health.device.IGNORED_XIDS`, which plugins do not load."""
    hand_out: HandOut = HandOut.CDI
    cdi_kind: str = CDI_KIND
    plugins_directory: Path = Path(PLUGINS_DIRECTORY)
    pod_resources_directory: Path = Path("/var/lib/kubelet/pod-resources")
    run_directory: Path = Path(RUN_DIRECTORY)
    cdi_directory: Path = Path("/var/run/cdi")
    driver_root: Path = Path("/")
    """Where the node's root is mounted, for the driver's libraries."""
    procfs: Path = Path("/proc")
    """Where the driver's files are."""
    processes: Path = Path("/proc")
    """Where the node's processes are."""
    dev_root: Path = Path("/dev")
    sysfs: Path = Path("/sys")
    nvml_library: Path | None = None
    """None looks for it under the driver's root."""
    host: str = "0.0.0.0"  # noqa: S104  # the pod's own network; probes and metrics only
    port: int = PROBES_PORT
    kubeconfig: Path | None = None

    def __post_init__(self) -> None:
        """Refuse roles that cannot work alone.

        Raises:
            ValueError: what is missing, in words for the command line.
        """
        if not self.roles:
            raise ValueError("an agent needs a role")
        alone = {AgentRole.HEALTH, AgentRole.MIG} & self.roles
        if alone and AgentRole.INVENTORY not in self.roles:
            names = " and ".join(sorted(role.value for role in alone))
            raise ValueError(f"{names} works with what inventory finds: add the role inventory")
        if self.config is not None and AgentRole.DEVICE_PLUGIN not in self.roles:
            raise ValueError("--config is for the role device-plugin")
        if self.pool and self.config is None:
            raise ValueError("--pool names the pool whose list --config is: add --config")
        if self.pool and not re.match(POOL_PATTERN, self.pool):
            raise ValueError(f"--pool: {self.pool!r} is no name of a pool")
        if self.ignored_xids is not None and AgentRole.INVENTORY not in self.roles:
            raise ValueError("--ignored-xids is for the role inventory, which judges cards")
