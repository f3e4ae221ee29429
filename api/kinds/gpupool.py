"""GPUPool: devices that are allocated under one resource name."""

from enum import Enum
from typing import Annotated, Final

from msgspec import Meta

from api import names
from api.foreign.core import Taint
from api.kinds.autoscaling import Autoscaling, AutoscalingStatus, ScalingBackend
from api.kinds.device_selector import DeviceSelector, Names
from api.meta import Condition, LabelSelector, Model, ObjectMeta
from api.mig.layout import Shares
from api.mig.profile import MIG_PROFILE_PATTERN, label_form
from api.quantity import DURATION_PATTERN, parse_duration_s
from api.well_known_labels import ZONE_LABEL

DEFAULT_TTL: Final = "2m"
DEFAULT_DEADLINE: Final = "1h"
MAX_MIG_SHARES: Final = 8
"""Most profiles of a pool; no product has as many that fit together."""
MAX_MIG_PROFILE_LENGTH: Final = 32
"""For the API server's estimate of what a rule on profiles costs; the longest one has 14 characters."""

Name63 = Annotated[str, Meta(min_length=1, max_length=63)]


class AllocationMode(Enum):
    """Meaning of one unit of the resource."""

    EXCLUSIVE = "Exclusive"
    """A whole device."""
    MIG = "MIG"
    """One MIG instance of the pool's profile."""
    TIME_SLICE = "TimeSlice"
    """One of `slicesPerDevice` time slices of a device; memory and faults are not isolated."""


class Strategy(Enum):
    """Preference among the nodes that fit."""

    BIN_PACK = "BinPack"
    """The fullest node, so that whole nodes stay empty."""
    SPREAD = "Spread"
    """The emptiest node."""
    LEAST_FRAGMENTATION = "LeastFragmentation"
    """The node whose free devices lose the least of their use for the pods that the pool has had lately; where that is
    equal, the node that is left with the fewest free units."""


class SlicePlacement(Enum):
    """Devices on which the time slices of one container lie."""

    DISTINCT_DEVICES = "DistinctDevices"
    """Each slice on another device while there are any, so that n slices are a share of n devices."""
    SAME_DEVICE = "SameDevice"
    """All on one device, so that n slices are a larger share of it; a multiple of slicesPerDevice is whole devices."""


class DeviceTopology(Enum):
    """How much the devices of one pod have to be near each other."""

    REQUIRED = "Required"
    """On one NUMA node, or all connected by NVLink; a node without such a set of free devices does not take the pod."""
    PREFERRED = "Preferred"
    """The best set of free devices of the node."""
    NONE = "None"
    """Any devices of the node."""


class Reserve(Enum):
    """What a reservation decides for its pod."""

    NODE = "Node"
    """Its node and units: kube-scheduler is shown that node alone."""
    UNITS = "Units"
    """That the pod gets its units: kube-scheduler chooses among all nodes with enough of them, and no strategy counts."""


class WhenExhausted(Enum):
    """Action of admission when too few units are free."""

    PEND = "Pend"
    """Admit without a reservation; the pod waits in the scheduling queue."""
    REJECT = "Reject"
    """Deny the pod, with the figures."""


class PoolResource(Model, frozen=True):
    """The extended resource that pods request."""

    name: Annotated[
        str,
        Meta(
            max_length=names.MAX_RESOURCE_NAME_LENGTH,
            pattern=f"^{names.RESOURCE_PREFIX.replace('.', '[.]')}[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            description="Extended resource name; gpu.deckhouse.io/<metadata.name> when left out.",
        ),
    ] = ""


class MIGShare(Model, frozen=True):
    """The instances of one profile on each device."""

    profile: Annotated[str, Meta(max_length=MAX_MIG_PROFILE_LENGTH, pattern=MIG_PROFILE_PATTERN)]
    """Profile of the instances, such as 3g.40gb."""
    count: Annotated[int, Meta(ge=1, le=names.MAX_MIG_INSTANCES)] | None = None
    """Number of instances on each device; one profile of the list may leave it out, for as many as fit beside the others."""


class Allocation(Model, frozen=True):
    """How a device is divided into units."""

    mode: AllocationMode = AllocationMode.EXCLUSIVE
    mig_profile: Annotated[str, Meta(pattern=MIG_PROFILE_PATTERN)] | None = None
    """Mode MIG only, and required there without `mig`: the profile of all instances, such as 1g.10gb."""
    mig: Annotated[list[MIGShare], Meta(max_length=MAX_MIG_SHARES)] | None = None
    """Mode MIG only, in place of migProfile: several profiles on each device. Pods request the instances of a
    profile by a resource of its own, the pool's resource followed by a dot and the profile, with a dot for a plus sign:
    gpu.deckhouse.io/<pool>.3g.40gb."""
    slices_per_device: Annotated[int, Meta(ge=2, le=names.MAX_SLICES_PER_DEVICE)] | None = None
    """Required in mode TimeSlice, forbidden in others: the number of time slices of a device, up to 64, and up to 100
    with slicePlacement SameDevice."""
    slice_placement: SlicePlacement | None = None
    """Mode TimeSlice only: where the slices of one container lie. DistinctDevices if left out. With SameDevice a
    container requests up to slicesPerDevice slices, or a multiple of it for whole devices."""
    max_devices_per_node: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """Maximum number of a node's devices in the pool: devices of the pool first, then by PCI address. When it
    is lowered, surplus devices leave once no pod uses them. All selected devices if left out."""


class Assignment(Model, frozen=True):
    """How devices join the pool."""

    require_annotation: bool = True
    """Only devices annotated with this pool's name join."""
    auto_approve_selector: LabelSelector | None = None
    """Devices with these labels join without an annotation. With requireAnnotation false and no selector,
    every device that deviceSelector matches joins. The selector sees the labels of the GPUDevice and, derived
    from its status, gpu.deckhouse.io/device.{vendor,device,class,product,uuid,memoryMiB,mig.capable}: hex ids
    in lower case, blanks of a product as '-'. If several pools select a device, the oldest gets and keeps it."""


class Access(Model, frozen=True):
    """Who may use the pool: one matching rule is enough; without rules, everybody."""

    namespaces: Annotated[list[Name63], Meta(max_length=1024)] | None = None
    """Names of namespaces whose pods may use the pool."""
    namespace_selector: LabelSelector | None = None
    """Labels of namespaces whose pods may use the pool; an empty selector matches every namespace."""
    service_accounts: (
        Annotated[
            list[Annotated[str, Meta(max_length=317, pattern="^[^/]+/[^/]+$")]],
            Meta(max_length=1024),
        ]
        | None
    ) = None
    """Service accounts of pods, as `<namespace>/<name>`."""
    groups: Names | None = None
    """Groups of the user who creates the pod, or who wrote the template of the Deployment or Job that it belongs to
    (docs/access.md)."""

    @property
    def is_open(self) -> bool:
        return not (
            self.namespaces or self.namespace_selector or self.service_accounts or self.groups
        )

    def certainly_admits(self, namespace: str, service_account: str) -> bool:
        """Say whether it admits a pod by what the pod shows: labels of namespaces and groups it does not."""
        account = f"{namespace}/{service_account or 'default'}"
        return (
            self.is_open
            or namespace in (self.namespaces or ())
            or account in (self.service_accounts or ())
        )


class Scheduling(Model, frozen=True):
    """Placement of the pool's pods."""

    strategy: Strategy | None = None
    """If left out: LeastFragmentation for whole devices and MIG, BinPack for time slices and for pools that scale."""
    topology_key: Annotated[str, Meta(min_length=1, max_length=317)] = ZONE_LABEL
    """Strategy Spread only: the node label over whose values pods are spread. If every node of the pool has the
    label, and pods can run on each of its values, a pod that would make the distribution less even waits.
    While a node lacks the label, or all nodes of a value are cordoned, not ready or without healthy units,
    spreading is a preference, so that no device stays idle. If no node has the label, pods spread over nodes
    only, and admission warns."""
    device_topology: DeviceTopology = DeviceTopology.PREFERRED
    """Whether the devices of one pod must be near each other: on one NUMA node, or all connected by NVLink."""
    reserve: Reserve = Reserve.NODE
    """What a reservation decides: the pod's node by `strategy` and the pod's preferences, or only that units are held
    for it, on a node that kube-scheduler then chooses by all of its scores."""
    taints: Annotated[list[Taint], Meta(max_length=16)] | None = None
    """Taints of the pool's nodes; its pods tolerate exactly these."""


class ReservationPolicy(Model, frozen=True):
    """How long units are reserved for a pod that is not bound yet."""

    ttl: Annotated[str, Meta(pattern=DURATION_PATTERN, max_length=16)] = DEFAULT_TTL
    """Time from 5s to 1h."""
    when_exhausted: WhenExhausted = WhenExhausted.PEND


class MaintenancePolicy(Enum):
    """Treatment of running pods when the pool's allocation changes."""

    WAIT = "Wait"
    """Running pods finish by themselves."""
    EVICT = "Evict"
    """Running pods are evicted, as by `kubectl drain`; PodDisruptionBudgets are respected."""


class Maintenance(Model, frozen=True):
    """How the pool changes its allocation: it accepts no new pods until no unit is in use."""

    policy: MaintenancePolicy = MaintenancePolicy.WAIT
    deadline: Annotated[str, Meta(pattern=DURATION_PATTERN, max_length=16)] = DEFAULT_DEADLINE
    """After this time, the condition Maintenance and an Event name the pods that delay the change. No pod is
    killed; restoring the old allocation ends the maintenance at once."""


class RepairPolicy(Enum):
    """Treatment of a faulted device by the recovery action that it needs."""

    OFF = "Off"
    """Operators repair it."""
    IDLE = "Idle"
    """It is reset once no pod uses it. Where the node has to be rebooted, the node is cordoned and labelled."""
    EVICT = "Evict"
    """The same, and the pods that use it are evicted; PodDisruptionBudgets are respected."""


class PodBaseline(Enum):
    """Treatment of pods that could reach devices which they were not given (docs/access.md)."""

    OFF = "Off"
    """They are admitted."""
    WARN = "Warn"
    """They are admitted with a warning."""
    DENY = "Deny"
    """They are refused."""


class GPUPoolSpec(Model, frozen=True):
    """Desired state of the pool."""

    resource: PoolResource = PoolResource()
    device_selector: DeviceSelector = DeviceSelector()
    node_selector: LabelSelector | None = None
    """Nodes whose devices may join the pool; all nodes if left out."""
    allocation: Allocation = Allocation()
    assignment: Assignment = Assignment()
    access: Access = Access()
    pod_baseline: PodBaseline = PodBaseline.OFF
    scheduling: Scheduling = Scheduling()
    reservation: ReservationPolicy = ReservationPolicy()
    maintenance: Maintenance = Maintenance()
    repair: RepairPolicy = RepairPolicy.OFF
    max_repairs_per_hour: Annotated[int, Meta(ge=1, le=1000)] = 4
    """Number of the pool's devices whose repair begins within an hour; further ones wait."""
    autoscaling: Autoscaling | None = None
    """Adds nodes for waiting pods. Without it the pool has the nodes that others add."""


class PoolCapacity(Model, frozen=True, omit_defaults=False):
    """Units; total = reserved + used + available + unhealthy."""

    total: int = 0
    """Units of the pool's devices."""
    reserved: int = 0
    """Units held for pods that are not bound yet."""
    used: int = 0
    """Units of bound pods."""
    missing: int = 0
    """Units beyond `total` that its devices should have: their MIG instances are not those of the allocation."""
    available: int = 0
    """Units that are free to be allocated now."""
    unhealthy: int = 0
    """Free units that are withheld: the device is faulted or leaves the pool, its node is missing, not ready or
    cordoned, a pod runs there on unknown devices, its MIG instances are not those of the allocation, or the whole pool is in maintenance or being deleted."""
    largest_free: int = 0
    """Most units that are available on one node: a pod that requests more of them waits."""


class EffectiveAllocation(Model, frozen=True):
    """The allocation in effect; it follows the spec once no unit is in use."""

    mode: AllocationMode
    mig_profile: str = ""
    """Profile of the MIG instances, such as 1g.10gb; mode MIG only."""
    mig: Annotated[list[MIGShare], Meta(max_length=MAX_MIG_SHARES)] | None = None
    """Profiles of the MIG instances, where the pool has several."""
    slices_per_device: Annotated[int, Meta(ge=1, le=names.MAX_SLICES_PER_DEVICE)] = 1
    """Number of time slices of a device; 1 in the other modes."""

    @property
    def shares(self) -> Shares:
        """Return the layout of a device; nothing in the other modes."""
        if self.mig:
            return tuple((share.profile, share.count) for share in self.mig)
        return ((self.mig_profile, None),) if self.mig_profile else ()


class PoolPhase(Enum):
    """Summary of a pool's conditions."""

    PENDING = "Pending"
    """No device yet."""
    READY = "Ready"
    """Pods can get units, as long as some are free."""
    DEGRADED = "Degraded"
    """Devices, but none of them healthy."""
    MAINTENANCE = "Maintenance"
    """No new pods until the new allocation is in effect, or until what others did to its devices is confirmed."""
    MISCONFIGURED = "Misconfigured"
    """Its spec cannot be served; the condition says why."""
    TERMINATING = "Terminating"
    """It is being deleted, and goes once no pod has a unit."""


class GPUPoolStatus(Model, frozen=True):
    """Observed state of the pool."""

    observed_generation: int = 0
    """Generation of the spec that the status describes."""
    phase: str = ""
    resource_name: str = ""
    """The extended resource that pods request; of a pool with several MIG profiles, those of all of them with commas between."""
    strategy: Strategy | None = None
    """The strategy in effect: that of the spec, or the default of the mode."""
    allocation: EffectiveAllocation | None = None
    """The allocation in effect, on which running pods rely; it differs from the spec during maintenance."""
    capacity: PoolCapacity = PoolCapacity()
    nodes: int = 0
    """Number of nodes with a unit of the pool."""
    waiting: int = 0
    """Number of pending pods that request units of the pool and have none; pods with a scheduling gate of others do not count."""
    candidates: int = 0
    """Number of devices that the pool selects, and takes once they are annotated with it: they wait for a decision."""
    autoscaling: AutoscalingStatus | None = None
    """Nodes on their way, and what the pool's nodes cost; only with spec.autoscaling."""
    conditions: list[Condition] | None = None
    """Ready, Supported, Misconfigured, CapacityLow, Conflict (another pool has a device that this one selects), and
    Maintenance (its allocation is being changed, or others partition its devices)."""


class GPUPool(Model, frozen=True):
    """Devices that are allocated under one resource name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: GPUPoolSpec = GPUPoolSpec()
    status: GPUPoolStatus = GPUPoolStatus()

    @property
    def name(self) -> names.PoolName:
        return names.PoolName(self.metadata.name)

    @property
    def resource_name(self) -> str:
        return self.spec.resource.name or names.RESOURCE_PREFIX + self.metadata.name

    @property
    def parts(self) -> dict[names.PoolName, str]:
        """Return the resources of a pool with several MIG profiles, by the name of the part; none of other pools."""
        return {
            names.part_name(self.name, label_form(share.profile)): (
                f"{self.resource_name}.{label_form(share.profile)}"
            )
            for share in self.allocation.mig or ()
        }

    @property
    def resources(self) -> tuple[str, ...]:
        """Return the resources that pods request."""
        return tuple(self.parts.values()) or (self.resource_name,)

    @property
    def desired_allocation(self) -> EffectiveAllocation:
        desired = self.spec.allocation
        return EffectiveAllocation(
            mode=desired.mode,
            mig_profile=desired.mig_profile or "",
            mig=desired.mig,
            slices_per_device=desired.slices_per_device or 1,
        )

    @property
    def allocation(self) -> EffectiveAllocation:
        """Return the allocation in effect: that of the spec until one is recorded."""
        return self.status.allocation or self.desired_allocation

    @property
    def is_changing(self) -> bool:
        """Return whether the spec asks for another allocation than the one in effect."""
        return self.allocation != self.desired_allocation

    @property
    def drift(self) -> Condition | None:
        """Return the condition Maintenance while it says that others partition the pool's devices."""
        drifts = (
            c
            for c in self.status.conditions or ()
            if (c.type, c.status, c.reason) == ("Maintenance", "True", "LayoutDiffers")
        )
        return next(drifts, None)

    @property
    def is_in_maintenance(self) -> bool:
        """Return whether the pool takes no new pods, for a change of its allocation or for its devices."""
        return self.is_changing or self.drift is not None

    @property
    def slice_placement(self) -> SlicePlacement:
        return self.spec.allocation.slice_placement or SlicePlacement.DISTINCT_DEVICES

    @property
    def strategy(self) -> Strategy:
        """Return the strategy of the spec, or the default of the mode."""
        if self.spec.scheduling.strategy is not None:
            return self.spec.scheduling.strategy
        if self.allocation.mode is AllocationMode.TIME_SLICE or self.scales:
            return Strategy.BIN_PACK  # a pool that scales: so that nodes come empty, and go
        return Strategy.LEAST_FRAGMENTATION

    @property
    def scales(self) -> bool:
        """Return whether nodes are added for pods that wait."""
        scaling = self.spec.autoscaling
        return scaling is not None and scaling.backend is not ScalingBackend.NONE

    @property
    def ttl_s(self) -> int:
        return parse_duration_s(self.spec.reservation.ttl)

    @property
    def taints(self) -> tuple[Taint, ...]:
        """Return the taints of the pool's nodes, used for nodes and for admission."""
        return tuple(self.spec.scheduling.taints or ())
