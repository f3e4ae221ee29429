"""Facts that the core keeps: API objects without the fields that decide nothing.

Every type is frozen, and equal values mean "unchanged". Types that each decision creates are msgspec structs,
which are created in a tenth of a frozen dataclass's time.
"""

import copy
import datetime as dt
from dataclasses import InitVar, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from api.driver_upgrade import EMPTYING_VALUES, IN_PROGRESS_VALUES, UPGRADE_STATE_LABEL
from api.kinds.gpupool import DeviceTopology, Reserve, SlicePlacement
from pool.compute_resources import NOTHING, ComputeResources
from pool.node_affinity import RequiredNodeAffinity, Tolerations
from pool.peer_rules import Peer, PeerRule
from pool.refusal import NodeReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from api.annotations import AccessNote, Devices, ReservationNote
    from api.cache_name import CacheName
    from api.foreign.core import (
        Affinity,
        NodeSelectorTerm,
        NodeTaint,
        PreferredSchedulingTerm,
        Toleration,
    )
    from api.kinds.gpunodeinventory import TopologyManagerPolicy, TopologyManagerScope
    from api.kinds.gpupool import AllocationMode, Strategy, WhenExhausted
    from api.mig.layout import Shares
    from api.names import DeviceName, NodeName, PodUid, PoolName

    PeerTest = tuple[str, Callable[["NodeFacts"], bool]]
    """A rule about other pods, in words, and whether a node satisfies it."""


class ContainerRole(Enum):
    """Start order of a container, by which kubelet shares devices between containers."""

    INIT = "init"
    """Runs to its end; later containers reuse its devices."""
    SIDECAR = "sidecar"
    """An init container with restartPolicy Always; it keeps its devices."""
    MAIN = "main"


class ContainerDemand(msgspec.Struct, frozen=True):
    """Units of one container, at least 1."""

    name: str
    role: ContainerRole
    units: int


class Demand(msgspec.Struct, frozen=True, cache_hash=True):
    """A pod's demand on one pool, in kubelet's order: init containers, then containers."""

    resource: str
    containers: tuple[ContainerDemand, ...]
    units: int
    """Distinct units that the pod occupies (`pool.demand.distinct_units`)."""
    caches: "tuple[CacheName, ...]" = ()
    """Kernel caches that the pod mounts, which must fit its devices; those that are unknown demand nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """Facts of a GPUPool."""

    name: "PoolName"
    uid: str
    resource: str
    mode: "AllocationMode"
    strategy: "Strategy"
    ttl_s: int
    when_exhausted: "WhenExhausted"
    mig_profile: str = ""
    """Profile of all units; empty where the pool has several."""
    mig: "Shares" = ()
    """Layout of a device with several profiles."""
    parts: "tuple[PoolFacts, ...]" = ()
    """The pool as pods see it, where it has several MIG profiles: the units of each, under a resource and a name of
    their own. Devices, nodes and the allocation belong to the whole."""
    slices_per_device: int = 1
    slice_placement: SlicePlacement = SlicePlacement.DISTINCT_DEVICES
    device_topology: DeviceTopology = DeviceTopology.PREFERRED
    reserve: Reserve = Reserve.NODE
    created: str = ""
    """Creation time: of two pools that claim one resource the older serves it."""
    is_terminating: bool = False
    is_in_maintenance: bool = False
    """No unit is allocated: its allocation is being changed, or others partition its devices."""
    drift: str = ""
    """What others did to its devices, and what ends the maintenance that follows from it; empty without one."""
    spread_key: str = ""
    """Label of nodes over whose values admission spreads pods; empty where the strategy is another one than `Spread`."""
    largest_shape: int = 0
    """Most units of a node that autoscaling may add; 0 where the pool does not scale."""

    @property
    def scales(self) -> bool:
        return self.largest_shape > 0

    @property
    def allocation(self) -> "tuple[AllocationMode, Shares, int]":
        """The allocation that the layouts of its devices follow from."""
        return self.mode, self.shares, self.slices_per_device

    @property
    def shares(self) -> "Shares":
        """Layout of a device in mode MIG."""
        return self.mig or (((self.mig_profile, None),) if self.mig_profile else ())

    @property
    def is_part(self) -> bool:
        """Whether these are the units of one MIG profile of a pool that has several."""
        return bool(self.mig) and not self.parts

    @property
    def served(self) -> "tuple[PoolFacts, ...]":
        """The pool as pods see it: itself, or its parts."""
        return self.parts or (self,)

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources that pods request."""
        return tuple(part.resource for part in self.parts) if self.parts else (self.resource,)

    @property
    def constrains_sets(self) -> bool:
        """Whether a pod may not fit a node of the pool with enough free units."""
        return (
            self.slice_placement is SlicePlacement.SAME_DEVICE
            or self.device_topology is DeviceTopology.REQUIRED
        )

    @property
    def closed(self) -> NodeReason | None:
        """The reason why the pool allocates no units, or None."""
        if self.is_terminating:
            return NodeReason.POOL_ENDING
        return NodeReason.POOL_CHANGING if self.is_in_maintenance else None


class DeviceLink(msgspec.Struct, frozen=True, gc=False):
    """A connection of a device to another one of its node."""

    peer: "DeviceName"
    type: str
    """Type as in a GPUDevice: NVLink, PIX, PXB, PHB, NODE or SYS."""
    count: int = 1


class KubeletTopology(msgspec.Struct, frozen=True):
    """The TopologyManager settings of a node's kubelet."""

    policy: "TopologyManagerPolicy"
    scope: "TopologyManagerScope"
    knows_numa_nodes: bool = False
    """Whether the plugins tell it the NUMA nodes of devices, so that it chooses among them (`agent.plugin.numa_hints`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """Facts of a GPUDevice."""

    name: "DeviceName"
    node: "NodeName"
    uuid: str
    """Empty while the driver has not reported it: such a device has no units."""
    pool: "PoolName | None" = None
    is_faulted: bool = False
    needed_action: str = ""
    """What it needs while it is faulted (`inventory.health.recovery.RecoveryAction`)."""
    is_draining: bool = False
    """The device leaves its pool; no unit of it is allocated."""
    mig_instances: tuple[tuple[str, str], ...] = ()
    """(profile, UUID) of each MIG instance."""
    mig_capacities: tuple[tuple[str, int], ...] = ()
    """(profile, number of its instances that fit the empty device); empty while the driver has not said."""
    is_partitioned: bool = False
    """MIG is enabled, with or without instances: no process can use the device as a whole."""
    created: str = ""
    """Creation time: of two devices that claim one UUID the older owns it."""
    compute_capability: str = ""
    """Compute capability as in a GPUDevice, `9.0`; empty while it is unknown."""
    numa_node: int | None = None
    links: tuple[DeviceLink, ...] = ()
    """Links to other devices of the node, in the order of its object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """Facts of a Node."""

    name: "NodeName"
    is_ready: bool = True
    is_cordoned: bool = False
    is_leaving: bool = False
    """It is being deleted, or its autoscaler is about to remove it: its free units are gone."""
    is_starting: bool = False
    """It has the startup taint of autoscaling: its units are for the pods that it came for, whatever others tolerate."""
    is_withheld: bool = False
    """Its devices take no new pod until the upgrade of its driver is over."""
    returns_by: dt.datetime | None = None
    """Time by which the upgrade of its driver goes on, after which its units return; None: not known."""
    labels: "Mapping[str, str]"
    taints: "tuple[NodeTaint, ...]" = ()
    pool_taints: str = ""
    """The node's annotation that names the taints set by this control plane."""
    do_not_disrupt: str = ""
    """The annotation by which Karpenter leaves the node alone; empty without it."""
    keep_until: str = ""
    """The annotation that says until when this control plane wants that; empty where it does not."""
    resource_version: str = field(default="", compare=False)
    """Resource version of the last observed object; a heartbeat is no change."""
    uid: str = ""
    """UID for owner references: a node that is deleted and recreated has another one."""
    owns_present_label: bool = False
    """Whether this control plane set `api.names.PRESENT_LABEL`."""
    owns_reboot_cordon: bool = False
    """Whether this control plane cordoned it for a reboot."""
    kernel: str = ""
    """Release of its kernel, as kubelet says."""
    runtime: str = ""
    """Its container runtime and that one's version, as kubelet says."""
    deploy_labels: str = ""
    """The node's annotation that names the labels set for a ClusterPolicy's operands."""
    upgrade_enabled: str = ""
    """The annotation that says whether the node gets a new driver by itself."""
    cpu_milli: int | None = None
    """CPU that pods can be given; None where the Node does not say."""
    memory_mib: int | None = None
    """Memory that pods can be given."""
    most_pods: int | None = None
    """How many pods kubelet runs there."""
    pool_units: tuple[tuple[str, int], ...] = ()
    """(resource, units) of each pool whose units kubelet allocates there, sorted."""

    @property
    def is_in_upgrade(self) -> bool:
        """Whether the upgrade of its driver has begun and is not over: what it has free returns, and is not idle."""
        return self.labels.get(UPGRADE_STATE_LABEL, "") in IN_PROGRESS_VALUES

    @property
    def is_being_emptied(self) -> bool:
        """Whether the users of its driver leave for its upgrade."""
        return self.labels.get(UPGRADE_STATE_LABEL, "") in EMPTYING_VALUES

    @property
    def is_placeable(self) -> bool:
        """Whether units may be reserved there."""
        is_ready = self.is_ready and not self.is_cordoned and not self.is_withheld
        return is_ready and not self.is_leaving and not self.is_starting


class PodSelection(msgspec.Struct, frozen=True, gc=False):
    """What a pending pod demands of its node, beyond units: for planning nodes that do not exist yet."""

    node_selector: tuple[tuple[str, str], ...] = ()
    """Sorted; without the label of the pool's nodes, which admission adds."""
    affinity: "tuple[NodeSelectorTerm, ...]" = ()
    """Required terms, of which one must hold."""
    tolerations: "tuple[Toleration, ...]" = ()
    resources: tuple[tuple[str, int], ...] = ()
    """Whole amounts of resources beside CPU, memory and units, such as ephemeral storage; sorted."""
    claims: tuple[str, ...] = ()
    """Names of its PersistentVolumeClaims: where their volumes are is in other objects."""
    peers: tuple[PeerRule, ...] = ()
    omitted: tuple[str, ...] = ()
    """Demands on the node that no other field represents, in words."""
    unweighed: tuple[str, ...] = ()
    """Fields of its spec by which kube-scheduler may refuse a node, and of which the nodes' facts are not kept; its rules
    about other pods and its preferences are not among them."""
    undecided: str = ""
    """Why no node can be the right one yet."""
    preferred: tuple[PeerRule, ...] = ()
    """Preferences by other pods."""
    preferred_nodes: "tuple[PreferredSchedulingTerm, ...]" = ()


class UnitsCondition(msgspec.Struct, frozen=True, gc=False):
    """The condition by which a pod says whether units are available, as `reconciler.pod` wrote it; times as there."""

    is_true: bool
    reason: str
    message: str
    transitioned: str
    """When the status changed."""
    written: str
    """When the condition was written."""


class PodPhase(Enum):
    """Accounting phase of an observed pod."""

    PENDING = "pending"
    """Not bound: it may have a reservation, and has no devices."""
    BOUND = "bound"
    ENDED = "ended"
    """Succeeded or Failed: kubelet has released its devices."""

    @property
    def observe_order(self) -> int:
        """The order in which the pods of a list are taken over.

        Ended pods free units that later ones may use; bound ones come before pending ones, so that a reservation
        restored from an annotation cannot take their units.
        """
        return ("ended", "bound", "pending").index(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """Facts of a pod that names a pool."""

    uid: "PodUid"
    namespace: str
    name: str
    demand: Demand
    phase: PodPhase
    node: "NodeName | None" = None
    devices: "Devices | None" = None
    """None on a bound pod: its units are unknown."""
    reservation: "ReservationNote | None" = None
    nominated_node: "NodeName | None" = None
    access: "AccessNote | None" = None
    """Access that the pod inherited from the author of its workload's template."""
    created: str = ""
    priority: int = 0
    is_gated: bool = False
    """It has scheduling gates of others, so that it does not wait for units."""
    awaits_capacity: bool = False
    """It has our own gate: it waits for units, and kube-scheduler ignores it until they are reserved."""
    selection: PodSelection | None = None
    """Selection of a pending pod."""
    inadmissible_units: tuple[tuple[str, int], ...] = ()
    """(resource, units) by pool, of a bound pod that admission would have denied: it names several pools, or an
    invalid quantity. `demand` names the first of its pools, and its devices are unknown.
    """
    requests: ComputeResources = NOTHING
    """CPU and memory that the pod requests."""
    units_condition: UnitsCondition | None = None
    """Condition of the units, as long as it may have to be written again: of a pending pod, and of one that has
    stopped waiting and says that it waits."""
    peer: Peer | None = None
    finalizers: tuple[str, ...] = ()
    """Finalizers of a deleted pod with a terminal phase whose containers are shown running: they keep it and its
    units."""

    @property
    def ref(self) -> str:
        return f"{self.namespace}/{self.name}"

    def is_accounted_like(self, other: "PodFacts") -> bool:
        """Say whether both states of a pod take the same units, as in most events of a pod."""
        return (
            self.phase is other.phase
            and self.node == other.node
            and self.devices == other.devices
            and self.demand == other.demand
            and self.inadmissible_units == other.inadmissible_units
            and self.requests == other.requests
            and self.peer == other.peer
        )


class UnitlessPod(msgspec.Struct, frozen=True, gc=False):
    """A pod that is bound and requests no units: it takes CPU, memory and one of the pods of its node."""

    uid: "PodUid"
    node: "NodeName"
    requests: ComputeResources
    """Nothing once it has ended."""
    peer: Peer | None = None
    """None once it has ended."""


AnyPod = PodFacts | UnitlessPod


@dataclass(slots=True, kw_only=True, eq=False)
class Constraints:
    """Constraints of a pod's spec on its node; created for one decision, and not changed.

    Each admission creates one: the fields of a frozen dataclass are set by calls.
    """

    node_selector: "Mapping[str, str] | None" = None
    affinity: "InitVar[Affinity | None]" = None
    tolerations: "Iterable[Toleration]" = ()
    peer: Peer | None = None
    """The pod as rules of other pods select it; None where no pod is in question."""
    rules: tuple[PeerRule, ...] = ()
    """Required rules about other pods."""
    preferred: tuple[PeerRule, ...] = ()
    preferred_nodes: "Sequence[PreferredSchedulingTerm]" = ()
    by_peers: "Sequence[PeerTest]" = ()
    """Tests of a node by the places of other pods, as of one moment (`pool.peer_fit.with_peer_tests`)."""
    required: RequiredNodeAffinity | None = field(init=False)
    """None where every node is accepted."""
    _tolerated: Tolerations | None = field(init=False, default=None)

    def __post_init__(self, affinity: "Affinity | None") -> None:
        node_affinity = affinity.node_affinity if affinity is not None else None
        required = node_affinity.required if node_affinity is not None else None
        compiled = RequiredNodeAffinity(required.node_selector_terms or ()) if required else None
        self.required = compiled

    @property
    def tolerated(self) -> Tolerations:
        """The tolerations, compiled where a node has taints."""
        if self._tolerated is None:
            self._tolerated = Tolerations(self.tolerations)
        return self._tolerated

    @property
    def has_preferences(self) -> bool:
        return bool(self.preferred or self.preferred_nodes)

    def tested(self, by_peers: "Sequence[PeerTest]") -> "Constraints":
        """Return these constraints with the tests; `replace` would lose what is compiled."""
        found = copy.copy(self)
        found.by_peers = by_peers
        return found

    def select(self, node: "NodeName", labels: "Mapping[str, str]") -> bool:
        """Say whether selector and required affinity allow a node, whatever its taints."""
        if self.node_selector and not self.node_selector.items() <= labels.items():
            return False
        return self.required is None or self.required.accepts(labels, node)


@dataclass(frozen=True, slots=True)
class Capacity:
    """Units of a pool; total = reserved + used + available + unhealthy."""

    total: int = 0
    reserved: int = 0
    used: int = 0
    available: int = 0
    unhealthy: int = 0
