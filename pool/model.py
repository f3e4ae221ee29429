"""Facts that the core keeps: stripped of everything that decides nothing.

Every type is frozen; two equal values mean "nothing changed". What every decision makes anew is a
struct of msgspec's, which is made in a tenth of a frozen dataclass's time.
"""

from dataclasses import InitVar, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from pool.node_affinity import RequiredNodeAffinity, Tolerations
from pool.refusal import NodeReason

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping

    from api.annotations import Devices, ReservationNote
    from api.foreign.core import Affinity, NodeTaint, Toleration
    from api.kinds.gpupool import AllocationMode, Strategy, WhenExhausted
    from api.names import DeviceName, NodeName, PodUid, PoolName


class Instant(msgspec.Struct, frozen=True, gc=False):
    """The two readings of a clock at one moment."""

    monotonic: float
    utc: "dt.datetime"


class ContainerRole(Enum):
    """How kubelet treats a container's devices."""

    INIT = "init"
    """Runs to its end; its devices are reused by later containers."""
    SIDECAR = "sidecar"
    """An init container with restartPolicy Always: keeps its devices."""
    MAIN = "main"


class ContainerDemand(msgspec.Struct, frozen=True):
    """Units that one container asks for; never 0."""

    name: str
    role: ContainerRole
    units: int


class Demand(msgspec.Struct, frozen=True, cache_hash=True):
    """What a pod asks of one pool, in kubelet's order: init containers, then containers."""

    resource: str
    containers: tuple[ContainerDemand, ...]
    units: int
    """Distinct units that the pod occupies (`pool.demand.distinct_units`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """What the core knows of a GPUPool."""

    name: "PoolName"
    uid: str
    resource: str
    mode: "AllocationMode"
    strategy: "Strategy"
    ttl_s: int
    when_exhausted: "WhenExhausted"
    mig_profile: str = ""
    slices_per_device: int = 1
    created: str = ""
    """When the object was created: of two pools that claim one resource the older serves it."""
    is_terminating: bool = False
    is_in_maintenance: bool = False
    """No unit is given out until the pool's new allocation is in effect."""

    @property
    def closed(self) -> NodeReason | None:
        """Return why no unit of the pool is given out at all, or None where units are."""
        if self.is_terminating:
            return NodeReason.POOL_ENDING
        return NodeReason.POOL_CHANGING if self.is_in_maintenance else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What the core knows of a GPUDevice."""

    name: "DeviceName"
    node: "NodeName"
    uuid: str
    """Empty while the driver has not reported it: such a device has no units."""
    pool: "PoolName | None" = None
    is_faulted: bool = False
    is_draining: bool = False
    """It leaves its pool: no unit of it is given out any more."""
    mig_instances: tuple[tuple[str, str], ...] = ()
    """(profile, UUID) of each MIG instance on the card."""
    created: str = ""
    """When the object was created: of two devices that claim one UUID the older has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What the core knows of a Node."""

    name: "NodeName"
    is_ready: bool = True
    is_cordoned: bool = False
    labels: "Mapping[str, str]"
    taints: "tuple[NodeTaint, ...]" = ()
    pool_taints: str = ""
    """The node's annotation that says which of its taints are ours."""
    resource_version: str = field(default="", compare=False)
    """Of the object that was observed last: a heartbeat is no change."""
    uid: str = ""
    """For references to it: a node that is deleted and comes back is another one."""

    @property
    def is_placeable(self) -> bool:
        """Say whether a hold may be taken there."""
        return self.is_ready and not self.is_cordoned


class PodPhase(Enum):
    """Where an observed pod stands, for accounting."""

    PENDING = "pending"
    """Not bound: it may have a hold, it has no devices."""
    BOUND = "bound"
    ENDED = "ended"
    """Succeeded or Failed: kubelet has taken its devices back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """What the core knows of a pod that names a pool."""

    uid: "PodUid"
    namespace: str
    name: str
    demand: Demand
    phase: PodPhase
    node: "NodeName | None" = None
    devices: "Devices | None" = None
    """None on a bound pod means that nobody knows which units it took."""
    reservation: "ReservationNote | None" = None
    nominated_node: "NodeName | None" = None
    created: str = ""
    priority: int = 0
    is_gated: bool = False
    """kube-scheduler leaves it alone until its scheduling gates are gone: it doesn't wait for units."""
    astray: tuple[tuple[str, int], ...] = ()
    """(resource, units) by pool, of a pod that admission would have refused: it names several pools,
    or a quantity that is none. It is known only once bound, `demand` names the first of its pools, and
    nobody knows its devices."""

    @property
    def ref(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"

    def is_accounted_like(self, other: "PodFacts") -> bool:
        """Say whether both states of a pod take the same units, which most events of a pod leave alone."""
        return (
            self.phase is other.phase
            and self.node == other.node
            and self.devices == other.devices
            and self.demand == other.demand
            and self.astray == other.astray
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Constraints:
    """What a pod's spec says about the nodes it may go to; made for one decision."""

    node_selector: "Mapping[str, str] | None" = None
    affinity: "InitVar[Affinity | None]" = None
    tolerations: "InitVar[Iterable[Toleration]]" = ()
    required: RequiredNodeAffinity | None = field(init=False)
    """None where every node will do."""
    tolerated: Tolerations = field(init=False)

    def __post_init__(
        self, affinity: "Affinity | None", tolerations: "Iterable[Toleration]"
    ) -> None:
        """Keep what every node is compared with."""
        node_affinity = affinity.node_affinity if affinity is not None else None
        required = node_affinity.required if node_affinity is not None else None
        compiled = RequiredNodeAffinity(required.node_selector_terms or ()) if required else None
        object.__setattr__(self, "required", compiled)
        object.__setattr__(self, "tolerated", Tolerations(tolerations))


@dataclass(frozen=True, slots=True)
class Capacity:
    """Units of a pool; total = reserved + used + available + unhealthy."""

    total: int = 0
    reserved: int = 0
    used: int = 0
    available: int = 0
    unhealthy: int = 0
