"""`spec.autoscaling` and `status.autoscaling` of a GPUPool: nodes that come for pods that wait, and go when empty."""

from enum import Enum
from typing import Annotated, Final

from msgspec import Meta

from api.meta import Condition, Model, SelectorRequirement, refuse_unknown_operators
from api.quantity import DURATION_PATTERN

AMOUNT_PATTERN: Final = "^[0-9]{1,9}([.][0-9]{1,4})?$"
"""An amount of money: a decimal number without a currency, with up to four places."""
SHAPE_NAME_PATTERN: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
QUANTITY_PATTERN: Final = "^[0-9]{1,14}([.][0-9]{1,9})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"
MAX_SHAPES: Final = 16
MAX_NODES_IN_FLIGHT: Final = 100
DEFAULT_MAX_IN_FLIGHT: Final = 15
MAX_NODES_AN_HOUR: Final = 600
DEFAULT_MAX_NODES_PER_HOUR: Final = 60
DEFAULT_IDLE_AFTER: Final = "5m"

Amount = Annotated[int, Meta(ge=0, le=999_999_999)] | Annotated[str, Meta(pattern=AMOUNT_PATTERN)]
Quantity = Annotated[int, Meta(ge=0)] | Annotated[str, Meta(pattern=QUANTITY_PATTERN)]


class ScalingBackend(Enum):
    """How nodes are asked for."""

    KARPENTER_SIGNAL = "karpenter-signal"
    """A pod that never runs, for which Karpenter adds a node."""
    KARPENTER_NATIVE = "karpenter-native"
    """Removed: karpenter-signal is used in its place."""
    CAPACITY_BUFFER = "capacity-buffer"
    """Removed: karpenter-signal is used in its place."""
    KARPENTER_STATIC = "karpenter-static"
    """Removed: karpenter-signal is used in its place."""
    BALLOON = "balloon"
    """A pod of low priority that cluster-autoscaler adds a node for, and that gives way to the pool's pods."""
    NONE = "none"
    """No node is asked for: Events and metrics only."""


REMOVED_BACKENDS: Final = frozenset(
    {
        ScalingBackend.KARPENTER_NATIVE,
        ScalingBackend.CAPACITY_BUFFER,
        ScalingBackend.KARPENTER_STATIC,
    }
)
"""Values of stored objects and of settings, so that both can still be read."""


class ShapeRequirement(SelectorRequirement, frozen=True):
    """One requirement of Karpenter on the labels of a shape's nodes."""

    min_values: Annotated[int, Meta(ge=1, le=50)] | None = None
    """Karpenter adds no node unless so many values are possible; it is a matter of the NodePool, and of no single signal."""


class NodeShape(Model, frozen=True):
    """A kind of node that the pool may get."""

    name: Annotated[str, Meta(pattern=SHAPE_NAME_PATTERN, max_length=40)]
    """Name of the shape, in Events, metrics and the status."""
    devices: Annotated[int, Meta(ge=1, le=64)]
    """Number of devices of the pool that a node of this shape has."""
    units_per_device: Annotated[int, Meta(ge=1, le=64)] | None = None
    """Mode MIG only: instances of the pool's profile on one device; as many as the profile's slices allow if left out."""
    node_pool: Annotated[str, Meta(min_length=1, max_length=253)] | None = None
    """Name of Karpenter's NodePool; the pool's name if left out."""
    requirements: Annotated[list[ShapeRequirement], Meta(max_length=16)] | None = None
    """Node labels that tell this shape from the NodePool's others, such as instance types."""
    compute_capability: Annotated[str, Meta(pattern="^[0-9]+\\.[0-9]+$")] | None = None
    """CUDA compute capability of its devices, such as 9.0, by which pods with kernel caches get a shape that fits them; that of the
    last node of the shape if left out."""
    cpu: Quantity | None = None
    """CPU that pods can request of a node; not considered if left out."""
    memory: Quantity | None = None
    """Memory that pods can request of a node; not considered if left out."""
    price_per_hour: Amount | None = None
    """Price of a node of this shape for an hour; without it no money is counted for the shape."""

    def __post_init__(self) -> None:
        refuse_unknown_operators(self.requirements)


class Budget(Model, frozen=True):
    """Limits of money, in the currency of the shapes' prices."""

    per_hour: Amount | None = None
    """Highest price of all nodes of the pool for an hour."""
    per_day: Amount | None = None
    """Highest amount for a day (UTC): no node is added for which it does not pay one more hour of all nodes."""


class Autoscaling(Model, frozen=True):
    """Nodes are added for pods that wait for units, and go when they are empty."""

    backend: ScalingBackend = ScalingBackend.KARPENTER_SIGNAL
    shapes: Annotated[list[NodeShape], Meta(max_length=MAX_SHAPES)] | None = None
    """Kinds of nodes in the order of preference; the first that serves a pod is taken."""
    min_units: Annotated[int, Meta(ge=0, le=100_000)] = 0
    """Units that the pool always has, used or free."""
    warm_units: Annotated[int, Meta(ge=0, le=100_000)] = 0
    """Free units that the pool has beyond those that waiting pods need."""
    max_units: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    """Units beyond which no node is added."""
    max_in_flight: Annotated[int, Meta(ge=1, le=MAX_NODES_IN_FLIGHT)] = DEFAULT_MAX_IN_FLIGHT
    """Nodes that are on their way at a time."""
    max_nodes_per_hour: Annotated[int, Meta(ge=1, le=MAX_NODES_AN_HOUR)] = (
        DEFAULT_MAX_NODES_PER_HOUR
    )
    """Nodes that are asked for within an hour, whatever became of them."""
    budget: Budget | None = None
    idle_after: Annotated[str, Meta(pattern=DURATION_PATTERN, max_length=16)] = DEFAULT_IDLE_AFTER
    """After this time an empty node goes: the consolidateAfter of the NodePool that `render nodepool` prints."""
    driver_minutes: Annotated[int, Meta(ge=0, le=120)] = 0
    """Minutes that a new node takes for its driver where that is downloaded or compiled there. So much longer than the 15
    minutes of an image with a driver its devices are waited for before the node is given up."""
    signal_resource: Annotated[str, Meta(min_length=1, max_length=317)] | None = None
    """Extended resource that the autoscaler knows, such as nvidia.com/gpu, where its plugin runs on the pool's nodes:
    a signal requests as many of it as its shape has devices."""


class ScaleRequestStatus(Model, frozen=True):
    """A node that was asked for."""

    id: str
    """Value of the label gpu.deckhouse.io/scale-request."""
    shape: str
    """Name of its shape."""
    phase: str = ""
    """Planned, Signalled, Launched, Registered, Incomplete, AgentReady, Reserved, Released, Failed, Expired, or Superseded
    (nothing waits for it any more)."""
    node_claim: str = ""
    """Karpenter's NodeClaim, once there is one."""
    node: str = ""
    """Name of the node, once there is one."""
    units: int = 0
    """Units that the node is to have."""
    pods: int = 0
    """Number of waiting pods that it comes for; none: for minUnits or warmUnits."""
    since: str = ""
    """When the phase began."""
    message: str = ""
    """What it waits for, or why it failed."""


class ShapeStatus(Model, frozen=True):
    """A shape that failed lately, or is left out, or of whose nodes the devices are known."""

    name: str
    """Name of the shape."""
    zone: str = ""
    """Zone of the failure; empty: all."""
    failures: int = 0
    """Failures in a row."""
    retry_after: str = ""
    """Time until which no node of the shape is asked for."""
    nodes_without_devices: int = 0
    """Nodes of this shape in a row that came without devices, or with fewer than it promises."""
    excluded_at: int = 0
    """Generation of the spec at which it was left out, after two such nodes; a changed spec tries it again."""
    reason: str = ""
    """Cause of the last failure."""
    message: str = ""
    """What came in place of what the shape promises, where that is the cause."""
    compute_capabilities: list[str] | None = None
    """CUDA compute capabilities of the devices of its nodes, of the last ones where none is left."""
    capabilities_at: int = 0
    """Generation of the spec at which there were such nodes; a changed spec is believed again."""


class CountedNode(Model, frozen=True):
    """A node that the pool got within the last hour."""

    id: str
    """UID of its NodeClaim; the id of its request where there is none."""
    at: str = ""
    """When it was asked for."""


class ScaleUsage(Model, frozen=True):
    """Device-hours and money of one state, since the start of the day (UTC)."""

    state: str
    """busy, idle, inFlight or stranded."""
    devices: int = 0
    """Devices in this state now."""
    device_hours: str = "0"
    """Decimal number of device-hours."""
    cost: str = ""
    """Decimal amount; empty where no price is known."""


class DayUsage(Model, frozen=True):
    """What the pool's devices did on a day."""

    day: str
    """The day (UTC)."""
    usage: list[ScaleUsage] | None = None
    """Device-hours and amounts of the day, by state."""


class AutoscalingStatus(Model, frozen=True):
    """Observed state of the pool's autoscaling."""

    phase: str = ""
    """Idle, Scaling (nodes are on their way), Blocked (pods wait and no node is asked for), or Disabled."""
    backend: ScalingBackend | None = None
    """The backend in use; another one than in the spec where the cluster does not offer that."""
    requests: list[ScaleRequestStatus] | None = None
    """Nodes that were asked for and whose pods do not have their units yet."""
    shapes: list[ShapeStatus] | None = None
    """Shapes that failed or are left out."""
    nodes_of_last_hour: list[CountedNode] | None = None
    """Nodes that count for maxNodesPerHour, the oldest first."""
    usage: list[ScaleUsage] | None = None
    """What the pool's devices did on this day, by state."""
    day: str = ""
    """The day (UTC) of usage and spent."""
    spent: str = ""
    """Amount for the pool's nodes on this day; empty where no price is known."""
    other_day: DayUsage | None = None
    """The day that was counted before this one: a clock that jumps to another day and is set right goes on there."""
    counted_at: str = ""
    """Time until which usage and spent were counted."""
    conditions: list[Condition] | None = None
    """BackendReady, NodePoolValid, WithinLimits, BudgetAvailable and ShapesAvailable."""
