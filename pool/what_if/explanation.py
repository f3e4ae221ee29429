"""Values of an explanation: the reason, figures by node, holders of units, and remedies."""

from enum import Enum
from typing import Final

import msgspec

from pool.model import Capacity
from pool.refusal import NodeRefusal


class UnitWaitReason(Enum):
    """Why a pod has no node, as far as units decide; the reason of the condition `UnitsAvailable`."""

    UNITS_AVAILABLE = "UnitsAvailable"
    """A node has units for the pod: it waits for something else, or for kube-scheduler's next attempt."""
    RESERVATION_PENDING = "ReservationPending"
    """A node has units for the pod, and none are reserved for it yet: it has our gate, and waiting pods get theirs by
    priority and age."""
    POOL_NOT_FOUND = "PoolMissing"
    """No pool serves the resource that the pod asks for."""
    POOL_CLOSED = "PoolClosed"
    """The pool is being deleted, or allocates no units while it is in maintenance."""
    SCHEDULING_GATED = "SchedulingGated"
    """Scheduling gates of others keep the pod from kube-scheduler."""
    POD_TOO_LARGE = "PodTooLarge"
    """No node that the pod may go to has as many units, taken or not."""
    CACHES_FIT_NO_DEVICE = "CachesFitNoDevice"
    """A kernel cache that the pod mounts fits no device of a node that the pod may go to."""
    NODES_EXCLUDED = "NodesExcluded"
    """Nodes have the units; the pod's node selector, affinity or tolerations exclude them, or they are cordoned, or lack CPU, memory or a place for the pod."""
    UNITS_EXHAUSTED = "UnitsExhausted"
    """All nodes together have fewer free units than the pod asks for."""
    UNITS_FRAGMENTED = "UnitsFragmented"
    """The nodes together have enough free units, and no node has."""
    UNITS_NOT_ALIGNED = "UnitsNotAligned"
    """A node has enough free units, and not as the pool's placement rules or kubelet's topology policy demand."""
    NODES_CLOSED = "NodesClosed"
    """Nodes with enough units allocate none: they start, leave, get a new driver, or have a pod on unknown devices."""


HAVE_UNITS: Final = frozenset({UnitWaitReason.UNITS_AVAILABLE, UnitWaitReason.RESERVATION_PENDING})
"""Reasons of pods that a node has units for: no remedy is needed."""


class UnitsHolder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A pod that has units of a node, bound or by a reservation."""

    namespace: str
    name: str
    """Empty while the pod of a reservation has no name yet."""
    uid: str = ""
    units: int
    priority: int = 0
    created: str = ""
    """Creation time of the pod."""
    is_reserved: bool = False
    """Whether it has them by a reservation: the pod is not bound yet."""
    expires_in_s: float | None = None
    """Seconds until the end of a reservation that expires."""

    @property
    def ref(self) -> str:
        return f"{self.namespace}/{self.name or '*'}"


class NodeExplanation(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"
):
    """Units of the pool on one node; total = free + used + reserved + withheld."""

    node: str
    total: int
    free: int
    used: int
    reserved: int
    withheld: int
    """Units of no pod on devices that are faulted, draining or partitioned by others, those that such a device lacks,
    and all free ones of a node that takes no pods."""
    exclusion: str = ""
    """Why kube-scheduler does not consider the node, whatever is free on it; empty where it does."""
    shortage: str = ""
    """Which of CPU, memory and places for pods does not suffice beside other pods; empty where all do, or are not known."""
    refusal: NodeRefusal | None = None
    """Why the units do not suffice; None where they do."""
    holders: tuple[UnitsHolder, ...] = ()
    """Most units first."""

    @property
    def takes_pod(self) -> bool:
        return not self.exclusion and not self.shortage and self.refusal is None


class Remedy(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", tag=True
):
    """A change after which the pod, or the pod as changed, is placed on the node."""

    node: str


class AskFewerUnits(Remedy, frozen=True):
    """The pod asks for fewer units: the largest number that fits now."""

    units: int


class ReservationsExpire(Remedy, frozen=True):
    """Reservations end unless their pods are bound before."""

    holders: tuple[UnitsHolder, ...]
    within_s: float
    """Seconds until the last one expires."""


class UsePool(Remedy, frozen=True):
    """The pod asks another pool, which it may use, for as many units."""

    pool: str
    resource: str


class WithheldBy(Enum):
    CORDONED = "Cordoned"
    NOT_READY = "NotReady"
    FAULTED = "Faulted"
    DRAINING = "Draining"
    LAYOUT = "LayoutDiffers"


class UnitsReturn(Remedy, frozen=True):
    """Units that the node has and does not allocate are allocated again."""

    cause: WithheldBy
    units: int
    devices: tuple[str, ...] = ()
    """Devices that are faulted, leave the pool, or were partitioned by others; empty where the whole node is withheld."""
    needed_actions: tuple[str, ...] = ()
    """What the faulted ones need, such as GPUReset."""
    holders: tuple[UnitsHolder, ...] = ()
    """Pods that end first: a node agent partitions no device that is in use."""


class DevicesJoin(Remedy, frozen=True):
    """Devices of the node that are in no pool join the pod's pool."""

    devices: tuple[str, ...]
    obstacle: str
    """What keeps them out of the pool, with the cure."""


class PodsEnd(Remedy, frozen=True):
    """Pods of the node end: the fewest, of the lowest priority."""

    holders: tuple[UnitsHolder, ...]
    is_preemption: bool = False
    """kube-scheduler evicts them by itself: all have a lower priority, and too few units are free without them."""


AnyRemedy = AskFewerUnits | ReservationsExpire | UsePool | UnitsReturn | DevicesJoin | PodsEnd


class Explanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Why a pod waits."""

    pod: str
    """namespace/name."""
    resource: str
    units: int
    reason: UnitWaitReason
    pool: str = ""
    """Empty where no pool serves the resource."""
    drift: str = ""
    """What others did to the pool's devices, and what ends the maintenance that follows from it."""
    capacity: Capacity | None = None
    free: int = 0
    """Units that pods can get now, on nodes that take pods."""
    largest_node: int = 0
    """Units of the pool's largest node, taken or not."""
    largest_free: int = 0
    """Most units that a pod may get on one node now, whatever node it may go to."""
    nodes: tuple[NodeExplanation, ...] = ()
    """The nodes of the pool, most free units first; of large pools the first ones."""
    nodes_total: int = 0
    unweighed: tuple[str, ...] = ()
    """Fields of the pod on which kube-scheduler may decide otherwise than is said here."""
    remedies: tuple[AnyRemedy, ...] = ()
    """The least change first; at most one of a kind, but one for each other pool."""

    @property
    def namespace(self) -> str:
        return self.pod.partition("/")[0]
