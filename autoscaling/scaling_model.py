"""Values of autoscaling: parameters of a pool, requests for nodes, what was observed of them, and the plan."""

import datetime as dt
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NewType

from api.kinds.autoscaling import DEFAULT_MAX_NODES_PER_HOUR
from pool.compute_resources import NOTHING, ComputeResources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.foreign.core import NodeSelectorTerm, NodeTaint, Taint
    from api.foreign.karpenter import NodeRequirement
    from api.kinds.autoscaling import ScalingBackend, ShapeRequirement
    from api.meta import LabelSelector
    from api.names import NodeName, PodUid, PoolName
    from pool.model import PoolFacts

RequestId = NewType("RequestId", str)
"""Id of a request for one node: `<pool>-<hash of what it is for>`, the value of the label scale-request."""

MICRO: Final = 1_000_000
"""Money is counted in millionths."""
DEVICES_WITHIN: Final = dt.timedelta(minutes=15)
"""Time allowed from the registration of a node to its devices where the node's image has the driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeParameters:
    """A kind of node that a pool may get."""

    name: str
    node_pool: str
    devices: int
    units_per_device: int
    requirements: "tuple[ShapeRequirement, ...]" = ()
    labels: "Mapping[str, str]" = field(default_factory=dict)
    """Labels that each node of the shape has: requirements In with one value."""
    compute_capability: str = ""
    """Compute capability of its devices, by the spec; empty: not known."""
    cpu_milli: int | None = None
    """CPU that pods can request of a node; None: not considered."""
    memory_mib: int | None = None
    price_micro: int | None = None
    """Price of an hour in millionths; None: not known."""

    @property
    def units(self) -> int:
        return self.devices * self.units_per_device


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingParameters:
    """`spec.autoscaling` of a pool, with what of the pool decides about nodes."""

    pool: "PoolFacts"
    generation: int
    backend: "ScalingBackend"
    shapes: tuple[ShapeParameters, ...]
    taints: "tuple[Taint, ...]" = ()
    """Taints of the pool's nodes, which its pods tolerate."""
    node_selector: "LabelSelector | None" = None
    """Nodes whose devices may join the pool; None: all."""
    min_units: int = 0
    warm_units: int = 0
    max_units: int | None = None
    max_in_flight: int = 15
    max_nodes_per_hour: int = DEFAULT_MAX_NODES_PER_HOUR
    per_hour_micro: int | None = None
    per_day_micro: int | None = None
    idle_after_s: int = 300
    devices_within: dt.timedelta = DEVICES_WITHIN
    """Time allowed from the registration of a node to its devices; Karpenter never gives up such a node."""
    signal_resource: str = ""
    product: str = ""
    """The only product that its devices may have; empty where it names none, or several."""

    def shape(self, name: str) -> ShapeParameters | None:
        return next((item for item in self.shapes if item.name == name), None)


class RequestPhase(Enum):
    """State of a request for a node, in its order."""

    PLANNED = "Planned"
    SIGNALLED = "Signalled"
    """The autoscaler was asked; it has not answered."""
    LAUNCHED = "Launched"
    """A NodeClaim exists."""
    REGISTERED = "Registered"
    """The Node exists."""
    INCOMPLETE = "Incomplete"
    """Fewer units of the node can be used than its shape promises; the others are awaited."""
    AGENT_READY = "AgentReady"
    """The node's devices are in the pool and kubelet knows their units."""
    RESERVED = "Reserved"
    """The units of the pods that it came for are reserved."""
    RELEASED = "Released"
    """Its signals and its startup taint are gone; pods are about to lose their gate."""
    FAILED = "Failed"
    SUPERSEDED = "Superseded"
    """Nothing waits for it any more."""
    EXPIRED = "Expired"
    """Its deadline has passed."""


class Failure(Enum):
    """Why a request failed."""

    INSUFFICIENT_CAPACITY = "InsufficientCapacityError"
    LAUNCH_FAILED = "LaunchFailed"
    LAUNCH_TIMEOUT = "LaunchTimeout"
    REGISTRATION_TIMEOUT = "RegistrationTimeout"
    NO_DEVICES = "NoDevicesReported"
    """The node is registered and never reported devices."""
    FEWER_DEVICES = "FewerDevicesThanPromised"
    """The node came with fewer units that can be used than its shape promises."""
    NODE_CLASS_NOT_READY = "NodeClassNotReady"
    NODE_LOST = "NodeLost"
    """The NodeClaim was deleted before the node was ready."""
    NODE_POOL_LIMIT = "NodePoolLimit"
    NOT_SIGNALLED = "NotAnswered"
    """The autoscaler did not answer in time."""
    SIGNAL_TAMPERED = "SignalChanged"
    """The signal was changed or bound by another client."""


class WaitReason(Enum):
    """Why no node is asked for, for a pod that waits."""

    OTHER_GATES = "OtherSchedulingGates"
    """A queue or quota has not admitted the pod yet."""
    PREEMPTING = "Preempting"
    """kube-scheduler evicts pods for it."""
    PINNED = "PinnedToNode"
    PLACE_UNDECIDED = "PlaceUndecided"
    """A volume of the pod, or a pod that it must be near, has no place yet."""
    CACHE_INCOMPATIBILITY = "CacheIncompatibility"
    """A kernel cache that it mounts fits no device of the pool."""
    NOT_DEVICES = "NotDevices"
    """Units are free; something else keeps the pod waiting."""
    DRIVER_UPGRADE = "DriverUpgrade"
    """Units return when the upgrade of their node's driver is over."""
    POOL_CLOSED = "PoolClosed"
    """The pool is in maintenance or being deleted."""
    TOO_LARGE = "TooLargeForShapes"
    """No shape has as many units."""
    NO_SHAPE = "NoShape"
    """No shape satisfies the pod's node selector, affinity, CPU or memory."""
    BACKING_OFF = "BackingOff"
    """Every shape that serves the pod failed lately, or is left out."""
    MAX_UNITS = "MaxUnits"
    MAX_IN_FLIGHT = "MaxInFlight"
    MAX_NODES_PER_HOUR = "MaxNodesPerHour"
    """As many nodes were asked for as the pool may get within an hour: something is wrong with them, or the limit
    is low."""
    NODE_POOL_LIMIT = "NodePoolLimit"
    BUDGET_HOUR = "BudgetPerHour"
    BUDGET_DAY = "BudgetPerDay"
    NODE_POOL_INVALID = "NodePoolInvalid"
    BACKEND_MISSING = "BackendMissing"
    TOO_MANY_PODS = "TooManyPods"
    """Pods ahead of it are planned first."""


@dataclass(frozen=True, slots=True)
class PodWait:
    """Why a pod gets no node now, and what to do."""

    reason: WaitReason
    message: str
    """One sentence with object, figures and cure, for the pod's Event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequest:
    """A node to ask for: one id is one node."""

    id: RequestId
    pool: "PoolName"
    shape: ShapeParameters
    pods: "tuple[PodUid, ...]" = ()
    """Pods that it is for, in the order in which they get units; none: it is for minUnits or warmUnits."""
    node_selector: "Mapping[str, str]" = field(default_factory=dict)
    """Node selector of these pods, beyond the shape's labels and the pool's."""
    affinity: "tuple[NodeSelectorTerm, ...]" = ()
    """Required terms of the first pod, of which one must hold."""
    requests: ComputeResources = NOTHING
    """CPU and memory of these pods together."""
    resources: "Mapping[str, int]" = field(default_factory=dict)
    """Whole amounts of their other resources together, without units of pools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalFacts:
    """A signal pod, as observed."""

    name: str
    uid: str
    request: RequestId
    pool: "PoolName"
    shape: str
    devices: int
    created: "dt.datetime"
    node_selector: "Mapping[str, str]" = field(default_factory=dict)
    """Node selector of the pods that it is for: without the label of the request and those of the shape."""
    affinity: "tuple[NodeSelectorTerm, ...]" = ()
    node: str = ""
    """Set where another client bound it."""
    is_terminating: bool = False
    is_intact: bool = True
    """False where another client changed its labels or its scheduler."""
    is_marked: bool = True
    """Whether its condition PodScheduled is False with reason Unschedulable."""


@dataclass(frozen=True, slots=True)
class ConditionFacts:
    """A condition, with its time."""

    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    since: "dt.datetime | None" = None

    @property
    def is_true(self) -> bool:
        return self.status == "True"


UNKNOWN_CONDITION: Final = ConditionFacts()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFacts:
    """A NodeClaim, as observed."""

    name: str
    uid: str
    node_pool: str
    request: RequestId | None
    """Id of the label scale-request; None where nothing of ours caused it."""
    created: "dt.datetime"
    node: str = ""
    is_terminating: bool = False
    launched: ConditionFacts = UNKNOWN_CONDITION
    registered: ConditionFacts = UNKNOWN_CONDITION
    initialized: ConditionFacts = UNKNOWN_CONDITION
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePoolFacts:
    """A NodePool, as observed."""

    name: str
    uid: str = ""
    labels: "Mapping[str, str]" = field(default_factory=dict)
    """Labels of its template."""
    requirements: "tuple[NodeRequirement, ...]" = ()
    taints: "tuple[NodeTaint, ...]" = ()
    startup_taints: "tuple[NodeTaint, ...]" = ()
    consolidation_policy: str = ""
    consolidate_after: str = ""
    expire_after: str = ""
    limits: "Mapping[str, int]" = field(default_factory=dict)
    """Resource -> limit in whole counts (CPU in thousandths, memory in MiB); `nodes` too."""
    used: "Mapping[str, int]" = field(default_factory=dict)
    """The same of its nodes."""
    replicas: int | None = None
    ready: ConditionFacts = UNKNOWN_CONDITION


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedNode:
    """A Node that carries the id of a request, as observed."""

    name: "NodeName"
    request: RequestId
    created: "dt.datetime"
    is_ready: bool
    is_leaving: bool
    has_startup_taint: bool
    indexed_units: int
    """Units of the pool's healthy devices on it, in the device index."""
    allocatable_units: int
    """Units of the pool's resource that kubelet allocates there."""
    reserved_units: int = 0
    """Units that are reserved for pods."""
    reported_units: int = 0
    """Units of all of the pool's devices on it, of those that cannot be used, too."""
    labels: "Mapping[str, str]" = field(default_factory=dict)
    obstacle: str = ""
    """Why its inventory does not count as ready for pools, such as a driver that does not answer; empty: not known."""

    @property
    def is_agent_ready(self) -> bool:
        """Whether pods could use its devices, but for the startup taint."""
        return (
            self.is_ready
            and not self.is_leaving
            and 0 < self.indexed_units <= self.allocatable_units
        )

    def is_short_of(self, shape: ShapeParameters | None) -> bool:
        """Say whether it has devices, and fewer usable units than its shape promises; none of them reserved yet."""
        return (
            shape is not None
            and self.is_ready
            and not self.reserved_units
            and bool(self.indexed_units or self.reported_units)
            and min(self.indexed_units, self.allocatable_units) < shape.units
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRequest:
    """A request that has left a trace in the API: a signal, a NodeClaim, or a Node with its startup taint."""

    id: RequestId
    pool: "PoolName"
    shape: ShapeParameters | None
    """None where the shape is not in the spec any more."""
    phase: RequestPhase
    since: "dt.datetime"
    """When the phase began."""
    deadline: "dt.datetime | None" = None
    """When the phase is over time."""
    failure: Failure | None = None
    """Set with phase FAILED."""
    message: str = ""
    signals: tuple[SignalFacts, ...] = ()
    claim: ClaimFacts | None = None
    node: RequestedNode | None = None

    @property
    def is_in_flight(self) -> bool:
        """Whether a node is still to come of it."""
        return self.shape is not None and self.phase in _IN_FLIGHT

    @property
    def is_launched(self) -> bool:
        return self.claim is not None


_IN_FLIGHT: Final = frozenset(
    {
        RequestPhase.SIGNALLED,
        RequestPhase.LAUNCHED,
        RequestPhase.REGISTERED,
        RequestPhase.INCOMPLETE,
        RequestPhase.AGENT_READY,
        RequestPhase.RESERVED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeHistory:
    """What failed of a shape lately, and what its nodes have; `zone` empty for all zones."""

    shape: str
    zone: str = ""
    failures: int = 0
    retry_after: "dt.datetime | None" = None
    without_devices: int = 0
    """Nodes in a row that came without devices, or with fewer than promised."""
    excluded_at: int = 0
    """Generation of the pool's spec at which the shape was left out; 0: it is not."""
    reason: str = ""
    message: str = ""
    """Message of the last failure, where the node that came differs from its shape."""
    capabilities: tuple[str, ...] = ()
    """Compute capabilities of the devices of its nodes, or of its last ones."""
    capabilities_at: int = 0
    """Generation of the pool's spec at which it had such nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """What the pool has and gets, apart from the index."""

    in_flight: tuple[ObservedRequest, ...] = ()
    history: tuple[ShapeHistory, ...] = ()
    node_pools: "Mapping[str, NodePoolFacts]" = field(default_factory=dict)
    node_pool_faults: "Mapping[str, str]" = field(default_factory=dict)
    """NodePool -> why it cannot serve the pool, with the cure."""
    zones: frozenset[str] = frozenset()
    """Zones in which there are volumes of waiting pods: they exist, though no node may be there."""
    used_ids: frozenset[RequestId] = frozenset()
    """Ids of NodeClaims, Nodes and signals that exist: a new request must have another one."""
    nodes_of_last_hour: "Mapping[str, dt.datetime]" = field(default_factory=dict)
    """Nodes that the pool got within the last hour (`autoscaling.nodes_per_hour`), the oldest first."""
    running_micro: int = 0
    """Price of an hour of the pool's nodes that exist."""
    spent_today_micro: int = 0
    backend_fault: str = ""
    """Why the backend cannot be used; empty if it can."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """A request that nothing needs, or that failed; only those whose node was not launched are undone."""

    id: RequestId
    phase: RequestPhase
    """SUPERSEDED, FAILED or EXPIRED."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPlan:
    """What to ask for, and why pods wait. Equal inputs give equal plans."""

    requests: tuple[NodeRequest, ...] = ()
    """Requests to be asked for now; ids are new."""
    assigned: "Mapping[RequestId, tuple[PodUid, ...]]" = field(default_factory=dict)
    """Nodes on their way, and new ones -> the pods that get their units, in order."""
    waits: "Mapping[PodUid, PodWait]" = field(default_factory=dict)
    """Pods that no node comes for."""
    cancels: tuple[Cancel, ...] = ()
    warm_wait: PodWait | None = None
    """Why minUnits or warmUnits are not reached."""
