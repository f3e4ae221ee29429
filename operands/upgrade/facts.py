"""Facts about a node whose driver may be upgraded, as gathered: labels and annotations as written, pods as observed.

Times are aware. Any value of any field leads to an answer: a label that was written by hand is judged by
`operands.upgrade.record`.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, final

from api.names import RESOURCE_PREFIX, PoolName
from api.vendor import GPU_RESOURCE, MIG_RESOURCE_PREFIX
from operands.errors import UnreadPodsError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping

    from api.names import NodeName, PodUid


class DriverRevision(Enum):
    """The revision of a driver pod's template, compared with the newest one of its DaemonSet."""

    CURRENT = "current"
    OUTDATED = "outdated"
    ORPHAN = "orphan"
    """The pod has no DaemonSet."""
    UNKNOWN = "unknown"
    """The pod has no revision label, or the DaemonSet has no revision."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPod:
    namespace: str
    name: str
    uid: "PodUid"
    revision: DriverRevision
    is_ready: bool
    """Running, with at least one container, and all of them ready."""
    is_scheduled: bool = True
    is_terminating: bool = False
    restarts: int = 0
    """The most restarts of a container, or init container, that is not ready."""
    config_digest: str = ""
    """Its environment variable DRIVER_CONFIG_DIGEST."""
    message: str = ""
    """Why it is not scheduled or not ready, as the scheduler or kubelet says."""


class PodOwner(Enum):
    """What becomes of a pod that is evicted."""

    CONTROLLER = "controller"
    """Its controller creates another, on some node."""
    DAEMON_SET = "daemonSet"
    """Its controller creates another on the same node, cordoned or not."""
    MIRROR = "mirror"
    """kubelet shows it; it cannot be evicted."""
    NONE = "none"
    """It is lost."""


class DriverUse(Enum):
    """How a pod uses the driver."""

    NVIDIA_GPU = GPU_RESOURCE
    MIG = "nvidia.com/mig"
    CLAIM = "claim"
    """A DRA claim without admin access."""
    POOL = "pool"
    """It requests a resource of a GPUPool."""
    OPEN = "open"
    """One of its processes has the driver open; its requests may say nothing of it."""


class EvictionAnswer(Enum):
    """What its disruption budgets say about evicting a pod now."""

    ALLOWED = "allowed"
    REFUSED = "refused"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PodOnNode:
    """A pod on the node that is no driver pod."""

    namespace: str
    name: str
    uid: "PodUid"
    labels: "Mapping[str, str]" = field(default_factory=dict)
    owner: PodOwner = PodOwner.CONTROLLER
    uses: frozenset[DriverUse] = frozenset()
    """Empty: it does not use the driver."""
    pools: frozenset[PoolName] = frozenset()
    is_active: bool = True
    """Pending or Running."""
    is_terminating: bool = False
    is_agent: bool = False
    """A pod of this control plane that leaves by `api.driver_upgrade.AGENT_DEPLOY_LABEL`."""
    agent: str = ""
    """Name of the DaemonSet of such a pod."""
    is_ready: bool = True
    """Asked of agents only."""
    deploy_label: str = ""
    """Key of the label by which its DaemonSet selects nodes, where the pod can be sent away by it."""
    is_held: bool = False
    """NVIDIA's GPU Operator may have made it: it goes with the driver, if no label sends it away."""
    has_empty_dir: bool = False
    mounts_caches: bool = False
    """The node agent unmounts its kernel caches: without one on the node it stays Terminating."""
    cpu_milli: int = 0
    """CPU that it requests."""
    memory_mib: int = 0
    priority: int = 0
    ends_at: "dt.datetime | None" = None
    """When it is expected to end; None: not known."""
    eviction: EvictionAnswer = EvictionAnswer.ALLOWED
    eviction_message: str = ""
    """The budget that refuses, with its figures."""

    @property
    def ref(self) -> str:
        return f"{self.namespace}/{self.name}"


@final
@dataclass(frozen=True, slots=True)
class HostProcess:
    """A process with the driver open that is in no pod; several where they come and go."""

    pid: int
    """0: they come and go."""
    command: str

    @property
    def ref(self) -> str:
        return f"process {self.pid} ({self.command})" if self.pid else f"processes {self.command}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatorPod:
    name: str
    is_ready: bool
    """Ready, and its checks passed with the driver that runs now."""
    message: str = ""
    namespace: str = ""
    uid: "PodUid | None" = None
    is_outdated: bool = False
    """Ready, and its checks passed before the driver pod started: it is to check again."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeNode:
    """A node on which a driver DaemonSet wants a pod, or has one, or that still has a label of an upgrade."""

    name: "NodeName"
    labels: "Mapping[str, str]" = field(default_factory=dict)
    annotations: "Mapping[str, str]" = field(default_factory=dict)
    is_schedulable: bool = True
    owns_cordon: bool = False
    """Whether `api.driver_upgrade.CORDON_MANAGER` is the field manager of `spec.unschedulable`."""
    is_ready: bool = True
    is_leaving: bool = False
    """It is being deleted, or its autoscaler is about to remove it."""
    is_selected: bool = True
    """Whether a driver DaemonSet selects the node."""
    driver_pods: tuple[DriverPod, ...] = ()
    """Driver pods of all driver DaemonSets, and those without one."""
    desired_revision: str = ""
    """Newest revision of the DaemonSet for the node."""
    desired_digest: str = ""
    """DRIVER_CONFIG_DIGEST of that revision."""
    driver_obstacle: str = ""
    """What would keep another driver pod from the node, with the cure; empty: nothing that is known."""
    validators: tuple[ValidatorPod, ...] = ()
    pods: tuple[PodOnNode, ...] | None = None
    """All others on the node; None: they are not read, so that nothing may be concluded from them."""
    agents: frozenset[str] = frozenset()
    """DaemonSets of this control plane that make a pod on the node unless its upgrade keeps that away; of a node at rest they
    are not read."""
    processes: tuple[HostProcess, ...] = ()
    reported_reason: str = ""
    """`reason` of its entry in `status.upgrade`, as last written; empty without an entry. Texts behind a colon are ignored."""

    @property
    def identified_pods(self) -> tuple[PodOnNode, ...]:
        """Return `pods` of a node whose pods are read.

        Raises:
            UnreadPodsError: they are not.
        """
        if self.pods is None:
            raise UnreadPodsError(f"the pods of node {self.name} are asked for, and are not read")
        return self.pods


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeTimes:
    now: "dt.datetime"
    leading_since: "dt.datetime"
    """Time since when this process acts: time in which nothing acted counts for no deadline."""


def uses_of(
    resources: "Iterable[str]", *, has_claim: bool = False, has_driver_open: bool = False
) -> tuple[frozenset[DriverUse], frozenset[PoolName]]:
    """Return how a pod uses the driver, and the pools that it uses.

    Args:
        resources: names of resources that any of its containers requests or is limited to.
        has_claim: whether it holds a DRA claim of `gpu.nvidia.com` without admin access.
        has_driver_open: whether the node agent finds one of its processes with the driver open.
    """
    uses: set[DriverUse] = set()
    pools: set[PoolName] = set()
    for name in resources:
        if name.startswith(GPU_RESOURCE):
            uses.add(DriverUse.NVIDIA_GPU)
        elif name.startswith(MIG_RESOURCE_PREFIX):
            uses.add(DriverUse.MIG)
        elif name.startswith(RESOURCE_PREFIX):
            uses.add(DriverUse.POOL)
            pools.add(PoolName(name.removeprefix(RESOURCE_PREFIX)))
    if has_claim:
        uses.add(DriverUse.CLAIM)
    if has_driver_open:
        uses.add(DriverUse.OPEN)
    return frozenset(uses), frozenset(pools)
