"""Why a node cannot take a pod: a reason and the figures behind it.

Text is made at the edge (`telemetry.reasons`).
"""

from enum import Enum

import msgspec


class NodeReason(Enum):
    """Why a node cannot take a pod."""

    UNKNOWN_NODE = "UnknownNode"
    """The index knows no such node and no device on it."""
    NODE_NOT_IN_POOL = "NodeNotInPool"
    """The node has no device of the pool."""
    NODE_TOO_SMALL = "NodeTooSmall"
    """Even with every pod gone the node would not have enough healthy units."""
    INSUFFICIENT_UNITS = "InsufficientUnits"
    """Enough units, but too many of them are used or held."""
    UNACCOUNTED_PODS = "UnaccountedPods"
    """A pod of the pool runs there and nobody knows on which units."""
    POOL_CHANGING = "PoolChanging"
    """The pool gives out nothing until its new allocation is in effect."""
    POOL_ENDING = "PoolEnding"
    """The pool is being deleted and gives out nothing any more."""

    @property
    def is_resolvable(self) -> bool:
        """Say whether evicting pods could help, so that preemption may try the node."""
        return self in {NodeReason.INSUFFICIENT_UNITS, NodeReason.UNACCOUNTED_PODS}


class NodeRefusal(msgspec.Struct, frozen=True, cache_hash=True):
    """A node's refusal; equal ones are one object per view, so that texts are cached by identity."""

    reason: NodeReason
    wanted: int = 0
    free: int = 0
    reserved: int = 0
    used: int = 0
    unhealthy: int = 0
    total: int = 0
