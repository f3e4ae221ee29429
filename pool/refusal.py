"""Refusals of nodes: a reason and its figures.

`telemetry.reasons` makes the text.
"""

from enum import Enum

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
    POOL_CHANGING = "PoolChanging"
    """The pool allocates no units until its new allocation is in effect."""
    POOL_ENDING = "PoolEnding"
    """The pool is being deleted and allocates no units."""

    @property
    def is_resolvable(self) -> bool:
        """Whether evicting pods could help, so that preemption may try the node."""
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
