"""What `explain` is asked: the waiting pod, and what the core cannot know by itself."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from api.foreign.core import Toleration
    from api.names import PoolName
    from pool.model import DeviceFacts, PodFacts, PoolFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinableDevice:
    """A device in no pool, of a kind that the pod's pool could take."""

    device: "DeviceFacts"
    obstacle: str
    """What keeps it out, with the cure (`inventory.assignment.eligibility`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitQuestion:
    """A pending pod."""

    pod: "PodFacts"
    """Its selection gives the constraints on its node; a pod without one may go to any node."""
    other_pools: "Sequence[PoolFacts]" = ()
    """Further pools that the pod may use."""
    tolerated: "Mapping[PoolName, Sequence[Toleration]]" = field(default_factory=dict)
    """Tolerations that admission gives a pod of such a pool."""
    joinable: "Sequence[JoinableDevice]" = ()
    now: float
    """Clock.monotonic() seconds, to which the deadlines of reservations belong."""
    most_nodes: int = 16
    """Nodes that the explanation details; remedies are searched on all."""
