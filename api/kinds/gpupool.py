"""GPUPool: cards that are given out together under one resource name."""

from enum import Enum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from api.foreign.core import Taint
from api.meta import Condition, LabelSelector, Model, ObjectMeta
from api.names import (
    MAX_RESOURCE_NAME_LENGTH,
    MAX_SLICES_PER_DEVICE,
    RESOURCE_PREFIX,
    PoolName,
)
from api.quantity import DURATION_PATTERN, parse_duration_s

MIG_PROFILE_PATTERN: Final = "^[0-9]+g\\.[0-9]+gb([+-][a-z.]+)?$"
PCI_ID_PATTERN: Final = "^[0-9a-fA-F]{4}$"
DEFAULT_TTL: Final = "2m"
DEFAULT_DEADLINE: Final = "1h"
DEFAULT_TOPOLOGY_KEY: Final = "topology.kubernetes.io/zone"

Name63 = Annotated[str, Meta(min_length=1, max_length=63)]
Names = Annotated[list[Annotated[str, Meta(min_length=1, max_length=253)]], Meta(max_length=256)]


class AllocationMode(Enum):
    """What one unit of the resource is."""

    EXCLUSIVE = "Exclusive"
    """A whole card."""
    MIG = "MIG"
    """One MIG instance of the pool's profile."""
    TIME_SLICE = "TimeSlice"
    """One of `slicesPerDevice` turns on a card; memory and faults are not isolated."""


class Strategy(Enum):
    """Which of the nodes that fit is best."""

    BIN_PACK = "BinPack"
    """The fullest node, so that whole nodes stay empty."""
    SPREAD = "Spread"
    """The emptiest node."""
    LEAST_FRAGMENTATION = "LeastFragmentation"
    """The node that is left with the fewest free units, breaking up as few untouched cards as possible."""


class WhenExhausted(Enum):
    """What admission does when nothing is free now."""

    PEND = "Pend"
    """Admit without a hold; the pod waits in the scheduler's queue."""
    REJECT = "Reject"
    """Deny with the figures."""


class PoolResource(Model, frozen=True):
    """The extended resource that users ask for."""

    name: Annotated[
        str,
        Meta(
            max_length=MAX_RESOURCE_NAME_LENGTH,
            pattern=f"^{RESOURCE_PREFIX.replace('.', '[.]')}[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            description="Extended resource name; gpu.deckhouse.io/<metadata.name> when left out.",
        ),
    ] = ""


class DeviceCriteria(Model, frozen=True):
    """Categories are ANDed, values inside one are ORed; an empty category says nothing."""

    inventory_ids: Names | None = msgspec.field(default=None, name="inventoryIDs")
    """`<node>-<pci address>` of single devices."""
    products: Names | None = None
    """Product names as in a GPUDevice's status."""
    pci_vendors: (
        Annotated[list[Annotated[str, Meta(pattern=PCI_ID_PATTERN)]], Meta(max_length=64)] | None
    ) = None
    """Four hex digits without 0x; case does not matter."""
    pci_devices: (
        Annotated[list[Annotated[str, Meta(pattern=PCI_ID_PATTERN)]], Meta(max_length=256)] | None
    ) = None
    """Four hex digits without 0x; case does not matter."""
    mig_capable: bool | None = None
    mig_profiles: (
        Annotated[list[Annotated[str, Meta(pattern=MIG_PROFILE_PATTERN)]], Meta(max_length=64)]
        | None
    ) = None
    min_memory_mib: Annotated[int, Meta(ge=1)] | None = msgspec.field(
        default=None, name="minMemoryMiB"
    )
    compute_capability: Annotated[str, Meta(pattern="^[0-9]+\\.[0-9]+$")] | None = None
    """Lowest acceptable compute capability, such as 8.0."""


class DeviceSelector(Model, frozen=True):
    """A device is selected when `include` accepts it (or is empty) and `exclude` does not."""

    include: DeviceCriteria | None = None
    """What is taken; left out or empty, every device."""
    exclude: DeviceCriteria | None = None
    """What is left out of that; it wins. As everywhere a device must meet every category that is set:
    products and minMemoryMiB together exclude large cards of these products, not all large cards."""


class Allocation(Model, frozen=True):
    """How a card becomes units."""

    mode: AllocationMode = AllocationMode.EXCLUSIVE
    mig_profile: Annotated[str, Meta(pattern=MIG_PROFILE_PATTERN)] | None = None
    """Mode MIG only, and required there: the profile of the instances, such as 1g.10gb."""
    slices_per_device: Annotated[int, Meta(ge=2, le=MAX_SLICES_PER_DEVICE)] | None = None
    """Mode TimeSlice only, and required there: how many pods take turns on a card."""
    max_devices_per_node: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """At most so many cards of a node are in the pool, those that it has first, then by PCI address; when it
    is lowered the last ones leave, once no pod uses them. Left out, all that are selected."""


class Assignment(Model, frozen=True):
    """How a device comes into the pool."""

    require_annotation: bool = True
    """Only devices annotated with this pool's name are taken."""
    auto_approve_selector: LabelSelector | None = None
    """Devices with these labels are taken without an annotation; with requireAnnotation false and no selector,
    every device that deviceSelector takes. Seen are the labels of the GPUDevice, and of what its status says
    gpu.deckhouse.io/device.{vendor,device,class,product,uuid,memoryMiB,mig.capable}: hex ids in lower case,
    blanks of a product as '-'. Of several pools that take a device the oldest has it, and keeps it."""


class Access(Model, frozen=True):
    """Who may ask for the pool: any rule that is met is enough; no rule at all means everybody."""

    namespaces: Annotated[list[Name63], Meta(max_length=1024)] | None = None
    """Names of namespaces whose pods may."""
    namespace_selector: LabelSelector | None = None
    """Labels of namespaces whose pods may; an empty selector means every namespace."""
    service_accounts: (
        Annotated[
            list[Annotated[str, Meta(max_length=317, pattern="^[^/]+/[^/]+$")]],
            Meta(max_length=1024),
        ]
        | None
    ) = None
    """`<namespace>/<name>` of the service account that the pod runs as."""
    groups: Names | None = None
    """Groups of the user who creates the pod. For pods of a Deployment or Job that is the
    controller's service account, never the person behind it (docs/access.md)."""

    @property
    def is_open(self) -> bool:
        """Say whether no rule is set."""
        return not (
            self.namespaces or self.namespace_selector or self.service_accounts or self.groups
        )


class Scheduling(Model, frozen=True):
    """Where pods of the pool go."""

    strategy: Strategy | None = None
    """Left out: LeastFragmentation for whole cards and MIG, BinPack for time slices."""
    topology_key: Annotated[str, Meta(min_length=1, max_length=317)] = DEFAULT_TOPOLOGY_KEY
    """Spread only: the node label over whose values pods are spread. Where every node of the pool has it, and
    pods can go to each of its values, a pod that would go to the fuller side waits; while a node lacks it, or
    all nodes of a value are cordoned, not ready or without healthy units, spreading is a preference, so that no
    cards are idle; where none has it, pods spread over nodes only, and admission warns."""
    taints: Annotated[list[Taint], Meta(max_length=16)] | None = None
    """Taints of the pool's nodes; its pods tolerate exactly these."""


class ReservationPolicy(Model, frozen=True):
    """How long units are held for a pod that is not bound yet."""

    ttl: Annotated[str, Meta(pattern=DURATION_PATTERN, max_length=16)] = DEFAULT_TTL
    """From 5s to 1h."""
    when_exhausted: WhenExhausted = WhenExhausted.PEND


class MaintenancePolicy(Enum):
    """What becomes of running pods when the pool's allocation changes."""

    WAIT = "Wait"
    """They finish by themselves."""
    EVICT = "Evict"
    """They are evicted, as `kubectl drain` does; PodDisruptionBudgets are respected."""


class Maintenance(Model, frozen=True):
    """How the pool changes its allocation: it takes no new pods until no unit is in use."""

    policy: MaintenancePolicy = MaintenancePolicy.WAIT
    deadline: Annotated[str, Meta(pattern=DURATION_PATTERN, max_length=16)] = DEFAULT_DEADLINE
    """After this the condition Maintenance and an event say which pods hold it up. No pod is killed
    for it: going back to the old allocation ends the maintenance at once."""


class GPUPoolSpec(Model, frozen=True):
    """What the operator wants."""

    resource: PoolResource = PoolResource()
    device_selector: DeviceSelector = DeviceSelector()
    node_selector: LabelSelector | None = None
    """Nodes whose devices may come into the pool; left out, every node."""
    allocation: Allocation = Allocation()
    assignment: Assignment = Assignment()
    access: Access = Access()
    scheduling: Scheduling = Scheduling()
    reservation: ReservationPolicy = ReservationPolicy()
    maintenance: Maintenance = Maintenance()


class PoolCapacity(Model, frozen=True, omit_defaults=False):
    """Units; total = reserved + used + available + unhealthy."""

    total: int = 0
    reserved: int = 0
    used: int = 0
    available: int = 0
    unhealthy: int = 0


class EffectiveAllocation(Model, frozen=True):
    """How cards are units now; it follows the spec once no unit is in use."""

    mode: AllocationMode
    mig_profile: str = ""
    slices_per_device: Annotated[int, Meta(ge=1, le=MAX_SLICES_PER_DEVICE)] = 1


class GPUPoolStatus(Model, frozen=True):
    """What is."""

    observed_generation: int = 0
    phase: str = ""
    allocation: EffectiveAllocation | None = None
    """Kept here, so that a restart in the middle of a change knows what running pods were given."""
    capacity: PoolCapacity = PoolCapacity()
    nodes: int = 0
    """Nodes that have a device of the pool."""
    conditions: list[Condition] | None = None


class GPUPool(Model, frozen=True):
    """Cards that are given out together under one resource name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: GPUPoolSpec = GPUPoolSpec()
    status: GPUPoolStatus = GPUPoolStatus()

    @property
    def name(self) -> PoolName:
        """Return the pool's name."""
        return PoolName(self.metadata.name)

    @property
    def resource_name(self) -> str:
        """Return the extended resource that users ask for."""
        return self.spec.resource.name or RESOURCE_PREFIX + self.metadata.name

    @property
    def wanted_allocation(self) -> EffectiveAllocation:
        """Return how the spec wants cards to be units."""
        wanted = self.spec.allocation
        return EffectiveAllocation(
            mode=wanted.mode,
            mig_profile=wanted.mig_profile or "",
            slices_per_device=wanted.slices_per_device or 1,
        )

    @property
    def allocation(self) -> EffectiveAllocation:
        """Return how cards are units now: the spec's way until one is recorded."""
        return self.status.allocation or self.wanted_allocation

    @property
    def is_in_maintenance(self) -> bool:
        """Say whether the spec wants another allocation than the present one."""
        return self.allocation != self.wanted_allocation

    @property
    def strategy(self) -> Strategy:
        """Return the strategy, by mode where none is set."""
        if self.spec.scheduling.strategy is not None:
            return self.spec.scheduling.strategy
        if self.allocation.mode is AllocationMode.TIME_SLICE:
            return Strategy.BIN_PACK
        return Strategy.LEAST_FRAGMENTATION

    @property
    def ttl_s(self) -> int:
        """Return how many seconds a hold lasts."""
        return parse_duration_s(self.spec.reservation.ttl)

    @property
    def taints(self) -> tuple[Taint, ...]:
        """Return the taints of the pool's nodes: the one source for nodes and for admission."""
        return tuple(self.spec.scheduling.taints or ())
