"""Refusals of nodes: a reason and its figures.

`telemetry.reasons` makes the text.
"""

from enum import Enum
from typing import Final

import msgspec


class NodeReason(Enum):
    UNKNOWN_NODE = "UnknownNode"
    """The index has no such node and no device on it."""
    NODE_NOT_IN_POOL = "NodeNotInPool"
    """The node has no device of the pool."""
    NODE_TOO_SMALL = "NodeTooSmall"
    """Without any pod the node would still lack healthy units."""
    INSUFFICIENT_UNITS = "InsufficientUnits"
    """Enough units, but too many of them are used or reserved."""
    UNACCOUNTED_PODS = "UnaccountedPods"
    """A pod of the pool runs there on unknown devices."""
    NOT_ALIGNED = "NotAligned"
    """Enough free units, but no aligned set of devices has them (deviceTopology Required)."""
    CANNOT_ALIGN = "CannotAlign"
    """Without any pod no aligned set of its healthy devices would have enough units."""
    NO_DEVICE_WITH_CAPACITY = "NoDeviceWithRoom"
    """Enough free slices, but for some container not on one device (slicePlacement SameDevice)."""
    TOO_FEW_DEVICES = "TooFewDevices"
    """Without any pod the containers' slices would not fit its healthy devices, each container's on one device."""
    KUBELET_WOULD_REJECT = "KubeletWouldReject"
    """Enough free units, but not on as few NUMA nodes as kubelet's topologyManagerPolicy demands."""
    KUBELET_REJECTS = "KubeletRejects"
    """The same without any pod."""
    KUBELET_CHOOSES = "KubeletChooses"
    """Enough free units that comply, but not on the NUMA nodes that kubelet chooses by itself."""
    POOL_CHANGING = "PoolChanging"
    """The pool allocates no units while it is in maintenance."""
    POOL_ENDING = "PoolEnding"
    """The pool is being deleted and allocates no units."""
    NODE_LEAVING = "NodeLeaving"
    """The node is being deleted, or its autoscaler is about to remove it."""
    NODE_STARTING = "NodeStarting"
    """The node has the startup taint: pods that it was added for get its units first."""
    DRIVER_UPGRADE = "DriverUpgrade"
    """The node's driver is being upgraded: its devices take no new pod until that is over."""

    CACHE_FITS_NO_DEVICE = "CacheFitsNoDevice"
    """A kernel cache that the pod mounts fits no device of the pool there."""
    CACHE_FITS_TOO_FEW = "CacheFitsTooFew"
    """Without any pod the node would still lack units of devices that the pod's kernel caches fit."""
    INSUFFICIENT_FITTING_UNITS = "InsufficientFittingUnits"
    """Enough units of devices that the pod's kernel caches fit, but too many of them are used or reserved."""

    @property
    def is_resolvable(self) -> bool:
        """Whether evicting pods could help, so that preemption may try the node."""
        return self in _RESOLVABLE


_RESOLVABLE: Final = frozenset(
    {
        NodeReason.INSUFFICIENT_UNITS,
        NodeReason.INSUFFICIENT_FITTING_UNITS,
        NodeReason.UNACCOUNTED_PODS,
        NodeReason.NOT_ALIGNED,
        NodeReason.NO_DEVICE_WITH_CAPACITY,
        NodeReason.KUBELET_WOULD_REJECT,
        NodeReason.KUBELET_CHOOSES,
    }
)


class CacheIncompatibility(msgspec.Struct, frozen=True):
    """Why kernel caches of a pod do not fit devices."""

    subject: str
    """With the verb, as `kernel cache GKMCache team/llama fits`."""
    reason: str


class NodeRefusal(msgspec.Struct, frozen=True, cache_hash=True):
    """A node's refusal; equal ones are one object per view, so that texts are cached by identity."""

    reason: NodeReason
    requested: int = 0
    free: int = 0
    reserved: int = 0
    used: int = 0
    unhealthy: int = 0
    total: int = 0
    largest: int = 0
    """The most units that one device, or one aligned set of devices, has, where that decides."""
    policy: str = ""
    """kubelet's topologyManagerPolicy, where that decides."""
    incompatibility: CacheIncompatibility | None = None
    """Why some devices of the node are none for the pod; their units are not in the figures."""
